// The gradient rules of the pointwise ops. A branch that was not taken, and a zero cotangent, give exactly zero even
// where the derivative is infinite (0 times infinity is NaN); a cotangent that is not zero keeps the infinity.
#include <numbers>

#include "ops/defs.h"
#include "ops/pointwise.h"

namespace aicf::ops {
namespace {

using ir::GradCtx;
using ir::GradResult;

// The cotangent of the only output. REQUIRES: present, as it is whenever a rule of a one-output op runs.
Value dy_of(const GradCtx& ctx) { return *ctx.cotangents[0]; }

// The gradient of operand i, brought back to its shape.
Value to_operand(const GradCtx& ctx, size_t i, Value g) { return sum_to_shape(g, ctx.in[i].shape()); }

Value is_zero(Value x) { return equal(x, literal(x, 0)); }

// g, or 0 where the condition holds.
Value zero_where(Value condition, Value g) { return select(condition, literal(g, 0), g); }

// g, or 0 where the cotangent is 0.
Value guarded(Value dy, Value g) { return zero_where(is_zero(dy), g); }

// dy where a wins, half of it where the operands are equal, else 0.
Value winner(Value wins, Value ties, Value dy) { return select(wins, dy, select(ties, dy * 0.5, literal(dy, 0))); }

}  // namespace

GradResult grad_abs(const GradCtx& ctx) { return {dy_of(ctx) * sign(ctx.in[0])}; }

GradResult grad_add(const GradCtx& ctx) {
  const Value dy = dy_of(ctx);
  return {to_operand(ctx, 0, dy), to_operand(ctx, 1, dy)};
}

GradResult grad_cast(const GradCtx& ctx) {
  if (!is_float(ctx.in[0].dtype()) || !is_float(ctx.out[0].dtype())) return ir::zero_gradient(ctx);
  return {cast(dy_of(ctx), ctx.in[0].dtype())};
}

GradResult grad_cos(const GradCtx& ctx) { return {-(dy_of(ctx) * sin(ctx.in[0]))}; }

GradResult grad_div(const GradCtx& ctx) {
  const Value dy = dy_of(ctx);
  const Value b = ctx.in[1];
  return {to_operand(ctx, 0, guarded(dy, dy / b)), to_operand(ctx, 1, guarded(dy, -((dy * ctx.out[0]) / b)))};
}

GradResult grad_erf(const GradCtx& ctx) {
  const Value x = ctx.in[0];
  return {dy_of(ctx) * (exp(-(x * x)) * (2 * std::numbers::inv_sqrtpi))};
}

GradResult grad_exp(const GradCtx& ctx) {
  const Value dy = dy_of(ctx);
  return {guarded(dy, dy * ctx.out[0])};
}

// Not out + 1, which loses every digit where exp(x) is small.
GradResult grad_expm1(const GradCtx& ctx) {
  const Value dy = dy_of(ctx);
  return {guarded(dy, dy * exp(ctx.in[0]))};
}

GradResult grad_log(const GradCtx& ctx) {
  const Value dy = dy_of(ctx);
  return {guarded(dy, dy / ctx.in[0])};
}

GradResult grad_log1p(const GradCtx& ctx) {
  const Value dy = dy_of(ctx);
  return {guarded(dy, dy / (ctx.in[0] + 1))};
}

GradResult grad_maximum(const GradCtx& ctx) {
  const Value dy = dy_of(ctx), a = ctx.in[0], b = ctx.in[1];
  const Value ties = equal(a, b);
  return {to_operand(ctx, 0, winner(greater(a, b), ties, dy)), to_operand(ctx, 1, winner(less(a, b), ties, dy))};
}

GradResult grad_minimum(const GradCtx& ctx) {
  const Value dy = dy_of(ctx), a = ctx.in[0], b = ctx.in[1];
  const Value ties = equal(a, b);
  return {to_operand(ctx, 0, winner(less(a, b), ties, dy)), to_operand(ctx, 1, winner(greater(a, b), ties, dy))};
}

GradResult grad_mul(const GradCtx& ctx) {
  const Value dy = dy_of(ctx);
  return {to_operand(ctx, 0, dy * ctx.in[1]), to_operand(ctx, 1, dy * ctx.in[0])};
}

GradResult grad_neg(const GradCtx& ctx) { return {-dy_of(ctx)}; }

// x^0 is constant, so its slope in x is 0 at x = 0 too. In the exponent, 0^p is constant for p > 0, and taken as such
// at p = 0; a negative base has no slope in p (NaN).
GradResult grad_pow(const GradCtx& ctx) {
  const Value dy = dy_of(ctx), x = ctx.in[0], p = ctx.in[1];
  const Value none = is_zero(dy);
  const Value dx = zero_where(logical_or(none, is_zero(p)), dy * (p * pow(x, p - 1)));
  const Value flat = logical_and(is_zero(x), greater_equal(p, literal(p, 0)));
  const Value dp = zero_where(logical_or(none, flat), dy * (ctx.out[0] * log(x)));
  return {to_operand(ctx, 0, dx), to_operand(ctx, 1, dp)};
}

// From the result, so that relu may overwrite its operand.
GradResult grad_relu(const GradCtx& ctx) {
  const Value y = ctx.out[0];
  const Value dy = dy_of(ctx);
  return {select(greater(y, literal(y, 0)), dy, literal(dy, 0))};
}

GradResult grad_select(const GradCtx& ctx) {
  const Value dy = dy_of(ctx), condition = ctx.in[0];
  const Value zero = literal(dy, 0);
  return {std::nullopt, to_operand(ctx, 1, select(condition, dy, zero)),
          to_operand(ctx, 2, select(condition, zero, dy))};
}

GradResult grad_sigmoid(const GradCtx& ctx) {
  const Value y = ctx.out[0];
  return {dy_of(ctx) * (y * (1 - y))};
}

GradResult grad_sin(const GradCtx& ctx) { return {dy_of(ctx) * cos(ctx.in[0])}; }

GradResult grad_sqrt(const GradCtx& ctx) {
  const Value dy = dy_of(ctx);
  return {guarded(dy, (dy * 0.5) / ctx.out[0])};
}

GradResult grad_sub(const GradCtx& ctx) {
  const Value dy = dy_of(ctx);
  return {to_operand(ctx, 0, dy), to_operand(ctx, 1, -dy)};
}

GradResult grad_tanh(const GradCtx& ctx) {
  const Value y = ctx.out[0];
  return {dy_of(ctx) * (1 - y * y)};
}

// Steps and truth values: flat wherever they have a slope at all.
GradResult grad_ceil(const GradCtx& ctx) { return ir::zero_gradient(ctx); }
GradResult grad_equal(const GradCtx& ctx) { return ir::zero_gradient(ctx); }
GradResult grad_floor(const GradCtx& ctx) { return ir::zero_gradient(ctx); }
GradResult grad_greater(const GradCtx& ctx) { return ir::zero_gradient(ctx); }
GradResult grad_greater_equal(const GradCtx& ctx) { return ir::zero_gradient(ctx); }
GradResult grad_isfinite(const GradCtx& ctx) { return ir::zero_gradient(ctx); }
GradResult grad_less(const GradCtx& ctx) { return ir::zero_gradient(ctx); }
GradResult grad_less_equal(const GradCtx& ctx) { return ir::zero_gradient(ctx); }
GradResult grad_logical_and(const GradCtx& ctx) { return ir::zero_gradient(ctx); }
GradResult grad_logical_not(const GradCtx& ctx) { return ir::zero_gradient(ctx); }
GradResult grad_logical_or(const GradCtx& ctx) { return ir::zero_gradient(ctx); }
GradResult grad_not_equal(const GradCtx& ctx) { return ir::zero_gradient(ctx); }
GradResult grad_round(const GradCtx& ctx) { return ir::zero_gradient(ctx); }
GradResult grad_sign(const GradCtx& ctx) { return ir::zero_gradient(ctx); }

}  // namespace aicf::ops
