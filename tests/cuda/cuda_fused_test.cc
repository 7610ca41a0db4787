// Fused regions on the GPU against the CPU, beyond the samples: random ones, and shapes that are shared out in other
// ways.
#include "aicf/ops.h"
#include "cuda/kernel_check.h"
#include "ops/defs.h"
#include "ops/random_region.h"
#include "ops/region_op.h"

namespace aicf::test {
namespace {

void run(KernelCheck& check) {
  check.run();
  if (compile_only()) GTEST_SKIP() << "compiled only";
}

TEST(CudaFused, RandomRegions) {
  KernelCheck check;
  each_exact_region(300, [&](const OpCase& c) { check.add(c); });
  run(check);
}

using Values = std::vector<Value>;

Value widened(Value x) { return x.dtype() == f32 ? x : cast(x, f32); }

Values softmax_of(Values v) {
  const Value x = widened(v[0]), e = exp(x - max(x, {1}, true));
  return {cast(e / sum(e, {1}, true), v[0].dtype())};
}

// The gradients of an operand and of a scale, with sums over the rows.
Values norm_gradient(Values v) {
  const Value x = widened(v[0]), dy = widened(v[1]), normal = x * v[3], g = dy * v[2];
  return {cast((g - normal * sum(g * normal, {1}, true)) * v[3], v[0].dtype()), sum(dy * normal, {0}), sum(dy, {0})};
}

TEST(CudaFused, RowsOfEveryLength) {
  KernelCheck check;
  const auto add = [&](std::vector<TensorType> in, const std::function<Values(Values)>& f) {
    ir::Sample sample;
    sample.name = "rows";
    sample.region = ops::body_of(in, f);
    sample.inputs = in;
    check.add({&ops::fused_def, sample, in[0].dtype});
  };
  for (DType dtype : {f32, bf16}) {
    for (const auto& [rows, n] : std::vector<std::pair<int64_t, int64_t>>{{70000, 3},
                                                                          {17000, 24},
                                                                          {4300, 128},
                                                                          {3000, 768},
                                                                          {1000, 1023},
                                                                          {500, 1600},
                                                                          {130, 4096},
                                                                          {20, 17000},
                                                                          {9, 50304},
                                                                          {2, 70002},
                                                                          {1, 1100000}}) {
      add({{dtype, {rows, n}}}, softmax_of);
      if (n < 100000) add({{dtype, {rows, n}}, {dtype, {rows, n}}, {f32, {n}}, {f32, {rows, 1}}}, norm_gradient);
    }
  }
  run(check);
}

}  // namespace
}  // namespace aicf::test
