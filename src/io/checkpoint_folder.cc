// The checkpoints of a run: a folder that one process holds, the newest few files in it, a thread that writes.
#include <fcntl.h>
#include <fmt/format.h>
#include <sys/file.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <filesystem>
#include <future>
#include <system_error>

#include "aicf/checkpoint.h"
#include "aicf/error.h"
#include "io/bytes.h"
#include "io/checkpoint_format.h"

namespace aicf {
namespace {

constexpr std::string_view kPrefix = "checkpoint-", kSuffix = ".safetensors";

std::string name_of_step(int64_t step) { return fmt::format("{}{:08}{}", kPrefix, step, kSuffix); }

std::optional<int64_t> step_of_name(std::string_view name) {
  if (!name.starts_with(kPrefix) || !name.ends_with(kSuffix) || name.size() <= kPrefix.size() + kSuffix.size()) {
    return std::nullopt;
  }
  const std::string_view digits = name.substr(kPrefix.size(), name.size() - kPrefix.size() - kSuffix.size());
  int64_t step = 0;
  const auto [stop, error] = std::from_chars(digits.data(), digits.data() + digits.size(), step);
  // Another spelling of a number is no name of ours.
  if (error != std::errc() || step < 0 || name_of_step(step) != name) return std::nullopt;
  return step;
}

}  // namespace

class CheckpointFolder::Impl {
 public:
  Impl(const std::string& path, int keep) : path_(path), keep_(keep), label_(io::label_of("CheckpointFolder", path)) {
    if (keep < 0) throw Error(fmt::format("{}: expected 0 or more checkpoints to keep, got {}", label_, keep));
    std::error_code error;
    std::filesystem::create_directories(path, error);
    if (error) throw Error(fmt::format("{}: cannot make it: {}", label_, error.message()));
    descriptor_ = open(path.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (descriptor_ < 0) fail("open it");
    if (access(path.c_str(), W_OK) != 0) {  // told now, not after hours of training
      const int cause = errno;
      close(descriptor_);
      errno = cause;
      fail("write to it");
    }
    // Where the file system has no locks, two processes are the user's to avoid.
    if (flock(descriptor_, LOCK_EX | LOCK_NB) != 0 && errno == EWOULDBLOCK) {
      close(descriptor_);
      throw Error(fmt::format("{}: another process trains into it", label_));
    }
    try {
      io::remove_leftovers(label_, path);
    } catch (...) {
      close(descriptor_);
      throw;
    }
  }

  ~Impl() {
    if (pending_.valid()) pending_.wait();
    close(descriptor_);
  }

  void save(const Checkpoint& checkpoint) {
    wait();
    write(checkpoint);
  }

  void save_in_background(Checkpoint checkpoint) {
    wait();
    try {
      pending_ = std::async(std::launch::async, [this, c = std::move(checkpoint)] { write(c); });
    } catch (const std::system_error& e) {
      throw Error(fmt::format("{}: cannot start a thread: {}", label_, e.what()));
    }
  }

  void wait() {
    if (pending_.valid()) pending_.get();
  }

  std::vector<CheckpointFile> files() const {
    std::vector<CheckpointFile> found;
    for (const std::string& name : io::names_in(label_, path_)) {
      if (const auto step = step_of_name(name)) found.push_back({path_ + "/" + name, *step});
    }
    std::sort(found.begin(), found.end(), [](const auto& a, const auto& b) { return a.step > b.step; });
    return found;
  }

  Newest newest(const std::vector<std::string>& waive) {
    wait();
    const std::vector<CheckpointFile> found = files();
    if (found.empty()) throw Error(fmt::format("{}: expected a checkpoint, got none", label_));
    std::vector<std::string> damaged;
    for (const CheckpointFile& file : found) {
      Newest result;
      require_readable(file.path);
      try {
        result.checkpoint = read(file, waive);
      } catch (const io::LaterVersion&) {
        throw;
      } catch (const Error& e) {
        damaged.emplace_back(e.what());
        continue;
      }
      for (size_t i = 0; i < damaged.size(); ++i) {
        if (rename(found[i].path.c_str(), (found[i].path + ".damaged").c_str()) != 0) fail("set a damaged one aside");
      }
      result.file = file;
      result.damaged = std::move(damaged);
      return result;
    }
    throw Error(fmt::format("{}: none of its {} checkpoints can be read: {}", label_, found.size(), damaged.front()));
  }

 private:
  [[noreturn]] void fail(const char* what) const {
    throw Error(fmt::format("{}: cannot {}: {}", label_, what, io::last_error()));
  }

  // What the system refuses for the moment is not damaged.
  void require_readable(const std::string& path) const {
    const int file = open(path.c_str(), O_RDONLY | O_CLOEXEC);
    if (file < 0) fail(("open " + path).c_str());
    close(file);
  }

  static Checkpoint read(const CheckpointFile& file, const std::vector<std::string>& waive) {
    Checkpoint checkpoint = read_checkpoint(file.path, waive);
    if (checkpoint.step && *checkpoint.step != file.step) {
      throw Error(fmt::format("{}: expected step {} as the name says, got {}",
                              io::label_of("read_checkpoint", file.path), file.step, *checkpoint.step));
    }
    return checkpoint;
  }

  void write(const Checkpoint& checkpoint) {
    if (!checkpoint.step) throw Error(fmt::format("{}: expected a checkpoint with a step", label_));
    const std::string name = name_of_step(*checkpoint.step);
    write_checkpoint(path_ + "/" + name, checkpoint);
    if (keep_ == 0) return;
    int kept = 1;  // the one just written, whatever its step
    for (const CheckpointFile& file : files()) {
      if (file.step == *checkpoint.step || kept++ < keep_) continue;
      if (unlink(file.path.c_str()) != 0 && errno != ENOENT) fail("remove an old checkpoint");
    }
  }

  const std::string path_;
  const int keep_;
  const std::string label_;
  int descriptor_ = -1;
  std::future<void> pending_;
};

CheckpointFolder::CheckpointFolder(const std::string& path, int keep) : impl_(std::make_unique<Impl>(path, keep)) {}
CheckpointFolder::~CheckpointFolder() = default;
CheckpointFolder::CheckpointFolder(CheckpointFolder&&) noexcept = default;
CheckpointFolder& CheckpointFolder::operator=(CheckpointFolder&&) noexcept = default;

void CheckpointFolder::save(const Checkpoint& checkpoint) { impl_->save(checkpoint); }
void CheckpointFolder::save_in_background(Checkpoint checkpoint) { impl_->save_in_background(std::move(checkpoint)); }
void CheckpointFolder::wait() { impl_->wait(); }
std::vector<CheckpointFile> CheckpointFolder::files() const { return impl_->files(); }
CheckpointFolder::Newest CheckpointFolder::newest(const std::vector<std::string>& waive) {
  return impl_->newest(waive);
}

}  // namespace aicf
