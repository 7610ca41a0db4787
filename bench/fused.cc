// Fused regions on the CPU beside two others, in turns in one run: loops written by hand for the same vectors (AdamW in
// place and layer norm, in the second-level cache and from memory), and the region's own ops one by one (short rows,
// transposed operands). With other work on the machine the least of many repetitions is the figure.
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
#include <fmt/core.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <functional>
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
double seconds_each = 1;  // for a line of the table
std::string only;         // lines that have this in their name

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
  std::vector<std::unique_ptr<char[]>> blocks;
  void* add_bytes(size_t bytes) {
    constexpr size_t kAlignment = 256;  // as the planner's
    blocks.push_back(std::make_unique<char[]>(bytes + kAlignment));
    const auto at = reinterpret_cast<uintptr_t>(blocks.back().get());
    return reinterpret_cast<void*>((at + kAlignment - 1) / kAlignment * kAlignment);
  }
  float* add(int64_t elements, float value) {
    auto* const x = static_cast<float*>(add_bytes(static_cast<size_t>(elements) * sizeof(float)));
    for (int64_t i = 0; i < elements; ++i) x[i] = value + 1e-6f * static_cast<float>(i % 999);
    return x;
  }
};

// The least and the middle of each one's times, in microseconds.
struct Times {
  double least = 0, middle = 0;
};
struct Pair {
  Times a, b;
};

Pair in_turns(const std::function<void()>& a, const std::function<void()>& b) {
  using Clock = std::chrono::steady_clock;
  std::vector<double> times[2];
  const auto time = [&](const std::function<void()>& f) {
    const auto start = Clock::now();
    f();
    return std::chrono::duration<double>(Clock::now() - start).count();
  };
  a(), b();
  for (const auto start = Clock::now();
       times[0].size() < 5 || std::chrono::duration<double>(Clock::now() - start).count() < seconds_each;) {
    times[0].push_back(time(a));
    times[1].push_back(time(b));
  }
  const auto of = [](std::vector<double>& v) {
    std::sort(v.begin(), v.end());
    return Times{v.front() * 1e6, v[v.size() / 2] * 1e6};
  };
  return {of(times[0]), of(times[1])};
}

void print_head(const char* first, const char* second) {
  fmt::print("\n{:<34} {:>12} {:>12} {:>8} {:>8}   (µs, least; region / other, least and middle)\n", "", first, second,
             "ratio", "middle");
}
bool is_wanted(const std::string& name) { return name.find(only) != std::string::npos; }

void print_row(const std::string& name, const Pair& t) {
  fmt::print("{:<34} {:>12.1f} {:>12.1f} {:>8.2f} {:>8.2f}\n", name, t.a.least, t.b.least, t.b.least / t.a.least,
             t.b.middle / t.a.middle);
  std::fflush(stdout);
}

struct Region {
  std::shared_ptr<const ir::Graph> body;
  std::vector<TensorType> in, out;
  backend::PreparedKernel kernel;
};

backend::PreparedKernel prepared(const ir::OpDef& def, const ir::Attrs& attrs, const std::vector<TensorType>& in,
                                 const std::vector<TensorType>& out, const ir::Graph* body) {
  const backend::KernelQuery query{def, attrs, in, out, body};
  return backend::choose(backend::cpu::kernel_table(), query)->prepare(query);
}

Region region_of(const std::vector<TensorType>& in, const std::function<Values(Values)>& f) {
  Region region{ops::body_of(in, f), in, {}, {}};
  for (const ir::Output& o : region.body->outputs()) region.out.push_back(region.body->type(o.value));
  region.kernel = prepared(ops::fused_def, {}, in, region.out, region.body.get());
  return region;
}

// --- by hand ------------------------------------------------------------------------------------------------------

void time_adamw(int64_t n, int threads) {
  const std::string name = fmt::format("AdamW, {} Ki, {} thread(s)", n / 1024, threads);
  if (!is_wanted(name)) return;
  const TensorType full{f32, {n}}, one{f32, {}};
  const Region region = region_of({full, full, full, full, one, one, one}, [](Values v) {
    const Value m = v[1] + (v[3] - v[1]) * v[4];
    const Value s = v[2] + (v[3] * v[3] - v[2]) * v[4];
    return Values{v[0] * v[5] - m / (sqrt(s) + v[6]), m, s};
  });
  Memory memory;
  std::vector<void*> buffers;
  for (float value : {0.5f, 0.1f, 0.2f, 0.3f}) buffers.push_back(memory.add(n, value));
  for (float value : {0.1f, 0.999f, 1e-8f}) buffers.push_back(memory.add(1, value));
  for (size_t i = 0; i < 3; ++i) buffers.push_back(buffers[i]);
  buffers.push_back(memory.add_bytes(region.kernel.workspace_bytes));
  const auto part = [](const backend::KernelArgs& args, int part, int parts) {
    const int64_t n = *static_cast<const int64_t*>(args.params) / parts, first = n * part;
    const auto at = [&](int i) { return static_cast<float*>(args.buffers[i]); };
    HWY_DYNAMIC_DISPATCH(adamw)
    (at(0) + first, at(1) + first, at(2) + first, at(3) + first, *at(4), *at(5), *at(6), static_cast<size_t>(n));
  };
  Task task{part, {buffers.data(), &n}};
  print_row(name, in_turns([&] { base::ThreadPool::shared().run(run_part, &task, threads * 4, threads); },
                           [&] { run(region.kernel, buffers.data(), threads); }));
}

