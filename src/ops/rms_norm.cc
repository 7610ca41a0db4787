// rms_norm: x / sqrt(mean(x²) + eps) · gamma over the last axis (Zhang & Sennrich 2019).
#include "ops/defs.h"
#include "ops/norm.h"
#include "ops/numeric.h"
#include "ops/samples.h"

namespace aicf {
namespace ops {
namespace {

double eps_of(const ir::Op& op) { return op.attrs.get_float("eps"); }

std::vector<Value> expand(const ir::ExpandCtx& ctx) {
  const Value rows = rows_of(widen(ctx.in[0]));
  const Value normal = rows * inverse_rms(rows, eps_of(ctx.op));
  return {from_rows(normal * widen(ctx.in[1]), ctx.in[0].type())};
}

// With g = dy·gamma and x̂ the normalized row: dx = (g - x̂·mean(g·x̂)) · scale.
ir::GradResult grad(const ir::GradCtx& ctx) {
  const Value dy = rows_of(widen(*ctx.cotangents[0]));
  const Value rows = rows_of(widen(ctx.in[0]));
  const Value scale = inverse_rms(rows, eps_of(ctx.op));
  const Value normal = rows * scale;
  const Value g = dy * widen(ctx.in[1]);
  const Value along = normal * row_mean(g * normal);
  return {from_rows((g - along) * scale, ctx.in[0].type()), sum_of_rows(dy * normal, ctx.in[1].type())};
}

ir::Cost cost(std::span<const TensorType> in, std::span<const TensorType> out, const ir::Attrs&) {
  return cost_per_element(in, out, 6);
}

std::vector<ir::Sample> samples() {
  std::vector<ir::Sample> all = samples_norm(1, 1e-6);
  // mean(x²) = 25, eps 0.
  all.push_back(by_hand("by_hand", {values({1, 2}, {1, 7}), values({2}, {1, 3})}, {{0.2, 4.2}}, {{"eps", 0.0}}, 1e-6));
  all.push_back(by_hand("zero_row_has_a_steep_slope", {values({1, 3}, {0, 0, 0}), values({3}, {1, 2, 3})}, {{0, 0, 0}},
                        {{"eps", 1e-6}}));
  ir::Sample same = all[0];
  same.name = "x_is_gamma";
  same.same_as = {-1, 0};
  all.push_back(std::move(same));
  return all;
}

}  // namespace

const ir::OpDef rms_norm_def = {
    .name = "rms_norm",
    .num_inputs = 2,
    .operand_names = {"x", "gamma"},
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

Value rms_norm(Value x, Value gamma, double eps) { return ir::emit(ops::rms_norm_def, {x, gamma}, {{"eps", eps}}); }

}  // namespace aicf
