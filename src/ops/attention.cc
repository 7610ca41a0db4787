// attention: softmax(q·kᵀ·scale)·v over the last two axes (Vaswani et al. 2017, "Attention Is All You Need"), causal on
// request. The softmax is computed in f32 or better; the factors of the products are rounded as `compute` says
// (ops/compute.h). attention_dropout: the same with elements of the softmax dropped, in programs that train.
#include <fmt/format.h>

#include <cmath>
#include <limits>

#include "aicf/error.h"
#include "ops/attention_samples.h"
#include "ops/compute.h"
#include "ops/defs.h"
#include "ops/dropout.h"
#include "ops/matmul.h"
#include "ops/numeric.h"
#include "ops/rng_bits.h"
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
  const DType dtype = result_dtype(ctx, ctx.in.first(3));
  check_shapes(ctx);
  const double scale = ctx.attrs.get_float("scale");
  if (!std::isfinite(scale)) throw mismatch(ctx, "a finite scale", fmt::format("{}", scale));
  const int rank = ctx.in[0].shape.rank();
  return {{dtype, with_dim(ctx.in[0].shape, rank - 1, ctx.in[2].shape[rank - 1])}};
}

std::vector<TensorType> infer_dropout(const ir::InferCtx& ctx) {
  std::vector<TensorType> out = infer(ctx);
  check_share(ctx);
  check_draws(ctx, ctx.in.subspan(3), with_dim(out[0].shape, out[0].shape.rank() - 1, sizes_of(ctx.in).keys));
  return out;
}

// What forward and gradient share: both emit it alike, so that merging equal ops leaves one.
struct Attention {
  std::string compute;  // of the products
  double scale = 0;
  Value p;     // (…, Tq, Tk), wide; not valid where that has no elements
  Value kept;  // the elements of p that are not dropped; not valid where all are kept
  ir::Attrs attrs;

  // What becomes of p, and of the gradient that comes back.
  Value dropped(Value x) const { return kept.valid() ? with_dropped(x, kept, attrs) : x; }
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
    const Value seen = visible(s, sizes.queries, sizes.keys);  // first: arguments are made in no certain order
    s = select(seen, s, literal(s, never));
  }
  a.p = probabilities(exponentials(s, s.shape().rank() - 1));
  a.attrs = op.attrs;
  if (op.def == &attention_dropout_def && op.attrs.get_float("p") > 0) {
    a.kept = kept_elements(in[3], in[4], a.p.shape(), op.attrs);
  }
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
  return {matmul(factor(a.dropped(a.p), a.compute), ctx.in[2], {.compute = a.compute, .out = out.dtype})};
}

// With D what is left of P, O = D·V and S the scaled scores: dV = Dᵀ·dO, dD = dO·Vᵀ, of which dP is left by the same
// mask, dS = P∘(dP - rowsum(P∘dP)).
ir::GradResult grad(const ir::GradCtx& ctx) {
  const Value q = ctx.in[0], k = ctx.in[1], v = ctx.in[2], dy = *ctx.cotangents[0];
  const Attention a = attend(ctx.op, ctx.in);
  ir::GradResult all(ctx.in.size());  // no gradient flows to seed and offset
  if (!a.p.valid()) {
    for (size_t i = 0; i < 3; ++i) all[i] = zeros(ctx.in[i], ctx.in[i].type());
    return all;
  }
  const auto times = [&](Value x, Value y, bool tx, bool ty, DType out) {
    return matmul(x, y, {.ta = tx, .tb = ty, .compute = a.compute, .out = out});
  };
  all[2] = times(factor(a.dropped(a.p), a.compute), dy, true, false, v.dtype());
  const Value dp = a.dropped(times(dy, v, false, true, a.p.dtype()));
  const Value pull = sum(a.p * dp, {dp.shape().rank() - 1}, true);
  const Value ds = factor(a.p * (dp - pull) * a.scale, a.compute);
  all[0] = times(ds, k, false, false, q.dtype());
  all[1] = times(ds, q, true, false, k.dtype());
  return all;
}

std::vector<Value> inference(const ir::ExpandCtx& ctx) {
  ir::Attrs attrs = ctx.op.attrs;
  for (const char* drawing : {"ordinal", "p"}) attrs.erase(drawing);
  return {ir::emit(attention_def, {ctx.in[0], ctx.in[1], ctx.in[2]}, attrs)};
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

const ir::OpDef attention_dropout_def = {
    .name = "attention_dropout",
    .num_inputs = 5,
    .operand_names = {"q", "k", "v", "seed", "offset"},
    .infer = infer_dropout,
    .grad = grad,
    .expand = expand,
    .inference = inference,
    .flags = ir::kComposite | ir::kRandom,
    .attrs = {{"causal", ir::AttrSpec::Kind::boolean},
              {kCompute, ir::AttrSpec::Kind::text},
              {"ordinal", ir::AttrSpec::Kind::integer, true},
              {kOut, ir::AttrSpec::Kind::dtype},
              {"p", ir::AttrSpec::Kind::real, true},
              {"scale", ir::AttrSpec::Kind::real}},
    .dtypes = {f32, f64, bf16, f16},
    .cost = cost,
    .samples = samples_attention_dropout,
    .precision = ir::PrecisionClass::compute,
};

}  // namespace ops

Value attention(Value q, Value k, Value v, bool causal, std::optional<double> scale, double dropout) {
  ir::Attrs attrs;
  if (causal) attrs.set("causal", true);
  if (scale) attrs.set("scale", *scale);
  if (dropout == 0) return ir::emit(ops::attention_def, {q, k, v}, attrs);
  if (!(dropout > 0 && dropout < 1)) {
    throw Error(fmt::format("attention: expected a dropout in [0, 1), got {}", dropout));
  }
  for (const Value& x : {q, k, v}) {
    if (!x.valid()) throw Error("attention: an empty Value");
  }
  // Before states are declared: an operand that does not fit changes nothing.
  ops::infer({ops::attention_def, std::vector<TensorType>{q.type(), k.type(), v.type()}, attrs, nullptr});
  ir::Graph& graph = *q.graph();
  const ops::RngStates rng = ops::rng_states(graph);
  attrs.set("ordinal", ops::next_ordinal(graph));
  attrs.set("p", dropout);
  return ir::emit(ops::attention_dropout_def, {q, k, v, rng.seed, rng.offset}, attrs);
}

}  // namespace aicf
