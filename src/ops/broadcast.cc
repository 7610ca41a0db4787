// broadcast: x repeated to a shape by numpy's rules (axes aligned at the right; extent 1 repeats).
#include <fmt/format.h>

#include "ops/defs.h"
#include "ops/structural.h"

namespace aicf {
namespace ops {
namespace {

std::vector<TensorType> infer(const ir::InferCtx& ctx) {
  const Shape& in = ctx.in[0].shape;
  const Shape shape = shape_attr(ctx, "shape");
  bool fits = in.rank() <= shape.rank();
  for (int i = 1; fits && i <= in.rank(); ++i) {
    const int64_t from = in[in.rank() - i];
    fits = from == 1 || from == shape[shape.rank() - i];
  }
  if (!fits) {
    throw mismatch(ctx, fmt::format("a shape that {} broadcasts to", to_string(in)), to_string(shape),
                   "axes are aligned at the right; only an axis of extent 1 repeats");
  }
  return {{ctx.in[0].dtype, shape}};
}

ir::GradResult grad(const ir::GradCtx& ctx) {
  const Shape shape = ctx.in[0].shape();
  return {sum_to_shape(*ctx.cotangents[0], shape)};
}

ir::Sample sample(const char* name, Shape from, std::vector<int64_t> to) {
  return {.name = name, .inputs = {{f32, from}}, .attrs = {{"shape", std::move(to)}}};
}

std::vector<ir::Sample> samples() {
  std::vector<ir::Sample> all = {
      sample("scalar", {}, {3, 5}),
      sample("rows", {6}, {4, 6}),
      sample("columns", {5, 1}, {5, 7}),
      sample("middle", {3, 1, 4}, {3, 6, 4}),
      sample("outer_and_inner", {1, 3, 1}, {2, 4, 3, 5}),
      sample("same", {2, 3}, {2, 3}),
      sample("size1", {1}, {1, 1}),
      sample("to_empty", {1, 3}, {0, 3}),
      sample("empty", {0}, {2, 0}),
      sample("rank8", {2, 1, 2}, {2, 1, 2, 1, 2, 2, 3, 2}),
      sample("rows_in_parts", {1, 70}, {310, 70}),
      sample("middle_in_parts", {5, 1, 70}, {5, 61, 70}),
  };
  ir::Sample by_hand = sample("by_hand", {2, 1}, {2, 2, 2});
  by_hand.values = {{0, Tensor::of<float>({2, 1}, {0, 1})}};
  by_hand.expected = {{0, 0, 1, 1, 0, 0, 1, 1}};
  all.push_back(by_hand);
  return all;
}

}  // namespace

const ir::OpDef broadcast_def = {
    .name = "broadcast",
    .num_inputs = 1,
    .operand_names = {"x"},
    .infer = infer,
    .grad = grad,
    .attrs = {{"shape", ir::AttrSpec::Kind::ints, true}},
    .dtypes = all_dtypes(),
    .samples = samples,
    .precision = ir::PrecisionClass::follow,
};

}  // namespace ops

Value broadcast(Value x, const Shape& shape) {
  return ir::emit(ops::broadcast_def, {x}, {{"shape", ops::to_vector(shape)}});
}

}  // namespace aicf
