// The reductions: sums, products and extremes over adjacent axes, and argmax.
#include <fmt/format.h>

#include <algorithm>

#include "aicf/error.h"
#include "ops/defs.h"
#include "ops/numeric.h"
#include "ops/reduce.h"
#include "ops/reduce_samples.h"
#include "ops/structural.h"

namespace aicf {
namespace ops {

ReduceDims reduce_dims(const Shape& x, const ir::Attrs& attrs) {
  const std::vector<int64_t> axes = attrs.has("axis") ? std::vector{attrs.get_int("axis")} : attrs.get_ints("axes");
  const int begin = static_cast<int>(axes.front()), end = static_cast<int>(axes.back()) + 1;
  return {product(x, 0, begin), product(x, begin, end), product(x, end, x.rank())};
}

namespace {

using ir::GradCtx;
using ir::GradResult;

// --- shape rules ------------------------------------------------------------------------------------------------

std::vector<int64_t> axes_attr(const ir::InferCtx& ctx) {
  std::vector<int64_t> axes = ctx.attrs.get_ints("axes");
  const int rank = ctx.in[0].shape.rank();
  if (axes.empty()) throw mismatch(ctx, "one axis or more in `axes`", "none");
  for (size_t i = 0; i < axes.size(); ++i) {
    if (axes[i] < 0 || axes[i] >= rank) {
      throw mismatch(ctx, fmt::format("axes below the rank, {}", rank), list_text(axes));
    }
    if (i > 0 && axes[i] != axes[i - 1] + 1) {
      throw mismatch(ctx, "ascending, adjacent axes", list_text(axes), "reduce one group of adjacent axes at a time");
    }
  }
  return axes;
}

Shape reduced(const Shape& shape, const std::vector<int64_t>& axes, bool keepdims) {
  std::vector<int64_t> dims;
  for (int i = 0; i < shape.rank(); ++i) {
    const bool gone = std::find(axes.begin(), axes.end(), i) != axes.end();
    if (!gone) dims.push_back(shape[i]);
    if (gone && keepdims) dims.push_back(1);
  }
  return to_shape(dims);
}

// An extreme of nothing does not exist.
void check_not_empty(const ir::InferCtx& ctx, const std::vector<int64_t>& axes) {
  for (int64_t axis : axes) {
    if (ctx.in[0].shape[static_cast<int>(axis)] == 0) {
      throw mismatch(ctx, "at least one element to choose from", fmt::format("axis {} of extent 0", axis));
    }
  }
}

std::vector<TensorType> infer_arith(const ir::InferCtx& ctx) {
  const DType dtype = ctx.in[0].dtype;
  if (dtype == u8 || dtype == boolean) {
    throw mismatch(ctx, "floats, i64 or i32", std::string(name_of(dtype)), "cast it to i32");
  }
  const std::vector<int64_t> axes = axes_attr(ctx);
  return {{dtype, reduced(ctx.in[0].shape, axes, ctx.attrs.get_bool("keepdims"))}};
}

std::vector<TensorType> infer_extreme(const ir::InferCtx& ctx) {
  const std::vector<int64_t> axes = axes_attr(ctx);
  check_not_empty(ctx, axes);
  return {{ctx.in[0].dtype, reduced(ctx.in[0].shape, axes, ctx.attrs.get_bool("keepdims"))}};
}

std::vector<TensorType> infer_argmax(const ir::InferCtx& ctx) {
  const DType dtype = ctx.in[0].dtype;
  if (dtype == u8 || dtype == boolean) throw mismatch(ctx, "floats, i64 or i32", std::string(name_of(dtype)));
  const std::vector<int64_t> axes = {axis_attr(ctx, ctx.in[0].shape.rank())};
  check_not_empty(ctx, axes);
  return {{i32, reduced(ctx.in[0].shape, axes, ctx.attrs.get_bool("keepdims"))}};
}

// --- gradients --------------------------------------------------------------------------------------------------

std::vector<int64_t> axes_of(const GradCtx& ctx) { return ctx.op.attrs.get_ints("axes"); }

// The result or its cotangent with the reduced axes put back as 1, so that it broadcasts against the operand.
Value kept(const GradCtx& ctx, Value y) { return reshaped(y, reduced(ctx.in[0].shape(), axes_of(ctx), true)); }

GradResult grad_sum(const GradCtx& ctx) { return {broadcast(kept(ctx, *ctx.cotangents[0]), ctx.in[0].shape())}; }

// The cotangent goes in equal shares to the elements that equal the extreme.
GradResult grad_extreme(const GradCtx& ctx) {
  const Value x = ctx.in[0];
  const Value ties = equal(x, kept(ctx, ctx.out[0]));
  const std::vector<int64_t> axes64 = axes_of(ctx);
  const std::vector<int> axes(axes64.begin(), axes64.end());
  const Value dy = widen(kept(ctx, *ctx.cotangents[0]));
  // Counted in i32: a 16-bit float cannot count far.
  const Value share = cast(dy / cast(sum(cast(ties, i32), axes, true), dy.dtype()), x.dtype());
  return {select(ties, share, literal(share, 0))};
}

// The product of all elements of a row but one, for each of them, x being (outer, n, inner): the products of pairs go
// up a tree, those of everything else come down. n multiplications and no division, so zeros and infinities come out
// right.
Value product_of_others(Value x) {
  const Shape shape = x.shape();
  const int64_t n = shape[1];
  if (n <= 1) return filled(x, x.type(), 1);
  const Value even = n % 2 == 0 ? x : pad(x, {0, 0, 0}, {0, 1, 0}, 1);
  const std::vector<Value> pair = split(reshape(even, {shape[0], (n + 1) / 2, 2, shape[2]}), 2, 2);
  const Shape half{shape[0], (n + 1) / 2, shape[2]};
  const Value left = reshape(pair[0], half), right = reshape(pair[1], half);
  const Value above = product_of_others(left * right);
  const Shape one{shape[0], (n + 1) / 2, 1, shape[2]};
  const Value both = concat({reshape(above * right, one), reshape(above * left, one)}, 2);
  const Value all = reshape(both, {shape[0], n + n % 2, shape[2]});
  return n % 2 == 0 ? all : slice(all, {0, 0, 0}, to_vector(shape));
}

GradResult grad_prod(const GradCtx& ctx) {
  const Value x = ctx.in[0];
  const Shape shape = x.shape();
  const ReduceDims dims = reduce_dims(shape, ctx.op.attrs);
  const Shape folded{dims.outer, dims.n, dims.inner};
  const Value others = reshaped(product_of_others(reshaped(widen(x), folded)), shape);
  return {cast(widen(kept(ctx, *ctx.cotangents[0])) * others, x.dtype())};
}

// --- records ----------------------------------------------------------------------------------------------------

ir::Cost cost(std::span<const TensorType> in, std::span<const TensorType> out, const ir::Attrs&) {
  return cost_per_element(in, out, 1);
}

ir::OpDef record(const char* name, ir::InferFn infer, GradResult (*grad)(const GradCtx&), std::vector<DType> dtypes,
                 ir::SamplesFn samples) {
  using Kind = ir::AttrSpec::Kind;
  ir::OpDef def;
  def.name = name;
  def.num_inputs = 1;
  def.operand_names = {"x"};
  def.infer = infer;
  def.grad = grad;
  def.flags = ir::kReduction;
  def.attrs = {{"axes", Kind::ints, true}, {"keepdims", Kind::boolean}};
  def.dtypes = std::move(dtypes);
  def.cost = cost;
  def.samples = samples;
  return def;
}

ir::OpDef argmax_record() {
  ir::OpDef def = record("argmax", infer_argmax, ir::zero_gradient, {f32, f64, bf16, f16, i64, i32}, samples_argmax);
  def.attrs[0] = {"axis", ir::AttrSpec::Kind::integer, true};
  def.precision = ir::PrecisionClass::follow;
  return def;
}

}  // namespace

const ir::OpDef argmax_def = argmax_record();
const ir::OpDef reduce_max_def = record("reduce_max", infer_extreme, grad_extreme, all_dtypes(), samples_reduce_max);
const ir::OpDef reduce_min_def = record("reduce_min", infer_extreme, grad_extreme, all_dtypes(), samples_reduce_min);
const ir::OpDef reduce_prod_def =
    record("reduce_prod", infer_arith, grad_prod, {f32, f64, bf16, f16, i64, i32}, samples_reduce_prod);
const ir::OpDef reduce_sum_def =
    record("reduce_sum", infer_arith, grad_sum, {f32, f64, bf16, f16, i64, i32}, samples_reduce_sum);

namespace {

// Non-negative, ascending, without repeats; all axes when the list is empty.
std::vector<int> normalized(const ir::OpDef& def, const std::vector<int>& axes, int rank) {
  std::vector<int> all;
  for (int axis : axes) all.push_back(normalize_axis(def, axis, rank));
  for (int i = 0; axes.empty() && i < rank; ++i) all.push_back(i);
  std::sort(all.begin(), all.end());
  if (const auto twice = std::adjacent_find(all.begin(), all.end()); twice != all.end()) {
    throw Error(fmt::format("{}: axis {} is given twice", def.name, *twice));
  }
  return all;
}

// One op for each group of adjacent axes, the last group first: the axes before it keep their numbers.
Value reduce(const ir::OpDef& def, Value x, const std::vector<int>& wanted, bool keepdims) {
  std::vector<int> axes = normalized(def, wanted, x.shape().rank());
  while (!axes.empty()) {
    size_t first = axes.size() - 1;
    while (first > 0 && axes[first - 1] == axes[first] - 1) --first;
    const std::vector<int64_t> group(axes.begin() + static_cast<std::ptrdiff_t>(first), axes.end());
    axes.resize(first);
    ir::Attrs attrs = {{"axes", group}};
    if (keepdims) attrs.set("keepdims", true);
    x = ir::emit(def, {x}, std::move(attrs));
  }
  return x;
}

// Several groups of a 16-bit float pass through f32, so that only the result is rounded.
Value reduce_wide(const ir::OpDef& def, Value x, const std::vector<int>& axes, bool keepdims) {
  return cast(reduce(def, widen(x), axes, keepdims), x.dtype());
}

}  // namespace
}  // namespace ops

Value sum(Value x, const std::vector<int>& axes, bool keepdims) {
  return ops::reduce_wide(ops::reduce_sum_def, x, axes, keepdims);
}

Value prod(Value x, const std::vector<int>& axes, bool keepdims) {
  return ops::reduce_wide(ops::reduce_prod_def, x, axes, keepdims);
}

Value max(Value x, const std::vector<int>& axes, bool keepdims) {
  return ops::reduce(ops::reduce_max_def, x, axes, keepdims);
}

Value min(Value x, const std::vector<int>& axes, bool keepdims) {
  return ops::reduce(ops::reduce_min_def, x, axes, keepdims);
}

Value mean(Value x, const std::vector<int>& axes, bool keepdims) {
  if (!is_float(x.dtype())) {
    throw Error(fmt::format("mean({}): expected floats, got {}", to_string(x.type()), name_of(x.dtype())),
                "cast it to f32");
  }
  int64_t count = 1;
  for (int axis : ops::normalized(ops::reduce_sum_def, axes, x.shape().rank())) count *= x.shape()[axis];
  const Value total = sum(ops::widen(x), axes, keepdims);
  return cast(total / static_cast<double>(count), x.dtype());
}

Value argmax(Value x, int axis, bool keepdims) {
  ir::Attrs attrs = {{"axis", int64_t{ops::normalize_axis(ops::argmax_def, axis, x.shape().rank())}}};
  if (keepdims) attrs.set("keepdims", true);
  return ir::emit(ops::argmax_def, {x}, std::move(attrs));
}

}  // namespace aicf
