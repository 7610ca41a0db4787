// bench(): the same batches of steps, fed, resident and many a call, by the host's clock.
#include "aicf/bench.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <vector>

#include "aicf/error.h"
#include "ir/op.h"
#include "runtime/program.h"

namespace aicf {
namespace {

double seconds_now() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

// Seconds from the start of the first of n steps to the end of the last.
template <class Steps>
double time_batch(Program& program, int64_t n, const Steps& steps) {
  const double start = seconds_now();
  steps(n);
  program.wait();
  return seconds_now() - start;
}

// `steps` runs as many as it is told.
template <class Steps>
StepTime measure(Program& program, const BenchOptions& options, const Steps& steps) {
  time_batch(program, 1, steps);  // first touches, first captures
  int64_t n = std::max<int64_t>(options.steps, 1);
  double last = time_batch(program, n, steps);
  // A batch that is long enough is timed again: it may have been an interruption.
  const auto too_short = [&] {
    if (last >= options.batch_seconds) last = std::min(last, time_batch(program, n, steps));
    return last < options.batch_seconds;
  };
  while (options.steps == 0 && too_short()) {
    const double factor = last > 0 ? 1.2 * options.batch_seconds / last : 10;
    n = std::max(n + 1, static_cast<int64_t>(static_cast<double>(n) * std::min(factor, 10.0)));
    last = time_batch(program, n, steps);
  }
  std::vector<double> times;
  double total = 0;
  while (static_cast<int>(times.size()) < options.batches || total < options.seconds) {
    const double seconds = time_batch(program, n, steps);
    total += seconds;
    times.push_back(seconds / static_cast<double>(n) * 1e3);
  }
  std::sort(times.begin(), times.end());
  const size_t half = times.size() / 2;
  const double median = times.size() % 2 == 1 ? times[half] : (times[half - 1] + times[half]) / 2;
  return {median, times.front(), times.back(), n, static_cast<int>(times.size())};
}

struct Peak {
  std::string_view device, precision;
  double flops;
};

// 8192×8192×8192 through cuBLASLt, best algorithm, random data.
constexpr Peak kPeaks[] = {
    {"NVIDIA H200", "f32", 51e12},
    {"NVIDIA H200", "tf32", 355e12},
    {"NVIDIA H200", "bf16", 757e12},
    {"NVIDIA H200", "f16", 757e12},
};

}  // namespace

BenchResult bench(Program& program, const BenchFeeds& feeds, const BenchOptions& options) {
  if (!program.valid()) throw Error("bench: use of an empty Program", "compile() makes one");
  if (options.batches < 1) throw Error("bench: expected one batch or more, got " + std::to_string(options.batches));
  if (options.steps < 0) throw Error("bench: expected steps >= 0, got " + std::to_string(options.steps));
  if (!std::isfinite(options.seconds) || !std::isfinite(options.batch_seconds)) {
    throw Error("bench: expected finite times");
  }
  BenchResult result;
  int64_t fed = 0;
  result.fed = measure(program, options, [&](int64_t n) {
    for (int64_t i = 0; i < n; ++i) program.step(feeds(fed++));
  });
  result.resident = measure(program, options, [&](int64_t n) {
    for (int64_t i = 0; i < n; ++i) program.repeat();
  });
  if (program.impl()->executable().runner()->kept_once().empty()) {
    result.many = measure(program, options, [&](int64_t n) { program.steps(n); });
  }
  result.graph = program.graph();
  result.planned_bytes = program.memory().total;
  const ir::Graph& graph = program.impl()->compiled().graph;
  for (const ir::Op& op : graph.ops()) result.flops += ir::cost_of(graph, op).flops;
  return result;
}

std::optional<double> known_peak(std::string_view device, std::string_view precision) {
  for (const Peak& peak : kPeaks) {
    if (device.starts_with(peak.device) && peak.precision == precision) return peak.flops;
  }
  return {};
}

}  // namespace aicf
