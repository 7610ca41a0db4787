// split: x cut along an axis into pieces of the sizes given; the inverse of concat. Each piece is a slice.
#include <fmt/format.h>

#include "ops/defs.h"
#include "ops/structural.h"

namespace aicf {
namespace ops {
namespace {

std::vector<TensorType> infer(const ir::InferCtx& ctx) {
  const TensorType& in = ctx.in[0];
  const int axis = axis_attr(ctx, in.shape.rank());
  const std::vector<int64_t> sizes = ctx.attrs.get_ints("sizes");
  int64_t rest = in.shape[axis];
  bool fits = !sizes.empty();
  for (int64_t size : sizes) {
    fits = fits && size >= 0 && size <= rest;
    if (fits) rest -= size;
  }
  if (!fits || rest != 0) {
    throw mismatch(ctx, fmt::format("sizes that add up to {}, the extent of axis {}", in.shape[axis], axis),
                   list_text(sizes));
  }
  std::vector<TensorType> out;
  for (int64_t size : sizes) out.push_back({in.dtype, with_dim(in.shape, axis, size)});
  return out;
}

std::vector<Value> expand(const ir::ExpandCtx& ctx) {
  const Value x = ctx.in[0];
  const auto axis = static_cast<size_t>(ctx.op.attrs.get_int("axis"));
  std::vector<int64_t> start(static_cast<size_t>(x.shape().rank()), 0), limit = to_vector(x.shape());
  std::vector<Value> pieces;
  for (int64_t size : ctx.op.attrs.get_ints("sizes")) {
    limit[axis] = start[axis] + size;
    pieces.push_back(slice(x, start, limit));
    start[axis] = limit[axis];
  }
  return pieces;
}

ir::GradResult grad(const ir::GradCtx& ctx) {
  std::vector<Value> pieces;
  for (size_t i = 0; i < ctx.out.size(); ++i) pieces.push_back(ctx.cotangent(static_cast<int>(i)));
  return {concat(pieces, static_cast<int>(ctx.op.attrs.get_int("axis")))};
}

ir::Sample sample(const char* name, Shape shape, std::vector<int64_t> sizes, int64_t axis, int unused = -1) {
  return {.name = name,
          .inputs = {{f32, shape}},
          .attrs = {{"axis", axis}, {"sizes", std::move(sizes)}},
          .unused_output = unused};
}

std::vector<ir::Sample> samples() {
  std::vector<ir::Sample> all = {
      sample("vector", {6}, {2, 2, 2}, 0),
      sample("first_unused", {6}, {2, 2, 2}, 0, 0),
      sample("middle_unused", {4, 5}, {1, 2, 2}, 1, 1),
      sample("last_unused", {4, 5}, {3, 1}, 0, 1),
      sample("middle_axis", {2, 7, 3}, {3, 4}, 1),
      sample("one_piece", {2, 3}, {3}, 1),
      sample("empty_piece", {2, 3}, {1, 0, 2}, 1),
      sample("size1", {1}, {1}, 0),
      sample("empty", {0, 3}, {1, 2}, 1),
      sample("rank4", {2, 3, 2, 4}, {1, 3}, 3),
      sample("in_parts", {150, 131}, {61, 70}, 1),
  };
  ir::Sample by_hand = sample("by_hand", {2, 3}, {1, 2}, 1);
  by_hand.values = {{0, Tensor::of<float>({2, 3}, {0, 1, 2, 3, 4, 5})}};
  by_hand.expected = {{0, 3}, {1, 2, 4, 5}};
  all.push_back(by_hand);
  return all;
}

}  // namespace

const ir::OpDef split_def = {
    .name = "split",
    .num_inputs = 1,
    .operand_names = {"x"},
    .infer = infer,
    .grad = grad,
    .expand = expand,
    .flags = ir::kComposite,
    .attrs = {{"axis", ir::AttrSpec::Kind::integer, true}, {"sizes", ir::AttrSpec::Kind::ints, true}},
    .dtypes = all_dtypes(),
    .samples = samples,
    .precision = ir::PrecisionClass::follow,
};

}  // namespace ops

std::vector<Value> split(Value x, const std::vector<int64_t>& sizes, int axis) {
  const int64_t normal = ops::normalize_axis(ops::split_def, axis, x.shape().rank());
  return ir::emit_all(ops::split_def, {x}, {{"axis", normal}, {"sizes", sizes}});
}

std::vector<Value> split(Value x, int pieces, int axis) {
  const int normal = ops::normalize_axis(ops::split_def, axis, x.shape().rank());
  const int64_t extent = x.shape()[normal];
  if (pieces < 1 || extent % pieces != 0) {
    throw Error(fmt::format("split({}): expected a number of pieces that divides {}, the extent of axis {}, got {}",
                            to_string(x.type()), extent, normal, pieces),
                "give the sizes instead: split(x, {a, b, …}, axis)");
  }
  return split(x, std::vector<int64_t>(pieces, extent / pieces), normal);
}

}  // namespace aicf
