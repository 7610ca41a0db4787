// pad: copies of a value before and after x along each axis.
#include <fmt/format.h>

#include <cmath>

#include "ops/defs.h"
#include "ops/structural.h"

namespace aicf {
namespace ops {
namespace {

bool representable(DType dtype, double value) {
  if (is_float(dtype)) return true;
  if (value != std::trunc(value)) return false;
  switch (dtype) {
    case DType::boolean:
      return value == 0 || value == 1;
    case DType::u8:
      return value >= 0 && value <= 255;
    case DType::i32:
      return value >= -0x1p31 && value < 0x1p31;
    default:
      return value >= -0x1p63 && value < 0x1p63;
  }
}

std::vector<TensorType> infer(const ir::InferCtx& ctx) {
  const TensorType& in = ctx.in[0];
  const std::vector<int64_t> low = extents_attr(ctx, "low", in.shape.rank());
  const std::vector<int64_t> high = extents_attr(ctx, "high", in.shape.rank());
  const double value = ctx.attrs.get_float("value");
  if (!representable(in.dtype, value)) {
    throw mismatch(ctx, fmt::format("a value that {} can hold", name_of(in.dtype)), fmt::format("{}", value));
  }
  std::vector<int64_t> dims = to_vector(in.shape);
  for (size_t i = 0; i < dims.size(); ++i) {
    if (__builtin_add_overflow(dims[i], low[i], &dims[i]) || __builtin_add_overflow(dims[i], high[i], &dims[i])) {
      throw mismatch(ctx, "extents that fit 64 bits", fmt::format("low {}, high {}", list_text(low), list_text(high)));
    }
  }
  return {{in.dtype, to_shape(dims)}};
}

ir::GradResult grad(const ir::GradCtx& ctx) {
  const std::vector<int64_t> low = ctx.op.attrs.get_ints("low");
  std::vector<int64_t> limit = to_vector(ctx.in[0].shape());
  for (size_t i = 0; i < limit.size(); ++i) limit[i] += low[i];
  return {slice(*ctx.cotangents[0], low, limit)};
}

ir::Sample sample(const char* name, Shape shape, std::vector<int64_t> low, std::vector<int64_t> high,
                  double value = 0) {
  ir::Sample s = {.name = name, .inputs = {{f32, shape}}, .attrs = {{"high", high}, {"low", low}}};
  if (value != 0) s.attrs.set("value", value);
  return s;
}

std::vector<ir::Sample> samples() {
  std::vector<ir::Sample> all = {
      sample("rank0", {}, {}, {}),
      sample("vector", {3}, {2}, {1}, 1),
      sample("image", {2, 3, 4, 2}, {0, 1, 2, 0}, {0, 2, 1, 0}),
      sample("columns", {3, 2}, {0, 1}, {0, 3}, 1),
      sample("rows", {3, 2}, {2, 0}, {0, 0}),
      sample("nothing_added", {2, 3}, {0, 0}, {0, 0}),
      sample("empty_operand", {0, 2}, {1, 0}, {1, 1}, 1),
      sample("empty", {2, 0}, {1, 0}, {1, 0}),
      sample("size1", {1}, {0}, {1}),
      sample("rows_in_parts", {60, 70}, {30, 5}, {70, 70}),
      sample("one_row_in_parts", {9000}, {7}, {20000}, 1),
  };
  ir::Sample by_hand = sample("by_hand", {1, 2}, {1, 1}, {0, 0}, 1);
  by_hand.values = {{0, Tensor::of<float>({1, 2}, {0, 0})}};
  by_hand.expected = {{1, 1, 1, 1, 0, 0}};
  all.push_back(by_hand);
  return all;
}

}  // namespace

const ir::OpDef pad_def = {
    .name = "pad",
    .num_inputs = 1,
    .operand_names = {"x"},
    .infer = infer,
    .grad = grad,
    .attrs = {{"low", ir::AttrSpec::Kind::ints, true},
              {"high", ir::AttrSpec::Kind::ints, true},
              {"value", ir::AttrSpec::Kind::real}},
    .dtypes = all_dtypes(),
    .samples = samples,
    .precision = ir::PrecisionClass::follow,
};

}  // namespace ops

Value pad(Value x, const std::vector<int64_t>& low, const std::vector<int64_t>& high, double value) {
  ir::Attrs attrs = {{"high", high}, {"low", low}};
  if (value != 0 || std::signbit(value)) attrs.set("value", value);
  return ir::emit(ops::pad_def, {x}, attrs);
}

}  // namespace aicf
