// in_range: whether every element of an index is in [0, extent), or the one value that stands for none.
#include <limits>

#include "aicf/ops.h"
#include "ops/defs.h"
#include "ops/numeric.h"
#include "ops/samples.h"
#include "ops/structural.h"

namespace aicf::ops {
namespace {

std::vector<TensorType> infer(const ir::InferCtx& ctx) {
  const DType dtype = ctx.in[0].dtype;
  if (dtype != i32 && dtype != i64) throw mismatch(ctx, "an i32 or i64 index", to_string(ctx.in[0]));
  const int64_t extent = ctx.attrs.get_int("extent", -1);
  if (extent < 0) throw mismatch(ctx, "a non-negative `extent`", std::to_string(extent));
  return {{boolean, {}}};
}

std::vector<Value> expand(const ir::ExpandCtx& ctx) {
  const Value index = ctx.in[0];
  const double most = static_cast<double>(std::numeric_limits<int32_t>::max());
  const auto extent = static_cast<double>(ctx.op.attrs.get_int("extent"));
  Value ok = greater_equal(index, literal(index, 0));
  // A number that the dtype does not have bounds nothing, and stands for nothing.
  if (index.dtype() == i64 || extent <= most) ok = logical_and(ok, less(index, literal(index, extent)));
  if (ctx.op.attrs.has("ignore")) {
    const auto ignore = static_cast<double>(ctx.op.attrs.get_int("ignore"));
    if (index.dtype() == i64 || (ignore >= -most - 1 && ignore <= most))
      ok = logical_or(ok, equal(index, literal(index, ignore)));
  }
  return {min(reshaped(ok, {index.shape().elements()}), {0})};
}

ir::Cost cost(std::span<const TensorType> in, std::span<const TensorType> out, const ir::Attrs&) {
  return cost_per_element(in, out, 2);
}

ir::Sample check(const char* name, Shape shape, int64_t extent, DType dtype = i32) {
  ir::Sample s;
  s.name = name;
  s.inputs = {{dtype, shape}};
  s.attrs = {{"extent", extent}};
  return s;
}

ir::Sample given(const char* name, const std::vector<int64_t>& index, int64_t extent, bool ok,
                 std::optional<int64_t> ignore = std::nullopt) {
  ir::Sample s = by_hand(name, {Tensor::of<int64_t>({static_cast<int64_t>(index.size())}, index)}, {{ok ? 1.0 : 0.0}},
                         {{"extent", extent}});
  if (ignore) s.attrs.set("ignore", *ignore);
  return s;
}

std::vector<ir::Sample> samples() {
  return {check("scalar", {}, 4),
          check("vector", {7}, 3),
          check("matrix", {3, 5}, 4),
          check("rank4", {2, 1, 3, 2}, 4, i64),
          check("long", {300}, 4),
          check("nothing_is_in_range", {0}, 4),
          given("all_in", {0, 3, 2}, 4, true),
          given("at_extent", {0, 4, 2}, 4, false),
          given("negative", {0, -1, 2}, 4, false),
          given("far_beyond_32_bits", {0, int64_t{1} << 40}, 4, false),
          given("ignored", {0, -100, 2}, 4, true, -100),
          given("ignored_and_bad", {-100, 4}, 4, false, -100),
          given("extent_zero", {0}, 0, false)};
}

}  // namespace

const ir::OpDef in_range_def = {
    .name = "in_range",
    .num_inputs = 1,
    .operand_names = {"index"},
    .infer = infer,
    .grad = ir::zero_gradient,
    .expand = expand,
    .flags = ir::kComposite,
    .attrs = {{"extent", ir::AttrSpec::Kind::integer, true}, {"ignore", ir::AttrSpec::Kind::integer}},
    .dtypes = {i32, i64},
    .cost = cost,
    .samples = samples,
    .precision = ir::PrecisionClass::follow,
};

Value in_range(Value index, int64_t extent, std::optional<int64_t> ignore) {
  ir::Attrs attrs = {{"extent", extent}};
  if (ignore) attrs.set("ignore", *ignore);
  return ir::emit(in_range_def, {index}, std::move(attrs));
}

}  // namespace aicf::ops
