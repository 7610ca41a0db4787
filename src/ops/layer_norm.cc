// layer_norm: (x - mean) / sqrt(variance + eps) · gamma + beta over the last axis (Ba, Kiros & Hinton 2016).
#include "ops/defs.h"
#include "ops/norm.h"
#include "ops/numeric.h"
#include "ops/samples.h"

namespace aicf {
namespace ops {
namespace {

double eps_of(const ir::Op& op) { return op.attrs.get_float("eps"); }

struct Normalized {
  Value x;      // mean 0, variance 1
  Value scale;  // 1 / sqrt(variance + eps)
};

// Variance from the centred rows. The mean is taken twice: of x, then of what is left, which is small, so its sum loses
// nothing. One pass alone leaves an error of an ulp of the sum, far above the spread of a row like 1000 + 0.001·i.
Normalized normalize(Value rows, double eps) {
  const Value near = rows - row_mean(rows);
  const Value centred = near - row_mean(near);
  const Value scale = inverse_rms(centred, eps);
  return {centred * scale, scale};
}

std::vector<Value> expand(const ir::ExpandCtx& ctx) {
  const TensorType type = ctx.in[0].type();
  const Normalized n = normalize(rows_of(widen(ctx.in[0])), eps_of(ctx.op));
  const Value gamma = widen(ctx.in[1]), beta = widen(ctx.in[2]);
  return {from_rows(n.x * gamma + beta, type)};
}

// With g = dy·gamma and x̂ the normalized row: dx = (g - mean(g) - x̂·mean(g·x̂)) · scale.
ir::GradResult grad(const ir::GradCtx& ctx) {
  const Value dy = rows_of(widen(*ctx.cotangents[0]));
  const Normalized n = normalize(rows_of(widen(ctx.in[0])), eps_of(ctx.op));
  const Value g = dy * widen(ctx.in[1]);
  const Value along = n.x * row_mean(g * n.x);
  const Value dx = (g - row_mean(g) - along) * n.scale;
  const TensorType param = ctx.in[1].type();
  return {from_rows(dx, ctx.in[0].type()), sum_of_rows(dy * n.x, param), sum_of_rows(dy, param)};
}

ir::Cost cost(std::span<const TensorType> in, std::span<const TensorType> out, const ir::Attrs&) {
  return cost_per_element(in, out, 9);
}

std::vector<ir::Sample> samples() {
  std::vector<ir::Sample> all = samples_norm(2, 1e-5);
  // Mean 2, variance 4, eps 0.
  all.push_back(by_hand("by_hand", {values({1, 2}, {0, 4}), values({2}, {1, 3}), values({2}, {10, 20})}, {{9, 23}},
                        {{"eps", 0.0}}, 1e-6));
  all.push_back(by_hand("constant_row_gives_beta_and_a_steep_slope",
                        {values({2, 3}, {5, 5, 5, 0, 0, 0}), values({3}, {1, 2, 3}), values({3}, {4, 5, 6})},
                        {{4, 5, 6, 4, 5, 6}}, {{"eps", 1e-5}}, 1e-6));
  ir::Sample same = all[1];
  same.name = "gamma_is_beta";
  same.same_as = {-1, -1, 1};
  all.push_back(std::move(same));
  return all;
}

}  // namespace

const ir::OpDef layer_norm_def = {
    .name = "layer_norm",
    .num_inputs = 3,
    .operand_names = {"x", "gamma", "beta"},
    .infer = infer_norm,
    .grad = grad,
    .expand = expand,
    .flags = ir::kComposite,
    .attrs = {{"eps", ir::AttrSpec::Kind::real, true}},
    .dtypes = {f32, f64, bf16, f16},
    .cost = cost,
    .samples = samples,
};

}  // namespace ops

Value layer_norm(Value x, Value gamma, Value beta, double eps) {
  return ir::emit(ops::layer_norm_def, {x, gamma, beta}, {{"eps", eps}});
}

}  // namespace aicf
