#include "progress.h"

#include <fmt/format.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>

namespace aicf::cli {
namespace {

constexpr double kBarInterval = 0.1, kLineInterval = 10;  // seconds

int terminal_width() {
  winsize size{};
  if (ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) != 0 || size.ws_col == 0) return 80;
  return size.ws_col;
}

std::string duration(double seconds) {
  const auto s = static_cast<int64_t>(seconds + 0.5);
  if (s < 60) return fmt::format("{} s", s);
  if (s < 3600) return fmt::format("{}:{:02}", s / 60, s % 60);
  return fmt::format("{}:{:02}:{:02}", s / 3600, s / 60 % 60, s % 60);
}

}  // namespace

Progress::Progress(int64_t steps, int64_t steps_per_epoch)
    : steps_(steps), steps_per_epoch_(std::max<int64_t>(steps_per_epoch, 1)), terminal_(isatty(STDOUT_FILENO) != 0) {}

void Progress::resume(int64_t done, const Losses& losses) {
  done_ = resumed_ = done;
  losses_ = losses;
}

double Progress::seconds() const { return std::chrono::duration<double>(Clock::now() - start_).count(); }

double Progress::steps_per_second() const {
  const double s = seconds();
  return s > 0 ? static_cast<double>(done_ - resumed_) / s : 0;
}

double Progress::take_mean_loss() {
  const double mean = losses_.count > 0 ? losses_.sum / static_cast<double>(losses_.count) : 0;
  losses_.sum = 0;
  losses_.count = 0;
  return mean;
}

void Progress::step(double loss) {
  ++done_;
  losses_.sum += loss;
  ++losses_.count;
  losses_.smooth = done_ == 1 ? loss : losses_.smooth + (loss - losses_.smooth) * 0.02;
  const double since = std::chrono::duration<double>(Clock::now() - drawn_).count();
  if (since >= (terminal_ ? kBarInterval : kLineInterval)) draw();
}

void Progress::draw() {
  drawn_ = Clock::now();
  const double rate = steps_per_second();
  const double left = rate > 0 ? static_cast<double>(steps_ - done_) / rate : 0;
  const std::string text =
      fmt::format("epoch {}/{}  step {}/{}  loss {:.4f}  {:.0f} steps/s  ETA {}", (done_ - 1) / steps_per_epoch_ + 1,
                  (steps_ - 1) / steps_per_epoch_ + 1, done_, steps_, losses_.smooth, rate, duration(left));
  if (!terminal_) {
    fmt::print("{}\n", text);
    std::fflush(stdout);
    return;
  }
  const int room = std::clamp(terminal_width() - static_cast<int>(text.size()) - 5, 0, 40);
  const int filled =
      static_cast<int>(static_cast<double>(room) * static_cast<double>(done_) / static_cast<double>(steps_));
  const std::string bar =
      room >= 8 ? fmt::format("[{:<{}}] ", std::string(static_cast<size_t>(filled), '#'), room) : "";
  fmt::print("\r\x1b[K{}{}", bar, text.substr(0, static_cast<size_t>(std::max(terminal_width() - 1, 1))));
  std::fflush(stdout);
  shown_ = true;
}

void Progress::clear() {
  if (shown_) fmt::print("\r\x1b[K");
  shown_ = false;
}

void Progress::line(const std::string& text) {
  clear();
  fmt::print("{}\n", text);
  std::fflush(stdout);
}

void Progress::finish() {
  clear();
  std::fflush(stdout);
}

}  // namespace aicf::cli
