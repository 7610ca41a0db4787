// Bandwidth of pointwise ops on 64 MiB tensors beside that of a copy by the same threads, and the time of f32
// functions.
#include <fmt/core.h>

#include <algorithm>
#include <chrono>
#include <cstring>
#include <memory>
#include <vector>

#include "backend/cpu/kernels.h"
#include "base/thread_pool.h"
#include "ops/defs.h"

namespace aicf {
namespace {

constexpr int64_t kBytes = 64 << 20;
constexpr int64_t kPart = 32 * 1024;

template <class F>
double best_seconds(F f) {
  double best = 1e9;
  for (int i = 0; i < 7; ++i) {
    const auto start = std::chrono::steady_clock::now();
    f();
    best = std::min(best, std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count());
  }
  return best;
}

struct Task {
  backend::CpuKernelFn fn;
  backend::KernelArgs args;
};

void run_part(void* ctx, int part, int parts) {
  const base::FlushSubnormals flush;
  const auto& task = *static_cast<const Task*>(ctx);
  task.fn(task.args, part, parts);
}

void copy_part(const backend::KernelArgs& args, int part, int parts) {
  const int64_t each = kBytes / parts;
  std::memcpy(static_cast<char*>(args.buffers[1]) + part * each, static_cast<char*>(args.buffers[0]) + part * each,
              each);
}

double seconds(const ir::OpDef& def, std::vector<TensorType> in, const TensorType& out, ir::Attrs attrs, void** buffers,
               int threads) {
  const std::vector<TensorType> outs = {out};
  const backend::KernelQuery query{def, attrs, in, outs};
  for (const backend::Kernel& k : backend::cpu::kernel_table()) {
    if (std::string_view(k.op) != def.name || !k.accepts(query)) continue;
    const backend::PreparedKernel prepared = k.prepare(query);
    std::vector<char> workspace(prepared.workspace_bytes + 1);
    std::vector<void*> all(buffers, buffers + in.size());
    all.push_back(buffers[3]);
    all.push_back(workspace.data());
    return best_seconds([&] {
      for (const backend::CpuPhase& phase : prepared.phases) {
        Task task{phase.fn, {all.data(), prepared.params.get()}};
        base::ThreadPool::shared().run(run_part, &task, phase.parts, threads);
      }
    });
  }
  throw InternalError("no kernel");
}

void report(const char* name, double bytes, double time, double copy_rate) {
  fmt::print("{:<24} {:8.2f} ms {:8.2f} GB/s {:5.0f} % of copy  {:6.3f} ns/element\n", name, time * 1e3,
             bytes / time * 1e-9, 100 * bytes / time / copy_rate, time * 1e9 / (kBytes / 4));
}

void measure(int threads, void** buffers) {
  fmt::print("{} thread(s)\n", threads);
  Task copy{copy_part, {buffers + 2, nullptr}};
  const double copy_time =
      best_seconds([&] { base::ThreadPool::shared().run(run_part, &copy, kBytes / 4 / kPart, threads); });
  const double rate = 2.0 * kBytes / copy_time;
  report("copy", 2.0 * kBytes, copy_time, rate);
  const TensorType full{f32, {kBytes / 4 / 1024, 1024}}, row{f32, {1024}}, column{f32, {kBytes / 4 / 1024, 1}};
  const auto binary = [&](const char* name, const ir::OpDef& def, const TensorType& b) {
    report(name, static_cast<double>(2 * full.bytes() + b.bytes()), seconds(def, {full, b}, full, {}, buffers, threads),
           rate);
  };
  binary("add", ops::add_def, full);
  binary("mul", ops::mul_def, full);
  binary("add scalar", ops::add_def, {f32, {}});
  binary("add row", ops::add_def, row);
  binary("add column", ops::add_def, column);
#define AICF_POINTWISE(name, arity, domain)              \
  if (arity == 1 && std::string_view(#domain) == "real") \
    report(#name, 2.0 * kBytes, seconds(ops::name##_def, {full}, full, {}, buffers, threads), rate);
#include "ops/ops.def"
  binary("pow", ops::pow_def, full);
  const TensorType half{bf16, full.shape};
  report("add bf16", 1.5 * kBytes, seconds(ops::add_def, {half, half}, half, {}, buffers, threads), rate);
  const auto sum = [&](const char* name, const ir::OpDef& def, const TensorType& x, int64_t axis, const Shape& out) {
    report(name, kBytes, seconds(def, {x}, {f32, out}, {{"axes", std::vector<int64_t>{axis}}}, buffers, threads), rate);
  };
  const int64_t n = kBytes / 4;
  sum("reduce_sum all", ops::reduce_sum_def, {f32, {n}}, 0, {});
  sum("reduce_sum rows of 1024", ops::reduce_sum_def, full, 1, {n / 1024});
  sum("reduce_sum rows of 16", ops::reduce_sum_def, {f32, {n / 16, 16}}, 1, {n / 16});
  sum("reduce_sum columns", ops::reduce_sum_def, full, 0, {1024});
  sum("reduce_sum 64 columns", ops::reduce_sum_def, {f32, {n / 64, 64}}, 0, {64});
  sum("reduce_max rows of 1024", ops::reduce_max_def, full, 1, {n / 1024});
}

}  // namespace
}  // namespace aicf

int main() {
  std::vector<std::unique_ptr<float[]>> memory;
  void* buffers[4];
  for (void*& buffer : buffers) {
    memory.push_back(std::make_unique<float[]>(aicf::kBytes / 4));
    for (int64_t i = 0; i < aicf::kBytes / 4; ++i) memory.back()[i] = 0.001f * static_cast<float>(i % 4096) + 0.5f;
    buffer = memory.back().get();
  }
  for (int threads : {1, 2}) aicf::measure(threads, buffers);
}