Values layer_norm_of(Values v, int64_t width) {
  const Value centred = v[0] - sum(v[0], {1}, true) / static_cast<double>(width);
  const Value scale = rsqrt(sum(centred * centred, {1}, true) / static_cast<double>(width) + 1e-5);
  return {centred * scale * v[1] + v[2], scale};
}

void time_layer_norm(int64_t n, int threads) {
  const std::string name = fmt::format("layer_norm, {} Ki, {} thread(s)", n / 1024, threads);
  if (!is_wanted(name)) return;
  const TensorType full{f32, {n / kWidth, kWidth}}, row{f32, {kWidth}};
  const Region region = region_of({full, row, row}, [](Values v) { return layer_norm_of(v, kWidth); });
  Memory memory;
  const std::vector<void*> buffers = {memory.add(n, 0.5f),       memory.add(kWidth, 1),
                                      memory.add(kWidth, 0),     memory.add(n, 0),
                                      memory.add(n / kWidth, 0), memory.add_bytes(region.kernel.workspace_bytes)};
  const auto part = [](const backend::KernelArgs& args, int part, int parts) {
    const int64_t rows = *static_cast<const int64_t*>(args.params) / kWidth / parts, first = rows * part;
    const auto at = [&](int i) { return static_cast<float*>(args.buffers[i]); };
    HWY_DYNAMIC_DISPATCH(layer_norm)
    (at(0) + first * kWidth, at(1), at(2), at(3) + first * kWidth, at(4) + first, static_cast<size_t>(rows), kWidth);
  };
  Task task{part, {buffers.data(), &n}};
  print_row(name, in_turns([&] { base::ThreadPool::shared().run(run_part, &task, threads * 4, threads); },
                           [&] { run(region.kernel, buffers.data(), threads); }));
}

// --- one by one ---------------------------------------------------------------------------------------------------

// The ops of a region, each by its own kernel. A reshape is its operand.
struct OneByOne {
  struct Launch {
    backend::PreparedKernel kernel;
    std::vector<void*> buffers;
  };
  std::vector<Launch> launches;

  OneByOne(const Region& region, const std::vector<void*>& operands, Memory& memory) {
    const ir::Graph& body = *region.body;
    std::vector<void*> at(static_cast<size_t>(body.num_values()));
    size_t operand = 0;
    for (ir::ValueId v = 0; v < body.num_values(); ++v) {
      const ir::ValueInfo& info = body.value(v);
      void*& place = at[static_cast<size_t>(v)];
      if (body.is_external(v)) {
        place = operands[operand++];
      } else if (info.role == ir::Role::constant) {
        place = const_cast<void*>(static_cast<const void*>(info.data->data()));
      } else {
        place = memory.add_bytes(info.type.bytes());
      }
    }
    for (const ir::Op& op : body.ops()) {
      if (op.def == &ops::reshape_def) {
        at[static_cast<size_t>(op.outputs[0])] = at[static_cast<size_t>(op.inputs[0])];
        continue;
      }
      std::vector<TensorType> in, out;
      Launch launch;
      for (ir::ValueId v : op.inputs) in.push_back(body.type(v)), launch.buffers.push_back(at[static_cast<size_t>(v)]);
      for (ir::ValueId v : op.outputs)
        out.push_back(body.type(v)), launch.buffers.push_back(at[static_cast<size_t>(v)]);
      launch.kernel = prepared(*op.def, op.attrs, in, out, nullptr);
      launch.buffers.push_back(memory.add_bytes(launch.kernel.workspace_bytes));
      launches.push_back(std::move(launch));
    }
  }
  void run_all() const {
    for (const Launch& l : launches) run(l.kernel, l.buffers.data(), 1);
  }
};

