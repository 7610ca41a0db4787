// bench(): how long a step takes, and what it is made of.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "aicf/program.h"

namespace aicf {

struct BenchOptions {
  double seconds = 1;           // of each of the three measurements, about
  double batch_seconds = 0.05;  // a timed batch of steps takes at least this long: the clock's error is then nothing
  int batches = 5;              // at least
  int64_t steps = 0;            // of a batch; 0: as batch_seconds asks
};

// Milliseconds a step, over the batches: the median, the least and the most.
struct StepTime {
  double median = 0, low = 0, high = 0;
  int64_t steps = 0;  // of a batch
  int batches = 0;
};

struct BenchResult {
  StepTime resident;  // on one batch that stays in the backend's memory
  StepTime fed;       // every step fed from host memory
  // On that batch too, all steps of a batch by one call of steps(). Empty: an output is too large for it.
  std::optional<StepTime> many;
  GraphInfo graph;
  size_t planned_bytes = 0;
  double flops = 0;  // of a step, by the records of its ops
};

// The inputs of step 0, 1, …; valid until the next call. Called between steps on the timed thread: it should cost
// nothing.
using BenchFeeds = std::function<std::span<const Feed>(int64_t step)>;

// Times batches of steps by the host's clock, from before the first step to the end of the last, after a warm-up; with
// inputs fed each step, then on what was fed last, step by step and by steps(). The program trains on as it would:
// reset() or load() afterwards.
BenchResult bench(Program& program, const BenchFeeds& feeds, const BenchOptions& options = {});

// Equal launches of a step, together.
struct LaunchTime {
  std::string name;         // "matmul", "copy"; of a region what it holds: "fused(exp mul*2 reduce_sum)"
  std::string variant;      // of its kernel
  std::string result;       // type of the first result
  int count = 0;            // in a step
  double microseconds = 0;  // a step, all of them: the median of the steps
  double low = 0;           // the least: what it takes on a machine with other work
};

// Times each launch of steps on one batch, one after another, each with its start and, on a GPU, the wait for its end;
// the longest first. Warms up for a step, then takes 5 steps or more, for options.seconds or more. The program trains
// on, in the mode that it had.
std::vector<LaunchTime> bench_launches(Program& program, const BenchFeeds& feeds, const BenchOptions& options = {});

// The rate of the best large matrix product measured on this device in this precision ("f32", "tf32", "bf16", "f16"),
// in FLOP/s, where it is known. `device` is BackendInfo::description.
std::optional<double> known_peak(std::string_view device, std::string_view precision);

// What moves memory in training and little else, as programs of their own: the optimizer's step over the parameters of
// a GPT, and layers forward and backward, each from tensors to tensors on the device.
struct OpsBenchOptions {
  std::string backend = "auto";  // as CompileOptions
  Mode mode = Mode::graph;
  std::vector<std::string> disable_passes = {};
  std::string only = {};  // a part of the names wanted; empty: all
  // Of the largest tensor of each program; 0: 256 MiB, and 64 MiB on the CPU.
  size_t bytes = 0;
  BenchOptions timing = {.seconds = 0.5};
};
struct OpsBenchRow {
  std::string name;  // "layer_norm.backward bf16"
  StepTime time;
  size_t bytes = 0;  // of its inputs and its results, each counted once
  int launches = 0, nodes = 0;
  double bytes_per_second = 0;
  double share = 0;  // of the rate of a copy of as many bytes, measured just before
};
// `seen` gets each row as soon as it is measured. Throws Error when nothing has a name asked for.
std::vector<OpsBenchRow> bench_ops(const OpsBenchOptions& options,
                                   const std::function<void(const OpsBenchRow&)>& seen = nullptr);

}  // namespace aicf
