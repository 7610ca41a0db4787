// attention: softmax(q·kᵀ·scale)·v over the last two axes (Vaswani et al. 2017, "Attention Is All You Need"), causal on
// request. The softmax is computed in f32 or better; the factors of the products are rounded as `compute` says
// (ops/compute.h).
#include <fmt/format.h>

#include <cmath>
#include <limits>

#include "ops/attention_samples.h"
#include "ops/compute.h"
#include "ops/defs.h"
#include "ops/matmul.h"
#include "ops/numeric.h"
#include "ops/softmax.h"
#include "ops/structural.h"

namespace aicf {
namespace ops {
namespace {

// The sizes by what they count.
struct Sizes {
  Shape lead;
  int64_t queries = 0, keys = 0, inner = 0, width = 0;
};

Sizes sizes_of(std::span<const TensorType> in) {
  const Shape &q = in[0].shape, &v = in[2].shape;
  const int rank = q.rank();
  return {Shape(q.dims().first(static_cast<size_t>(rank - 2))), q[rank - 2], v[rank - 2], q[rank - 1], v[rank - 1]};
}

void check_shapes(const ir::InferCtx& ctx) {
  const Shape &q = ctx.in[0].shape, &k = ctx.in[1].shape, &v = ctx.in[2].shape;
  const int rank = q.rank();
  const char* form = "q (…, Tq, d), k (…, Tk, d), v (…, Tk, dv)";
  if (rank < 2 || q[rank - 1] == 0) {
    throw mismatch(ctx, "q of rank 2 or more whose last axis is not empty", to_string(ctx.in[0]), form);
  }
  const bool keys = k.rank() == rank && with_dim(q, rank - 2, k[rank - 2]) == k;
  if (!keys) {
    const std::string want = fmt::format("k of shape {} but for axis {}", to_string(q), rank - 2);
    throw mismatch(ctx, want, to_string(ctx.in[1]), form);
  }
  if (v.rank() != rank || with_dim(v, rank - 1, k[rank - 1]) != k) {
    const std::string want = fmt::format("v of shape {} but for axis {}", to_string(k), rank - 1);
    throw mismatch(ctx, want, to_string(ctx.in[2]), form);
  }
}

std::vector<TensorType> infer(const ir::InferCtx& ctx) {
  const DType dtype = result_dtype(ctx);
  check_shapes(ctx);
  const double scale = ctx.attrs.get_float("scale");
  if (!std::isfinite(scale)) throw mismatch(ctx, "a finite scale", fmt::format("{}", scale));
  const int rank = ctx.in[0].shape.rank();
  return {{dtype, with_dim(ctx.in[0].shape, rank - 1, ctx.in[2].shape[rank - 1])}};
}

// What forward and gradient share: both emit it alike, so that merging equal ops leaves one.
struct Attention {
  std::string compute;  // of the products
  double scale = 0;
  Value p;  // (…, Tq, Tk), wide; not valid where that has no elements
};

// Query i sees the keys up to i + Tk - Tq: the last query sees all of them.
Value visible(Value like, int64_t queries, int64_t keys) {
  Value row = iota(like, i32, {queries, 1}, 0);
  if (keys != queries) row = row + static_cast<double>(keys - queries);
  return greater_equal(row, iota(like, i32, {1, keys}, 1));
}

Attention attend(const ir::Op& op, const std::vector<Value>& in) {
  const Value q = in[0], k = in[1];
  const Sizes sizes = sizes_of(std::vector<TensorType>{q.type(), k.type(), in[2].type()});
  Attention a;
  a.compute = compute_of(op.attrs, q.dtype(), k.dtype());
  a.scale = op.attrs.has("scale") ? op.attrs.get_float("scale") : 1 / std::sqrt(static_cast<double>(sizes.inner));
  if (sizes.lead.elements() * sizes.queries * sizes.keys == 0) return a;
  Value s = matmul(q, k, {.tb = true, .compute = a.compute, .out = wide(q.dtype())}) * a.scale;
  if (op.attrs.get_bool("causal")) {
    constexpr double never = -std::numeric_limits<double>::infinity();
    s = select(visible(s, sizes.queries, sizes.keys), s, literal(s, never));
  }
  a.p = probabilities(exponentials(s, s.shape().rank() - 1));
  return a;
}

// A wide value as a factor of the products: rounded by a cast of its own, which a kernel of rows can do as it writes.
Value factor(Value x, const std::string& compute) {
  DType dtype = x.dtype();
  if (compute != "tf32") parse_dtype(compute, dtype);
  return cast(x, dtype);
}

std::vector<Value> expand(const ir::ExpandCtx& ctx) {
  const std::vector<TensorType> types = {ctx.in[0].type(), ctx.in[1].type(), ctx.in[2].type()};
  const TensorType out = infer({*ctx.op.def, types, ctx.op.attrs, nullptr})[0];
  const Attention a = attend(ctx.op, ctx.in);
  if (!a.p.valid()) return {zeros(ctx.in[0], out)};
  return {matmul(factor(a.p, a.compute), ctx.in[2], {.compute = a.compute, .out = out.dtype})};
}

// With O = P·V and S the scaled scores: dV = Pᵀ·dO, dP = dO·Vᵀ, dS = P∘(dP - rowsum(P∘dP)).
ir::GradResult grad(const ir::GradCtx& ctx) {
  const Value q = ctx.in[0], k = ctx.in[1], v = ctx.in[2], dy = *ctx.cotangents[0];
  const Attention a = attend(ctx.op, ctx.in);
  if (!a.p.valid()) return {zeros(q, q.type()), zeros(k, k.type()), zeros(v, v.type())};
  const auto times = [&](Value x, Value y, bool tx, bool ty, DType out) {
    return matmul(x, y, {.ta = tx, .tb = ty, .compute = a.compute, .out = out});
  };
  const Value dv = times(factor(a.p, a.compute), dy, true, false, v.dtype());
  const Value dp = times(dy, v, false, true, a.p.dtype());
  const Value pull = sum(a.p * dp, {dp.shape().rank() - 1}, true);
  const Value ds = factor(a.p * (dp - pull) * a.scale, a.compute);
  return {times(ds, k, false, false, q.dtype()), times(ds, q, true, false, k.dtype()), dv};
}

ir::Cost cost(std::span<const TensorType> in, std::span<const TensorType> out, const ir::Attrs&) {
  const Sizes sizes = sizes_of(in);
  const double scores = static_cast<double>(sizes.lead.elements() * sizes.queries * sizes.keys);
  ir::Cost c = cost_per_element(in, out, 0);
  c.flops = scores * (2.0 * static_cast<double>(sizes.inner + sizes.width) + 7);
  return c;
}

}  // namespace

const ir::OpDef attention_def = {
    .name = "attention",
    .num_inputs = 3,
    .operand_names = {"q", "k", "v"},
    .infer = infer,
    .grad = grad,
    .expand = expand,
    .flags = ir::kComposite,
    .attrs = {{"causal", ir::AttrSpec::Kind::boolean},
              {kCompute, ir::AttrSpec::Kind::text},
              {kOut, ir::AttrSpec::Kind::dtype},
              {"scale", ir::AttrSpec::Kind::real}},
    .dtypes = {f32, f64, bf16, f16},
    .cost = cost,
    .samples = samples_attention,
    .precision = ir::PrecisionClass::compute,
};

}  // namespace ops

Value attention(Value q, Value k, Value v, bool causal, std::optional<double> scale) {
  ir::Attrs attrs;
  if (causal) attrs.set("causal", true);
  if (scale) attrs.set("scale", *scale);
  return ir::emit(ops::attention_def, {q, k, v}, attrs);
}

}  // namespace aicf
