// Fused regions on the CPU beside loops written by hand for the same vectors: AdamW in place and layer norm, in the
// second-level cache and from memory. With other work on the machine the least of many repetitions is the figure.
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "../bench/fused.cc"
#include "hwy/foreach_target.h"
// After foreach_target.
#include "hwy/highway.h"

HWY_BEFORE_NAMESPACE();
namespace aicf::bench {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;
using Tag = hn::ScalableTag<float>;

// n is a multiple of the vector.
HWY_ATTR void adamw(float* p, float* m, float* s, const float* g, float rate, float decay, float eps, size_t n) {
  const Tag d;
  const auto r = hn::Set(d, rate), keep = hn::Set(d, decay), e = hn::Set(d, eps);
  for (size_t i = 0; i < n; i += hn::Lanes(d)) {
    const auto grad = hn::LoadU(d, g + i), old_m = hn::LoadU(d, m + i), old_s = hn::LoadU(d, s + i);
    const auto new_m = hn::Add(old_m, hn::Mul(hn::Sub(grad, old_m), r));
    const auto new_s = hn::Add(old_s, hn::Mul(hn::Sub(hn::Mul(grad, grad), old_s), r));
    const auto step = hn::Div(new_m, hn::Add(hn::Sqrt(new_s), e));
    hn::StoreU(hn::Sub(hn::Mul(hn::LoadU(d, p + i), keep), step), d, p + i);
    hn::StoreU(new_m, d, m + i);
    hn::StoreU(new_s, d, s + i);
  }
}

HWY_ATTR void layer_norm(const float* x, const float* gamma, const float* beta, float* y, float* scale, size_t rows,
                         size_t n) {
  const Tag d;
  const size_t lanes = hn::Lanes(d);
  for (size_t row = 0; row < rows; ++row, x += n, y += n) {
    auto a = hn::Zero(d), b = hn::Zero(d);
    for (size_t i = 0; i < n; i += 2 * lanes) {
      a = hn::Add(a, hn::LoadU(d, x + i));
      b = hn::Add(b, hn::LoadU(d, x + i + lanes));
    }
    const auto mean = hn::Set(d, hn::GetLane(hn::SumOfLanes(d, hn::Add(a, b))) / static_cast<float>(n));
    a = hn::Zero(d), b = hn::Zero(d);
    for (size_t i = 0; i < n; i += 2 * lanes) {
      const auto u = hn::Sub(hn::LoadU(d, x + i), mean), v = hn::Sub(hn::LoadU(d, x + i + lanes), mean);
      a = hn::Add(a, hn::Mul(u, u));
      b = hn::Add(b, hn::Mul(v, v));
    }
    const auto square = hn::GetLane(hn::SumOfLanes(d, hn::Add(a, b))) / static_cast<float>(n);
    const auto r = hn::Div(hn::Set(d, 1.0f), hn::Sqrt(hn::Set(d, square + 1e-5f)));
    for (size_t i = 0; i < n; i += lanes) {
      const auto normal = hn::Mul(hn::Sub(hn::LoadU(d, x + i), mean), r);
      hn::StoreU(hn::Add(hn::Mul(normal, hn::LoadU(d, gamma + i)), hn::LoadU(d, beta + i)), d, y + i);
    }
    scale[row] = hn::GetLane(r);
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace aicf::bench
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
#include <benchmark/benchmark.h>

#include <memory>
#include <string>
#include <vector>

#include "backend/cpu/kernels.h"
#include "base/thread_pool.h"
#include "ops/defs.h"
#include "ops/region_op.h"

namespace aicf::bench {
HWY_EXPORT(adamw);
HWY_EXPORT(layer_norm);

namespace {

using Values = std::vector<Value>;
constexpr int64_t kWidth = 1024;

struct Task {
  backend::CpuKernelFn fn;
  backend::KernelArgs args;
};

void run_part(void* ctx, int part, int parts) {
  const base::FlushSubnormals flush;
  const auto& task = *static_cast<const Task*>(ctx);
  task.fn(task.args, part, parts);
}

void run(const backend::PreparedKernel& kernel, void* const* buffers, int threads) {
  for (const backend::CpuPhase& phase : kernel.phases) {
    Task task{phase.fn, {buffers, kernel.params.get()}};
    base::ThreadPool::shared().run(run_part, &task, phase.parts, threads);
  }
}

struct Memory {
  std::vector<std::unique_ptr<float[]>> blocks;
  float* add(int64_t elements, float value) {
    blocks.push_back(std::make_unique<float[]>(static_cast<size_t>(elements)));
    for (int64_t i = 0; i < elements; ++i)
      blocks.back()[static_cast<size_t>(i)] = value + 1e-6f * static_cast<float>(i % 999);
    return blocks.back().get();
  }
};

backend::PreparedKernel prepared(const std::vector<TensorType>& in, const std::function<Values(Values)>& f) {
  const auto body = ops::body_of(in, f);
  std::vector<TensorType> out;
  for (const ir::Output& o : body->outputs()) out.push_back(body->type(o.value));
  const ir::Attrs attrs;
  const backend::KernelQuery query{ops::fused_def, attrs, in, out, body.get()};
  return backend::choose(backend::cpu::kernel_table(), query)->prepare(query);
}

int64_t elements_of(const benchmark::State& state) { return state.range(0) * 1024; }
int threads_of(const benchmark::State& state) { return static_cast<int>(state.range(1)); }

void count(benchmark::State& state, double bytes_per_element) {
  state.counters["GB/s"] = benchmark::Counter(bytes_per_element * static_cast<double>(elements_of(state)) * 1e-9,
                                              benchmark::Counter::kIsIterationInvariantRate);
}

// p, m, s, g, then the three scalars.
std::vector<void*> adamw_buffers(Memory& memory, int64_t n) {
  std::vector<void*> buffers;
  for (float value : {0.5f, 0.1f, 0.2f, 0.3f}) buffers.push_back(memory.add(n, value));
  for (float value : {0.1f, 0.999f, 1e-8f}) buffers.push_back(memory.add(1, value));
  return buffers;
}

void fused_adamw(benchmark::State& state) {
  const int64_t n = elements_of(state);
  const TensorType full{f32, {n}}, one{f32, {}};
  const backend::PreparedKernel kernel = prepared({full, full, full, full, one, one, one}, [](Values v) {
    const Value m = v[1] + (v[3] - v[1]) * v[4];
    const Value s = v[2] + (v[3] * v[3] - v[2]) * v[4];
    return Values{v[0] * v[5] - m / (sqrt(s) + v[6]), m, s};
  });
  Memory memory;
  std::vector<void*> buffers = adamw_buffers(memory, n);
  for (size_t i = 0; i < 3; ++i) buffers.push_back(buffers[i]);
  buffers.push_back(nullptr);
  for (auto _ : state) run(kernel, buffers.data(), threads_of(state));
  count(state, 28);
}

void adamw_by_hand(benchmark::State& state) {
  Memory memory;
  const std::vector<void*> buffers = adamw_buffers(memory, elements_of(state));
  const auto part = [](const backend::KernelArgs& args, int part, int parts) {
    const int64_t n = *static_cast<const int64_t*>(args.params) / parts, first = n * part;
    const auto at = [&](int i) { return static_cast<float*>(args.buffers[i]); };
    HWY_DYNAMIC_DISPATCH(adamw)
    (at(0) + first, at(1) + first, at(2) + first, at(3) + first, *at(4), *at(5), *at(6), static_cast<size_t>(n));
  };
  const int64_t n = elements_of(state);
  Task task{part, {buffers.data(), &n}};
  for (auto _ : state) base::ThreadPool::shared().run(run_part, &task, threads_of(state) * 4, threads_of(state));
  count(state, 28);
}

// x, gamma, beta, y, the scale of each row.
std::vector<void*> layer_norm_buffers(Memory& memory, int64_t n) {
  return {memory.add(n, 0.5f), memory.add(kWidth, 1),     memory.add(kWidth, 0),
          memory.add(n, 0),    memory.add(n / kWidth, 0), nullptr};
}

void fused_layer_norm(benchmark::State& state) {
  const int64_t n = elements_of(state);
  const TensorType full{f32, {n / kWidth, kWidth}}, row{f32, {kWidth}};
  const backend::PreparedKernel kernel = prepared({full, row, row}, [](Values v) {
    const Value centred = v[0] - sum(v[0], {1}, true) / static_cast<double>(kWidth);
    const Value scale = rsqrt(sum(centred * centred, {1}, true) / static_cast<double>(kWidth) + 1e-5);
    return Values{centred * scale * v[1] + v[2], scale};
  });
  Memory memory;
  const std::vector<void*> buffers = layer_norm_buffers(memory, n);
  for (auto _ : state) run(kernel, buffers.data(), threads_of(state));
  count(state, 8);
}

void layer_norm_by_hand(benchmark::State& state) {
  Memory memory;
  const std::vector<void*> buffers = layer_norm_buffers(memory, elements_of(state));
  const auto part = [](const backend::KernelArgs& args, int part, int parts) {
    const int64_t rows = *static_cast<const int64_t*>(args.params) / kWidth / parts, first = rows * part;
    const auto at = [&](int i) { return static_cast<float*>(args.buffers[i]); };
    HWY_DYNAMIC_DISPATCH(layer_norm)
    (at(0) + first * kWidth, at(1), at(2), at(3) + first * kWidth, at(4) + first, static_cast<size_t>(rows), kWidth);
  };
  const int64_t n = elements_of(state);
  Task task{part, {buffers.data(), &n}};
  for (auto _ : state) base::ThreadPool::shared().run(run_part, &task, threads_of(state) * 4, threads_of(state));
  count(state, 8);
}

// Thousands of elements of a tensor, and threads.
void sizes(benchmark::internal::Benchmark* b) {
  for (int64_t threads : {1, 2}) {
    for (int64_t thousands : {16, 16 * 1024}) b->Args({thousands, threads});
  }
  b->ArgNames({"Ki", "threads"})->UseRealTime()->Repetitions(9)->ReportAggregatesOnly(true);
  b->ComputeStatistics("min", [](const std::vector<double>& v) { return *std::min_element(v.begin(), v.end()); });
}
BENCHMARK(adamw_by_hand)->Apply(sizes);
BENCHMARK(fused_adamw)->Apply(sizes);
BENCHMARK(layer_norm_by_hand)->Apply(sizes);
BENCHMARK(fused_layer_norm)->Apply(sizes);

}  // namespace
}  // namespace aicf::bench

BENCHMARK_MAIN();
#endif
