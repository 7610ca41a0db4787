// mse: (prediction - target)², its sum, or its mean; in f32 for 16-bit operands.
#include <algorithm>

#include "ops/defs.h"
#include "ops/loss.h"
#include "ops/numeric.h"
#include "ops/samples.h"
#include "ops/structural.h"

namespace aicf {
namespace ops {
namespace {

std::vector<TensorType> infer(const ir::InferCtx& ctx) {
  if (!is_float(ctx.in[0].dtype)) throw mismatch(ctx, "floats", std::string(name_of(ctx.in[0].dtype)));
  if (ctx.in[0] != ctx.in[1]) {
    throw mismatch(ctx, "a target of type " + to_string(ctx.in[0]), to_string(ctx.in[1]),
                   "reshape or cast one of them");
  }
  const Shape shape = reduction_of(ctx) == Reduction::none ? ctx.in[0].shape : Shape{};
  return {{wide(ctx.in[0].dtype), shape}};
}

// What the sum is divided by; the mean of nothing is 0.
double divisor(const Shape& shape, Reduction reduction) {
  return reduction == Reduction::mean ? static_cast<double>(std::max<int64_t>(shape.elements(), 1)) : 1;
}

std::vector<Value> expand(const ir::ExpandCtx& ctx) {
  const Reduction reduction = reduction_of(ctx.op);
  const Value difference = widen(ctx.in[0]) - widen(ctx.in[1]);
  const Value squares = difference * difference;
  if (reduction == Reduction::none) return {squares};
  const Value total = sum(squares);
  return {reduction == Reduction::sum ? total : total / divisor(ctx.in[0].shape(), reduction)};
}

ir::GradResult grad(const ir::GradCtx& ctx) {
  const Value dy = *ctx.cotangents[0] * (2 / divisor(ctx.in[0].shape(), reduction_of(ctx.op)));
  const Value difference = widen(ctx.in[0]) - widen(ctx.in[1]);
  const Value g = difference * dy;
  const DType dtype = ctx.in[0].dtype();
  return {cast(g, dtype), cast(-g, dtype)};
}

ir::Cost cost(std::span<const TensorType> in, std::span<const TensorType> out, const ir::Attrs&) {
  return cost_per_element(in, out, 3);
}

std::vector<ir::Sample> samples() {
  std::vector<ir::Sample> all;
  const std::pair<const char*, Shape> shapes[] = {{"scalar", {}},          {"vector", {7}}, {"matrix", {3, 5}},
                                                  {"rank4", {2, 1, 3, 2}}, {"one", {1}},    {"empty", {0, 3}}};
  for (const char* reduction : {"none", "sum", "mean"}) {
    const ir::Attrs attrs = {{"reduction", std::string(reduction)}};
    for (const auto& [name, shape] : shapes) {
      ir::Sample s;
      s.name = std::string(name) + "_" + reduction;
      s.inputs = floats({shape, shape});
      s.attrs = attrs;
      all.push_back(std::move(s));
    }
  }
  ir::Sample same = all[1];
  same.name = "same_operand";
  same.same_as = {-1, 0};
  all.push_back(std::move(same));
  const std::vector<Tensor> operands = {values({2}, {1, 5}), values({2}, {3, 2})};
  all.push_back(with_grad(by_hand("by_hand_none", operands, {{4, 9}}, {{"reduction", std::string("none")}})));
  all.push_back(with_grad(by_hand("by_hand_mean", operands, {{6.5}}, {{"reduction", std::string("mean")}})));
  return all;
}

}  // namespace

const ir::OpDef mse_def = {
    .name = "mse",
    .num_inputs = 2,
    .operand_names = {"prediction", "target"},
    .infer = infer,
    .grad = grad,
    .expand = expand,
    .flags = ir::kComposite,
    .attrs = {{"reduction", ir::AttrSpec::Kind::text, true}},
    .dtypes = {f32, f64, bf16, f16},
    .cost = cost,
    .samples = samples,
};

}  // namespace ops

Value mse(Value prediction, Value target, Reduction reduction) {
  return ir::emit(ops::mse_def, {prediction, target}, {{"reduction", ops::reduction_name(reduction)}});
}

}  // namespace aicf
