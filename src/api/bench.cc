// bench(): the same batches of steps, fed, resident and many a call, by the host's clock; and each launch by itself.
#include "aicf/bench.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <map>
#include <tuple>
#include <vector>

#include "aicf/error.h"
#include "ir/op.h"
#include "runtime/program.h"

namespace aicf {
namespace {

double seconds_now() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

double median_of(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  const size_t half = values.size() / 2;
  return values.size() % 2 == 1 ? values[half] : (values[half - 1] + values[half]) / 2;
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
  const auto [low, high] = std::minmax_element(times.begin(), times.end());
  return {median_of(times), *low, *high, n, static_cast<int>(times.size())};
}

// The op, or what its region holds.
std::string name_of_launch(const ir::Op& op) {
  if (op.region == nullptr) return op.def->name;
  std::map<std::string, int> held;
  for (const ir::Op& inner : op.region->ops()) ++held[name_of_launch(inner)];
  std::string text;
  for (const auto& [name, count] : held) {
    text += (text.empty() ? "" : " ") + name + (count > 1 ? "*" + std::to_string(count) : "");
  }
  return std::string(op.def->name) + "(" + text + ")";
}

void check(const Program& program, const BenchOptions& options) {
  if (!program.valid()) throw Error("bench: use of an empty Program", "compile() makes one");
  if (options.batches < 1) throw Error("bench: expected one batch or more, got " + std::to_string(options.batches));
  if (options.steps < 0) throw Error("bench: expected steps >= 0, got " + std::to_string(options.steps));
  if (!std::isfinite(options.seconds) || !std::isfinite(options.batch_seconds)) {
    throw Error("bench: expected finite times");
  }
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
  check(program, options);
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

std::vector<LaunchTime> bench_launches(Program& program, const BenchFeeds& feeds, const BenchOptions& options) {
  check(program, options);
  constexpr size_t kFewestSteps = 5;
  const Mode mode = program.mode();
  Program::Impl& impl = *program.impl();
  const runtime::Compiled& compiled = impl.compiled();
  const std::vector<plan::Launch>& launches = compiled.plan.launches;
  std::map<std::tuple<std::string, std::string, std::string>, size_t> rows;
  std::vector<LaunchTime> times;
  std::vector<size_t> row_of;
  for (const plan::Launch& launch : launches) {
    LaunchTime time = {"copy", "copy", ""};
    if (launch.op != ir::kNoOp) {
      const ir::Op& op = compiled.graph.op(launch.op);
      time = {name_of_launch(op), launch.kernel.variant, to_string(compiled.graph.type(op.outputs[0]))};
    }
    const auto [at, is_new] = rows.emplace(std::tuple(time.name, time.variant, time.result), times.size());
    if (is_new) times.push_back(std::move(time));
    ++times[at->second].count;
    row_of.push_back(at->second);
  }
  std::vector<std::vector<double>> seconds(times.size());  // by row, then step
  std::vector<double> spent(times.size());
  double last = 0;
  struct Restore {
    Program& program;
    Mode mode;
    ~Restore() {
      program.impl()->set_observer(nullptr);
      program.set_mode(mode);
    }
  } const restore{program, mode};
  program.set_mode(Mode::eager);
  impl.set_observer([&](int launch) {
    const double now = seconds_now();
    spent[row_of[static_cast<size_t>(launch)]] += now - last;
    last = now;
  });
  program.step(feeds(0));
  const double start = seconds_now();
  for (size_t step = 0; step < kFewestSteps || seconds_now() - start < options.seconds; ++step) {
    std::fill(spent.begin(), spent.end(), 0.0);
    last = seconds_now();
    program.repeat();
    for (size_t i = 0; i < times.size(); ++i) seconds[i].push_back(spent[i]);
  }
  for (size_t i = 0; i < times.size(); ++i) {
    times[i].microseconds = median_of(seconds[i]) * 1e6;
    times[i].low = *std::min_element(seconds[i].begin(), seconds[i].end()) * 1e6;
  }
  std::stable_sort(times.begin(), times.end(),
                   [](const LaunchTime& a, const LaunchTime& b) { return a.microseconds > b.microseconds; });
  return times;
}

std::optional<double> known_peak(std::string_view device, std::string_view precision) {
  for (const Peak& peak : kPeaks) {
    if (device.starts_with(peak.device) && peak.precision == precision) return peak.flops;
  }
  return {};
}

}  // namespace aicf
