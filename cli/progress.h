// Progress of a training run: a bar on a terminal, plain lines elsewhere.
#pragma once

#include <chrono>
#include <cstdint>
#include <string>

namespace aicf::cli {

class Progress {
 public:
  // What a resumed run goes on with.
  struct Losses {
    double smooth = 0;  // a running mean that forgets over about 50 steps
    double sum = 0;     // since the last take_mean_loss()
    int64_t count = 0;
  };

  Progress(int64_t steps, int64_t steps_per_epoch);
  // The run goes on after `done` of its steps.
  void resume(int64_t done, const Losses& losses);
  // After each step. Draws at most ten times a second.
  void step(double loss);
  // A line of its own, above the bar.
  void line(const std::string& text);
  void finish();

  double seconds() const;
  double steps_per_second() const;  // of this process
  // The mean loss of the steps since the last call.
  double take_mean_loss();
  const Losses& losses() const { return losses_; }

 private:
  using Clock = std::chrono::steady_clock;
  void draw();
  void clear();

  const int64_t steps_, steps_per_epoch_;
  const bool terminal_;
  const Clock::time_point start_ = Clock::now();
  Clock::time_point drawn_ = start_;
  int64_t done_ = 0, resumed_ = 0;
  Losses losses_;
  bool shown_ = false;
};

}  // namespace aicf::cli
