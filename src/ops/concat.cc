// concat: tensors laid end to end along an axis.
#include <fmt/format.h>

#include "ops/defs.h"
#include "ops/structural.h"

namespace aicf {
namespace ops {
namespace {

std::vector<TensorType> infer(const ir::InferCtx& ctx) {
  const TensorType& first = ctx.in[0];
  const int axis = axis_attr(ctx, first.shape.rank());
  int64_t extent = 0;
  for (const TensorType& part : ctx.in) {
    if (part.dtype != first.dtype || part.shape.rank() != first.shape.rank() ||
        with_dim(part.shape, axis, 0) != with_dim(first.shape, axis, 0)) {
      throw mismatch(ctx, fmt::format("parts that differ from {} on axis {} alone", to_string(first), axis),
                     to_string(part));
    }
    if (__builtin_add_overflow(extent, part.shape[axis], &extent)) {
      throw mismatch(ctx, "extents whose sum fits 64 bits", "more");
    }
  }
  return {{first.dtype, with_dim(first.shape, axis, extent)}};
}

ir::GradResult grad(const ir::GradCtx& ctx) {
  const int axis = static_cast<int>(ctx.op.attrs.get_int("axis"));
  std::vector<int64_t> sizes;
  for (const Value& part : ctx.in) sizes.push_back(part.shape()[axis]);
  const std::vector<Value> pieces = split(*ctx.cotangents[0], sizes, axis);
  return {pieces.begin(), pieces.end()};
}

ir::Sample sample(const char* name, std::vector<Shape> parts, int64_t axis) {
  ir::Sample s = {.name = name, .attrs = {{"axis", axis}}};
  for (const Shape& part : parts) s.inputs.push_back({f32, part});
  return s;
}

std::vector<ir::Sample> samples() {
  std::vector<ir::Sample> all = {
      sample("vectors", {{3}, {4}}, 0),         sample("rows", {{2, 5}, {1, 5}, {3, 5}}, 0),
      sample("columns", {{4, 2}, {4, 3}}, 1),   sample("middle", {{2, 1, 3}, {2, 4, 3}, {2, 2, 3}}, 1),
      sample("one_part", {{2, 3}}, 1),          sample("empty_part", {{2, 3}, {2, 0}, {2, 1}}, 1),
      sample("all_empty", {{0, 3}, {0, 2}}, 1), sample("rank4", {{2, 3, 2, 2}, {2, 3, 2, 1}}, 3),
      sample("size1", {{1, 1}, {1, 1}}, 0),     sample("in_parts", {{150, 61}, {150, 70}}, 1),
  };
  ir::Sample twice = sample("repeated_operand", {{2, 3}, {2, 3}, {2, 3}}, 1);
  twice.same_as = {-1, 0, -1};
  all.push_back(twice);
  ir::Sample by_hand = sample("by_hand", {{2, 1}, {2, 2}}, 1);
  by_hand.values = {{0, Tensor::of<float>({2, 1}, {0, 1})}, {1, Tensor::of<float>({2, 2}, {2, 3, 4, 5})}};
  by_hand.expected = {{0, 2, 3, 1, 4, 5}};
  all.push_back(by_hand);
  return all;
}

}  // namespace

const ir::OpDef concat_def = {
    .name = "concat",
    .num_inputs = ir::kVariadic,
    .operand_names = {"part"},
    .infer = infer,
    .grad = grad,
    .attrs = {{"axis", ir::AttrSpec::Kind::integer, true}},
    .dtypes = all_dtypes(),
    .samples = samples,
    .precision = ir::PrecisionClass::follow,
};

}  // namespace ops

Value concat(const std::vector<Value>& parts, int axis) {
  const int rank = parts.empty() ? 0 : parts[0].shape().rank();
  const int64_t normal = parts.empty() ? axis : ops::normalize_axis(ops::concat_def, axis, rank);
  return ir::emit(ops::concat_def, parts, {{"axis", normal}});
}

}  // namespace aicf
