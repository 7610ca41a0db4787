// reshape: the same elements in the same order under another shape.
#include <fmt/format.h>

#include "ops/defs.h"
#include "ops/structural.h"

namespace aicf {
namespace ops {
namespace {

std::vector<TensorType> infer(const ir::InferCtx& ctx) {
  const Shape shape = shape_attr(ctx, "shape");
  if (shape.elements() != ctx.in[0].shape.elements()) {
    throw mismatch(ctx, fmt::format("a shape of {} elements", ctx.in[0].shape.elements()),
                   fmt::format("{} ({} elements)", to_string(shape), shape.elements()));
  }
  return {{ctx.in[0].dtype, shape}};
}

ir::GradResult grad(const ir::GradCtx& ctx) { return {reshape(*ctx.cotangents[0], ctx.in[0].shape())}; }

ir::Sample sample(const char* name, Shape from, std::vector<int64_t> to) {
  return {.name = name, .inputs = {{f32, from}}, .attrs = {{"shape", std::move(to)}}};
}

std::vector<ir::Sample> samples() {
  return {sample("fold", {2, 3, 4}, {6, 4}),
          sample("unfold", {24}, {2, 3, 1, 4}),
          sample("to_scalar", {1, 1}, {}),
          sample("from_scalar", {}, {1, 1, 1}),
          sample("empty", {0, 3}, {3, 0, 2}),
          sample("same", {5}, {5}),
          sample("in_parts", {150, 140}, {140, 150}),
          sample("rank8", {16}, {2, 1, 2, 1, 2, 1, 2, 1})};
}

}  // namespace

const ir::OpDef reshape_def = {
    .name = "reshape",
    .num_inputs = 1,
    .operand_names = {"x"},
    .infer = infer,
    .grad = grad,
    .alias = {{0, 0}},
    .flags = ir::kView,
    .attrs = {{"shape", ir::AttrSpec::Kind::ints, true}},
    .dtypes = all_dtypes(),
    .samples = samples,
    .precision = ir::PrecisionClass::follow,
};

}  // namespace ops

Value reshape(Value x, const Shape& shape) {
  return ir::emit(ops::reshape_def, {x}, {{"shape", ops::to_vector(shape)}});
}

Value flatten(Value x, int from_axis) {
  const Shape& shape = x.shape();
  if (from_axis < 0 || from_axis > shape.rank()) {
    throw Error(fmt::format("flatten({}): expected an axis from 0 to {}, got {}", to_string(x.type()), shape.rank(),
                            from_axis));
  }
  std::vector<int64_t> dims(shape.begin(), shape.begin() + from_axis);
  dims.push_back(ops::product(shape, from_axis, shape.rank()));
  return reshape(x, ops::to_shape(dims));
}

}  // namespace aicf
