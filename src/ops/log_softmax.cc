// log_softmax: x - log(sum(exp(x))) along an axis; a row of -inf gives -inf and gradient 0.
#include <limits>
#include <numbers>

#include "ops/defs.h"
#include "ops/numeric.h"
#include "ops/samples.h"
#include "ops/softmax.h"

namespace aicf {
namespace ops {
namespace {

int axis_of(const ir::Op& op) { return static_cast<int>(op.attrs.get_int("axis")); }

std::vector<Value> expand(const ir::ExpandCtx& ctx) {
  const Value x = ctx.in[0];
  if (x.shape().elements() == 0) return {x};
  const Exponentials row = exponentials(widen(x), axis_of(ctx.op));
  return {cast(row.shifted - log_total(row), x.dtype())};
}

// An element at -inf stays there whatever x does, so it has no slope; a row of them has none at all.
ir::GradResult grad(const ir::GradCtx& ctx) {
  const Value y = widen(ctx.out[0]);
  const Value dy = widen(*ctx.cotangents[0]);
  const Value pull = exp(y) * sum(dy, {axis_of(ctx.op)}, true);
  return {cast(select(is_minus_infinity(y), literal(dy, 0), dy - pull), ctx.in[0].dtype())};
}

ir::Cost cost(std::span<const TensorType> in, std::span<const TensorType> out, const ir::Attrs&) {
  return cost_per_element(in, out, 5);
}

std::vector<ir::Sample> samples() {
  constexpr float inf = std::numeric_limits<float>::infinity();
  constexpr double ln2 = std::numbers::ln2;
  std::vector<ir::Sample> all = samples_along_axis();
  const ir::Attrs last = {{"axis", int64_t{1}}};
  all.push_back(with_grad(by_hand("even", {values({1, 2}, {0, 0})}, {{-ln2, -ln2}}, last, 1e-6)));
  all.push_back(by_hand("rows_with_minus_infinity", {values({2, 3}, {-inf, 0, 0, -inf, -inf, -inf})},
                        {{-inf, -ln2, -ln2, -inf, -inf, -inf}}, last, 1e-6));
  all.push_back(by_hand("large_values_swamp_differences", {values({1, 2}, {1e4f, -1e4f})}, {{0, -2e4}}, last, 1e-6));
  return all;
}

}  // namespace

const ir::OpDef log_softmax_def = {
    .name = "log_softmax",
    .num_inputs = 1,
    .operand_names = {"x"},
    .infer = infer_along_axis,
    .grad = grad,
    .expand = expand,
    .flags = ir::kComposite,
    .attrs = {{"axis", ir::AttrSpec::Kind::integer, true}},
    .dtypes = {f32, f64, bf16, f16},
    .cost = cost,
    .samples = samples,
};

}  // namespace ops

Value log_softmax(Value x, int axis) {
  const int64_t normal = ops::normalize_axis(ops::log_softmax_def, axis, x.shape().rank());
  return ir::emit(ops::log_softmax_def, {x}, {{"axis", normal}});
}

}  // namespace aicf
