// softmax: exp(x) / sum(exp(x)) along an axis; a row of -inf gives 0 and gradient 0.
#include "ops/softmax.h"

#include <limits>

#include "ops/defs.h"
#include "ops/numeric.h"
#include "ops/samples.h"
#include "ops/structural.h"

namespace aicf {
namespace ops {

Exponentials exponentials(Value x, int axis) {
  Exponentials row;
  row.top = max(x, {axis}, true);
  row.shifted = x - at_least_lowest(row.top);
  row.exps = exp(row.shifted);
  row.total = sum(row.exps, {axis}, true);
  return row;
}

Value at_least_lowest(Value top) { return maximum(top, literal(top, lowest(top.dtype()))); }

// One division a row, not one an element.
Value probabilities(const Exponentials& row) {
  return row.exps * reciprocal(maximum(row.total, literal(row.total, smallest_normal())));
}

Value log_total(const Exponentials& row) { return log(maximum(row.total, literal(row.total, smallest_normal()))); }

Value is_minus_infinity(Value x) { return less(x, literal(x, lowest(x.dtype()))); }

std::vector<TensorType> infer_along_axis(const ir::InferCtx& ctx) {
  if (!is_float(ctx.in[0].dtype)) throw mismatch(ctx, "floats", std::string(name_of(ctx.in[0].dtype)));
  axis_attr(ctx, ctx.in[0].shape.rank());
  return {ctx.in[0]};
}

std::vector<ir::Sample> samples_along_axis() {
  const auto along = [](const char* name, Shape x, int64_t axis) {
    ir::Sample s;
    s.name = name;
    s.inputs = floats({x});
    s.attrs = {{"axis", axis}};
    return s;
  };
  return {along("vector", {7}, 0),         along("last_axis", {3, 5}, 1),
          along("first_axis", {3, 5}, 0),  along("middle_axis", {2, 3, 4}, 1),
          along("rank4", {2, 1, 3, 4}, 3), along("one", {1}, 0),
          along("rows_of_one", {4, 1}, 1), along("no_rows", {0, 3}, 1),
          along("empty_rows", {3, 0}, 1),  along("long_row", {2, 67}, 1)};
}

namespace {

int axis_of(const ir::Op& op) { return static_cast<int>(op.attrs.get_int("axis")); }

std::vector<Value> expand(const ir::ExpandCtx& ctx) {
  const Value x = ctx.in[0];
  if (x.shape().elements() == 0) return {x};
  return {cast(probabilities(exponentials(widen(x), axis_of(ctx.op))), x.dtype())};
}

ir::GradResult grad(const ir::GradCtx& ctx) {
  const Value y = widen(ctx.out[0]);
  const Value dy = widen(*ctx.cotangents[0]);
  const Value pull = sum(dy * y, {axis_of(ctx.op)}, true);
  return {cast((dy - pull) * y, ctx.in[0].dtype())};
}

ir::Cost cost(std::span<const TensorType> in, std::span<const TensorType> out, const ir::Attrs&) {
  return cost_per_element(in, out, 5);
}

std::vector<ir::Sample> samples() {
  constexpr float inf = std::numeric_limits<float>::infinity();
  std::vector<ir::Sample> all = samples_along_axis();
  const ir::Attrs last = {{"axis", int64_t{1}}};
  all.push_back(with_grad(by_hand("even", {values({1, 2}, {0, 0})}, {{0.5, 0.5}}, last, 1e-6)));
  all.push_back(by_hand("rows_with_minus_infinity", {values({2, 3}, {-inf, 0, 0, -inf, -inf, -inf})},
                        {{0, 0.5, 0.5, 0, 0, 0}}, last, 1e-6));
  all.push_back(by_hand("large_values_swamp_differences", {values({2, 2}, {1e4f, -1e4f, 6e4f, 6e4f})},
                        {{1, 0, 0.5, 0.5}}, last, 1e-6));
  return all;
}

}  // namespace

const ir::OpDef softmax_def = {
    .name = "softmax",
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

Value softmax(Value x, int axis) {
  const int64_t normal = ops::normalize_axis(ops::softmax_def, axis, x.shape().rank());
  return ir::emit(ops::softmax_def, {x}, {{"axis", normal}});
}

}  // namespace aicf
