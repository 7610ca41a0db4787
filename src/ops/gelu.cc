// gelu: x·Φ(x), exact or by the tanh approximation (Hendrycks & Gimpel 2016, "Gaussian Error Linear Units").
#include <cmath>
#include <numbers>

#include "ops/defs.h"
#include "ops/numeric.h"
#include "ops/samples.h"
#include "ops/structural.h"

namespace aicf {
namespace ops {
namespace {

constexpr double kCubic = 0.044715;
constexpr double kSqrt2OverPi = std::numbers::sqrt2 * std::numbers::inv_sqrtpi;

bool is_tanh(const ir::Op& op) { return op.attrs.get_bool("tanh"); }

// Φ(x), or its approximation (1 + tanh(√(2/π)(x + 0.044715 x³))) / 2.
Value phi(Value x, bool tanh_form) {
  const Value bend = tanh_form ? tanh(x * kSqrt2OverPi * (x * x * kCubic + 1)) : erf(x * (1 / std::numbers::sqrt2));
  return (bend + 1) * 0.5;
}

// Φ'(x) = exp(-x²/2) / √(2π).
Value density(Value x) { return exp(x * x * -0.5) * (std::numbers::inv_sqrtpi / std::numbers::sqrt2); }

// The derivative of the approximation, 2·p·(1-p)·u'(x), where p is phi and u the argument of tanh. Where x² would
// overflow p·(1-p) is 0 long since; the bound keeps 0 times infinity away.
Value tanh_density(Value x, Value p) {
  const Value square = minimum(x * x, literal(x, 1e4));
  return p * (1 - p) * ((square * (3 * kCubic) + 1) * (2 * kSqrt2OverPi));
}

std::vector<TensorType> infer(const ir::InferCtx& ctx) {
  if (!is_float(ctx.in[0].dtype)) throw mismatch(ctx, "floats", std::string(name_of(ctx.in[0].dtype)));
  return {ctx.in[0]};
}

std::vector<Value> expand(const ir::ExpandCtx& ctx) {
  const Value x = widen(ctx.in[0]);
  return {cast(x * phi(x, is_tanh(ctx.op)), ctx.in[0].dtype())};
}

ir::GradResult grad(const ir::GradCtx& ctx) {
  const Value x = widen(ctx.in[0]);
  const Value p = phi(x, is_tanh(ctx.op));
  const Value slope = is_tanh(ctx.op) ? tanh_density(x, p) : density(x);
  return {cast(widen(*ctx.cotangents[0]) * (x * slope + p), ctx.in[0].dtype())};
}

ir::Cost cost(std::span<const TensorType> in, std::span<const TensorType> out, const ir::Attrs&) {
  return cost_per_element(in, out, 8);
}

std::vector<ir::Sample> samples() {
  std::vector<ir::Sample> all;
  for (const bool tanh_form : {false, true}) {
    const std::string suffix = tanh_form ? "_tanh" : "";
    const ir::Attrs attrs = tanh_form ? ir::Attrs{{"tanh", true}} : ir::Attrs{};
    const std::pair<const char*, Shape> shapes[] = {{"scalar", {}},          {"vector", {67}}, {"matrix", {3, 5}},
                                                    {"rank4", {2, 1, 3, 2}}, {"one", {1}},     {"empty", {0, 3}}};
    for (const auto& [name, shape] : shapes) {
      ir::Sample s;
      s.name = name + suffix;
      s.inputs = floats({shape});
      s.attrs = attrs;
      s.low = -4;
      s.high = 4;
      all.push_back(std::move(s));
    }
    // Φ(±1) = 0.8413447460685429, 0.15865525393145707; the approximation is within 2e-4 of it there.
    all.push_back(with_grad(by_hand("by_hand" + suffix, {values({5}, {-50, -1, 0, 1, 50})},
                                    {{0, -0.158655, 0, 0.841345, 50}}, attrs, tanh_form ? 3e-4 : 1e-6)));
  }
  return all;
}

}  // namespace

const ir::OpDef gelu_def = {
    .name = "gelu",
    .num_inputs = 1,
    .operand_names = {"x"},
    .infer = infer,
    .grad = grad,
    .expand = expand,
    .flags = ir::kComposite,
    .attrs = {{"tanh", ir::AttrSpec::Kind::boolean}},
    .dtypes = {f32, f64, bf16, f16},
    .cost = cost,
    .samples = samples,
    .precision = ir::PrecisionClass::follow,
};

}  // namespace ops

Value gelu(Value x, bool tanh_approximation) {
  return ir::emit(ops::gelu_def, {x}, tanh_approximation ? ir::Attrs{{"tanh", true}} : ir::Attrs{});
}

}  // namespace aicf
