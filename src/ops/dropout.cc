// dropout: elements set to 0 with probability p, the others scaled by 1 / (1 - p), in programs that train.
#include "ops/dropout.h"

#include <fmt/format.h>

#include <cmath>

#include "aicf/error.h"
#include "ops/defs.h"
#include "ops/numeric.h"
#include "ops/rng_bits.h"
#include "ops/samples.h"
#include "ops/structural.h"

namespace aicf {
namespace ops {
namespace {

double share(const ir::Attrs& attrs) { return attrs.get_float("p"); }

}  // namespace

void check_share(const ir::InferCtx& ctx) {
  const double p = share(ctx.attrs);
  if (!(p >= 0 && p < 1)) throw mismatch(ctx, "p in [0, 1)", fmt::format("{}", p));
}

// An element is kept when u >= p, where u = (bits + 2³¹) / 2³² is uniform over [0, 1): an exact comparison of integers,
// as p·2³² is exact in double. It is `greater` because p·2³² may round up to 2³², and one less is an i32.
Value kept_elements(Value seed, Value offset, const Shape& shape, const ir::Attrs& attrs) {
  const Value bits = rng_bits(seed, offset, shape, attrs.get_int("ordinal"));
  return greater(bits, literal(bits, std::ceil(std::ldexp(share(attrs), 32)) - 1 - 0x1p31));
}

Value with_dropped(Value x, Value kept, const ir::Attrs& attrs) {
  const Value scaled = cast(widen(x) * (1 / (1 - share(attrs))), x.dtype());
  return select(kept, scaled, literal(x, 0));
}

namespace {

std::vector<TensorType> infer(const ir::InferCtx& ctx) {
  if (!is_float(ctx.in[0].dtype)) throw mismatch(ctx, "floats", std::string(name_of(ctx.in[0].dtype)));
  check_share(ctx);
  check_draws(ctx, ctx.in.subspan(1), ctx.in[0].shape);
  return {ctx.in[0]};
}

std::vector<Value> expand(const ir::ExpandCtx& ctx) {
  const Value x = ctx.in[0];
  if (share(ctx.op.attrs) == 0) return {x};
  return {with_dropped(x, kept_elements(ctx.in[1], ctx.in[2], x.shape(), ctx.op.attrs), ctx.op.attrs)};
}

std::vector<Value> inference(const ir::ExpandCtx& ctx) { return {ctx.in[0]}; }

// The same draws once more: they are a function of seed, offset and ordinal, and never of x.
ir::GradResult grad(const ir::GradCtx& ctx) {
  return {ir::emit(*ctx.op.def, {*ctx.cotangents[0], ctx.in[1], ctx.in[2]}, ctx.op.attrs), std::nullopt, std::nullopt};
}

ir::Cost cost(std::span<const TensorType> in, std::span<const TensorType> out, const ir::Attrs&) {
  return cost_per_element(in, out, 2);
}

ir::Sample sample(const char* name, Shape shape, double p, int64_t ordinal = 0) {
  ir::Sample s;
  s.name = name;
  s.inputs = {{f32, shape}, {i64, {}}, {i64, {}}};
  s.attrs = {{"ordinal", ordinal}, {"p", p}};
  return s;
}

std::vector<ir::Sample> samples() {
  std::vector<ir::Sample> all = {
      sample("scalar", {}, 0.5),
      sample("vector", {67}, 0.1, 1),
      sample("matrix", {3, 5}, 0.9),
      sample("rank4", {2, 1, 3, 2}, 0.5, 7),
      sample("one", {1}, 0.25),
      sample("empty", {0, 3}, 0.5),
      sample("p_is_0", {11}, 0),
      sample("p_is_nearly_0", {11}, 0x1p-60),
      sample("p_is_nearly_1", {11}, 1 - 0x1p-53),
  };
  ir::Sample same = sample("seed_is_offset", {9}, 0.5);
  same.same_as = {-1, -1, 1};
  all.push_back(std::move(same));
  // With this seed the signs of the draws are + + - - - + + +. What is dropped is 0, whatever it was.
  const float inf = INFINITY, nan = NAN;
  all.push_back(
      by_hand("by_hand",
              {values({8}, {1, -2, 3, inf, nan, 0, -inf, 0.5}), Tensor::scalar<int64_t>(1), Tensor::scalar<int64_t>(0)},
              {{2, -4, 0, 0, 0, 0, -inf, 1}}, {{"ordinal", int64_t{0}}, {"p", 0.5}}));
  return all;
}

}  // namespace

const ir::OpDef dropout_def = {
    .name = "dropout",
    .num_inputs = 3,
    .operand_names = {"x", "seed", "offset"},
    .infer = infer,
    .grad = grad,
    .expand = expand,
    .inference = inference,
    .flags = ir::kComposite | ir::kRandom,
    .attrs = {{"p", ir::AttrSpec::Kind::real, true}, {"ordinal", ir::AttrSpec::Kind::integer, true}},
    .dtypes = {f32, f64, bf16, f16},
    .cost = cost,
    .samples = samples,
    .precision = ir::PrecisionClass::follow,
};

}  // namespace ops

Value dropout(Value x, double p) {
  if (!x.valid()) throw Error("dropout: an empty Value");
  if (!(p >= 0 && p < 1)) throw Error(fmt::format("dropout({}): expected p in [0, 1), got {}", to_string(x.type()), p));
  if (!is_float(x.dtype())) throw Error(fmt::format("dropout({}): expected floats", to_string(x.type())));
  if (p == 0) return x;
  ir::Graph& graph = *x.graph();
  const ops::RngStates rng = ops::rng_states(graph);
  return ir::emit(ops::dropout_def, {x, rng.seed, rng.offset}, {{"ordinal", ops::next_ordinal(graph)}, {"p", p}});
}

}  // namespace aicf
