// iota: 0, 1, 2, … along one axis. It has no operands.
#include <fmt/format.h>

#include "ops/defs.h"
#include "ops/structural.h"

namespace aicf {
namespace ops {
namespace {

// The largest extent whose indices all have a value of the dtype (rounded, in a float).
int64_t longest(DType dtype) {
  switch (dtype) {
    case DType::u8:
      return 256;
    case DType::i32:
      return int64_t{1} << 31;
    case DType::f16:
      return 65520;  // 65519 is the last that does not round to infinity
    default:
      return INT64_MAX;
  }
}

std::vector<TensorType> infer(const ir::InferCtx& ctx) {
  const DType dtype = ctx.attrs.get_dtype("dtype");
  const Shape shape = shape_attr(ctx, "shape");
  const int axis = axis_attr(ctx, shape.rank());
  if (dtype == DType::boolean) throw mismatch(ctx, "a number type", "bool");
  if (shape[axis] > longest(dtype)) {
    throw mismatch(ctx, fmt::format("at most {} elements along the axis in {}", longest(dtype), name_of(dtype)),
                   fmt::format("{}", shape[axis]));
  }
  return {{dtype, shape}};
}

ir::Sample sample(const char* name, std::vector<int64_t> shape, int64_t axis) {
  return {.name = name, .attrs = {{"axis", axis}, {"dtype", f32}, {"shape", std::move(shape)}}};
}

std::vector<ir::Sample> samples() {
  std::vector<ir::Sample> all = {
      sample("vector", {200}, 0),        sample("rows", {3, 4}, 0),  sample("middle", {2, 5, 3}, 1),
      sample("rank4", {2, 3, 2, 5}, 3),  sample("size1", {1, 1}, 1), sample("empty", {3, 0}, 0),
      sample("in_parts", {311, 150}, 1),
  };
  ir::Sample by_hand = sample("by_hand", {2, 3}, 1);
  by_hand.expected = {{0, 1, 2, 0, 1, 2}};
  all.push_back(by_hand);
  return all;
}

}  // namespace

const ir::OpDef iota_def = {
    .name = "iota",
    .num_inputs = 0,
    .infer = infer,
    .grad = ir::zero_gradient,
    .attrs = {{"dtype", ir::AttrSpec::Kind::dtype, true},
              {"shape", ir::AttrSpec::Kind::ints, true},
              {"axis", ir::AttrSpec::Kind::integer, true}},
    .dtypes = {f32, f64, bf16, f16, i64, i32, u8},
    .samples = samples,
    .precision = ir::PrecisionClass::follow,
};

}  // namespace ops

Value iota(Value like, DType dtype, const Shape& shape, int axis) {
  if (!like.valid()) throw Error("iota(): expected a value of the graph to build in, got an empty one");
  const int64_t normal = ops::normalize_axis(ops::iota_def, axis, shape.rank());
  ir::Graph& graph = *like.graph();
  const ir::OpId op =
      graph.add_op(ops::iota_def, {}, {{"axis", normal}, {"dtype", dtype}, {"shape", ops::to_vector(shape)}});
  return graph.handle(graph.op(op).outputs[0]);
}

}  // namespace aicf
