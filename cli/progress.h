// Progress of a training run: a bar on a terminal, plain lines elsewhere.
#pragma once

#include <chrono>
#include <cstdint>
#include <string>

namespace aicf::cli {

class Progress {
 public:
  Progress(int64_t steps, int64_t steps_per_epoch);
  // After each step. Draws at most ten times a second.
  void step(double loss);
  // A line of its own, above the bar.
  void line(const std::string& text);
  void finish();

  double seconds() const;
  double steps_per_second() const;
  // The mean loss of the steps since the last call.
  double take_mean_loss();
  // A running mean that forgets over about 50 steps.
  double smooth_loss() const { return smooth_; }

 private:
  using Clock = std::chrono::steady_clock;
  void draw();
  void clear();

  const int64_t steps_, steps_per_epoch_;
  const bool terminal_;
  const Clock::time_point start_ = Clock::now();
  Clock::time_point drawn_ = start_;
  int64_t done_ = 0;
  double smooth_ = 0;
  double sum_ = 0;
  int64_t count_ = 0;
  bool shown_ = false;
};

}  // namespace aicf::cli
