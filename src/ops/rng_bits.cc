// rng_bits: 32 random bits an element, a pure function of seed, offset, the op's ordinal and the element's place.
#include "ops/rng_bits.h"

#include <fmt/format.h>

#include <algorithm>

#include "aicf/error.h"
#include "base/philox.h"
#include "ops/defs.h"
#include "ops/structural.h"

namespace aicf::ops {
namespace {

using Stream = base::PhiloxStream;

constexpr int64_t kMostOrdinals = int64_t{1} << Stream::kOrdinalBits;
constexpr int64_t kMostElements = int64_t{4} << Stream::kBlockBits;

std::vector<TensorType> infer(const ir::InferCtx& ctx) {
  const Shape shape = shape_attr(ctx, "shape");
  check_draws(ctx, ctx.in, shape);
  return {{i32, shape}};
}

ir::Sample sample(const char* name, std::vector<int64_t> shape, int64_t ordinal = 0) {
  ir::Sample s;
  s.name = name;
  s.inputs = {{i64, {}}, {i64, {}}};
  s.attrs = {{"ordinal", ordinal}, {"shape", std::move(shape)}};
  return s;
}

ir::Sample keyed(ir::Sample s, int64_t seed, int64_t offset) {
  s.values = {{0, Tensor::scalar<int64_t>(seed)}, {1, Tensor::scalar<int64_t>(offset)}};
  return s;
}

std::vector<ir::Sample> samples() {
  std::vector<ir::Sample> all = {
      sample("scalar", {}),
      sample("vector", {67}, 1),
      sample("rank4", {2, 3, 2, 5}, 2),
      sample("empty", {3, 0}),
      sample("in_parts", {311, 150}, 3),
      keyed(sample("high_words", {21}, kMostOrdinals - 1), -(int64_t{1} << 45), int64_t{1} << 40),
  };
  ir::Sample same = sample("seed_is_offset", {9});
  same.same_as = {-1, 0};
  all.push_back(std::move(same));
  ir::Sample by_hand = keyed(sample("by_hand", {2, 3}, 5), 42, 3);
  by_hand.expected = {{-1399133403, 1314554930, 620680087, 1904832346, 898281869, -1094040219}};
  all.push_back(std::move(by_hand));
  return all;
}

Value declared(ir::Graph& graph, const char* name, const char* init) {
  const TensorType type{i64, {}};
  const ir::ValueId known = graph.find_external(name);
  if (known == ir::kNoValue) {
    return graph.handle(graph.add_external(ir::Role::state, name, type, {{"init", std::string(init)}}));
  }
  const ir::ValueInfo& info = graph.value(known);
  if (info.role != ir::Role::state || info.type != type) {
    throw Error(fmt::format("random draws: expected {} to be a state of type i64[], got the {} {}", name,
                            ir::name_of(info.role), to_string(info.type)));
  }
  return graph.handle(known);
}

}  // namespace

const ir::OpDef rng_bits_def = {
    .name = "rng_bits",
    .num_inputs = 2,
    .operand_names = {"seed", "offset"},
    .infer = infer,
    .grad = ir::zero_gradient,
    .flags = ir::kRandom,
    .attrs = {{"shape", ir::AttrSpec::Kind::ints, true}, {"ordinal", ir::AttrSpec::Kind::integer, true}},
    .dtypes = {i64},
    .samples = samples,
    .precision = ir::PrecisionClass::follow,
};

void check_draws(const ir::InferCtx& ctx, std::span<const TensorType> keys, const Shape& shape) {
  for (const TensorType& t : keys) {
    if (t != TensorType{i64, {}}) throw mismatch(ctx, "seed and offset of type i64[]", to_string(t));
  }
  const int64_t ordinal = ctx.attrs.get_int("ordinal");
  if (ordinal < 0 || ordinal >= kMostOrdinals) {
    throw mismatch(ctx, fmt::format("an `ordinal` in [0,{})", kMostOrdinals), std::to_string(ordinal));
  }
  if (shape.elements() > kMostElements) {
    throw mismatch(ctx, fmt::format("at most {} elements", kMostElements), to_string(shape));
  }
}

RngStates rng_states(ir::Graph& graph) {
  const Value seed = declared(graph, kRngSeed, "seed");
  return {seed, declared(graph, kRngOffset, "zeros")};
}

int64_t next_ordinal(const ir::Graph& graph) {
  int64_t next = 0;
  for (const ir::Op& op : graph.ops()) {
    if (op.def->is(ir::kRandom)) next = std::max(next, op.attrs.get_int("ordinal") + 1);
  }
  if (next >= kMostOrdinals) throw Error(fmt::format("random draws: expected at most {} in a model", kMostOrdinals));
  return next;
}

Value rng_bits(Value seed, Value offset, const Shape& shape, int64_t ordinal) {
  return ir::emit(rng_bits_def, {seed, offset}, {{"ordinal", ordinal}, {"shape", to_vector(shape)}});
}

}  // namespace aicf::ops
