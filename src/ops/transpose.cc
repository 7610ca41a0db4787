// transpose: axes permuted; axis i of the result is axis perm[i] of x.
#include <fmt/format.h>

#include "ops/defs.h"
#include "ops/structural.h"

namespace aicf {
namespace ops {
namespace {

std::vector<TensorType> infer(const ir::InferCtx& ctx) {
  const Shape& in = ctx.in[0].shape;
  const std::vector<int64_t> perm = ctx.attrs.get_ints("perm");
  const auto rank = static_cast<size_t>(in.rank());
  std::vector<int64_t> dims;
  std::vector<bool> seen(rank, false);
  for (int64_t axis : perm) {
    if (axis < 0 || axis >= in.rank() || seen[axis]) break;
    seen[axis] = true;
    dims.push_back(in[static_cast<int>(axis)]);
  }
  if (perm.size() != rank || dims.size() != rank) {
    throw mismatch(ctx, fmt::format("a permutation of the {} axes", rank), list_text(perm));
  }
  return {{ctx.in[0].dtype, to_shape(dims)}};
}

ir::GradResult grad(const ir::GradCtx& ctx) {
  const std::vector<int64_t> perm = ctx.op.attrs.get_ints("perm");
  std::vector<int> inverse(perm.size());
  for (size_t i = 0; i < perm.size(); ++i) inverse[perm[i]] = static_cast<int>(i);
  return {transpose(*ctx.cotangents[0], inverse)};
}

ir::Sample sample(const char* name, Shape shape, std::vector<int64_t> perm) {
  return {.name = name, .inputs = {{f32, shape}}, .attrs = {{"perm", std::move(perm)}}};
}

std::vector<ir::Sample> samples() {
  std::vector<ir::Sample> all = {
      sample("rank0", {}, {}),
      sample("rank1", {7}, {0}),
      sample("matrix", {5, 3}, {1, 0}),
      sample("tiles", {67, 45}, {1, 0}),
      sample("identity", {3, 4, 5}, {0, 1, 2}),
      sample("batched", {3, 17, 40}, {0, 2, 1}),
      sample("heads", {2, 9, 3, 8}, {0, 2, 1, 3}),
      sample("reversed", {3, 4, 5, 2}, {3, 2, 1, 0}),
      sample("rotated", {4, 33, 6}, {2, 0, 1}),
      sample("size1", {1, 6, 1, 5}, {3, 2, 1, 0}),
      sample("empty", {3, 0, 2}, {2, 1, 0}),
      sample("matrix_in_parts", {130, 171}, {1, 0}),
      sample("batched_in_parts", {5, 71, 67}, {0, 2, 1}),
      sample("rows_in_parts", {31, 7, 99}, {1, 0, 2}),
      sample("rank8", {2, 1, 3, 2, 1, 2, 3, 2}, {7, 5, 3, 1, 6, 4, 2, 0}),
  };
  ir::Sample by_hand = sample("by_hand", {2, 3}, {1, 0});
  by_hand.values = {{0, Tensor::of<float>({2, 3}, {0, 1, 2, 3, 4, 5})}};
  by_hand.expected = {{0, 3, 1, 4, 2, 5}};
  all.push_back(by_hand);
  return all;
}

}  // namespace

const ir::OpDef transpose_def = {
    .name = "transpose",
    .num_inputs = 1,
    .operand_names = {"x"},
    .infer = infer,
    .grad = grad,
    .attrs = {{"perm", ir::AttrSpec::Kind::ints, true}},
    .dtypes = all_dtypes(),
    .samples = samples,
    .precision = ir::PrecisionClass::follow,
};

}  // namespace ops

Value transpose(Value x, const std::vector<int>& permutation) {
  std::vector<int64_t> perm(permutation.begin(), permutation.end());
  if (perm.empty()) {
    for (int i = x.shape().rank() - 1; i >= 0; --i) perm.push_back(i);
  }
  return ir::emit(ops::transpose_def, {x}, {{"perm", perm}});
}

}  // namespace aicf