void time_ops(const std::string& name, const std::vector<TensorType>& in, const std::function<Values(Values)>& f) {
  if (!is_wanted(name)) return;
  const Region region = region_of(in, f);
  Memory memory;
  std::vector<void*> buffers;
  for (const TensorType& type : in) buffers.push_back(memory.add(type.shape.elements(), 0.5f));
  const OneByOne ops(region, buffers, memory);
  for (const TensorType& type : region.out) buffers.push_back(memory.add_bytes(type.bytes()));
  buffers.push_back(memory.add_bytes(region.kernel.workspace_bytes));
  print_row(name, in_turns([&] { ops.run_all(); }, [&] { run(region.kernel, buffers.data(), 1); }));
}

void time_short_rows() {
  constexpr int64_t kElements = 256 * 1024;
  for (int64_t width : {16, 32, 50, 64, 65, 128, 768}) {
    const TensorType full{f32, {kElements / width, width}}, row{f32, {width}};
    time_ops(fmt::format("softmax, rows of {}", width), {full}, [](Values v) {
      const Value e = exp(v[0] - max(v[0], {1}, true));
      return Values{e / sum(e, {1}, true)};
    });
    time_ops(fmt::format("layer_norm, rows of {}", width), {full, row, row},
             [&](Values v) { return layer_norm_of(v, width); });
    time_ops(fmt::format("scaled and shifted, rows of {}", width), {full, row, row},
             [](Values v) { return Values{v[0] * v[1] + v[2]}; });
    time_ops(fmt::format("rows less their mean, of {}", width), {full},
             [&](Values v) { return Values{v[0] - sum(v[0], {1}, true) / static_cast<double>(width)}; });
  }
}

void time_transposed() {
  for (int64_t n : {64, 512, 2048}) {
    const TensorType full{f32, {n, n}};
    time_ops(fmt::format("a + transpose(b), {}²", n), {full, full}, [](Values v) {
      return Values{v[0] + transpose(v[1], {1, 0})};
    });
    time_ops(fmt::format("softmax of a transpose, {}²", n), {full}, [](Values v) {
      const Value x = transpose(v[0], {1, 0}), e = exp(x - max(x, {1}, true));
      return Values{e / sum(e, {1}, true)};
    });
  }
  const TensorType heads{f32, {12, 64, 4, 32}}, swapped{f32, {12, 4, 64, 32}};
  time_ops("heads apart, scaled", {heads, swapped}, [](Values v) {
    return Values{transpose(v[0], {0, 2, 1, 3}) * 0.125 + v[1]};
  });
  // What lies between layers of a GPT.
  const TensorType qkv{f32, {768, 384}}, bias{f32, {384}}, apart{f32, {3, 12, 4, 64, 32}};
  time_ops("bias, heads apart", {qkv, bias}, [](Values v) {
    const Value x = transpose(reshape(v[0] + v[1], {12, 64, 3, 4, 32}), {2, 0, 3, 1, 4});
    return Values{slice(x, {0, 0, 0, 0, 0}, {1, 12, 4, 64, 32}), slice(x, {1, 0, 0, 0, 0}, {2, 12, 4, 64, 32}),
                  slice(x, {2, 0, 0, 0, 0}, {3, 12, 4, 64, 32})};
  });
  time_ops("heads together, sum over rows", {apart}, [](Values v) {
    const Value x = reshape(transpose(v[0], {1, 3, 0, 2, 4}), {768, 384});
    return Values{x, sum(x, {0})};
  });
  const TensorType wide{f32, {768, 512}}, wide_bias{f32, {512}};
  time_ops("bias, gelu and its slope", {wide, wide_bias}, [](Values v) {
    const Value x = v[0] + v[1], squared = x * x;
    const Value p = (tanh(x * 0.7978846 * (squared * 0.044715 + 1.0)) + 1.0) * 0.5;
    const Value slope = x * (p * (1.0 - p) * ((-maximum(-squared, squared * 0.0) * 0.134145 + 1.0) * 1.5957692)) + p;
    return Values{x * p, slope};
  });
  time_ops("product, sum over rows", {wide, wide}, [](Values v) {
    const Value x = v[0] * v[1];
    return Values{x, sum(x, {0})};
  });
}

}  // namespace
}  // namespace aicf::bench

// Arguments: seconds for a line; a part of the names of the lines wanted.
int main(int argc, char** argv) {
  using namespace aicf::bench;
  if (argc > 1) seconds_each = std::atof(argv[1]);
  if (argc > 2) only = argv[2];
  print_head("by hand", "region");
  for (int64_t ki : {16, 16 * 1024}) {
    for (int threads : {1, 2}) {
      time_adamw(ki * 1024, threads);
      time_layer_norm(ki * 1024, threads);
    }
  }
  print_head("one by one", "region");
  time_short_rows();
  time_transposed();
}
#endif
