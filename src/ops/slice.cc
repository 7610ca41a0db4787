// slice: along every axis the elements start, start+step, … below limit.
#include <fmt/format.h>

#include <algorithm>

#include "ops/defs.h"
#include "ops/structural.h"

namespace aicf {
namespace ops {
namespace {

std::vector<int64_t> steps_of(const ir::Attrs& attrs, int rank) {
  return attrs.has("step") ? attrs.get_ints("step") : std::vector<int64_t>(rank, 1);
}

std::vector<TensorType> infer(const ir::InferCtx& ctx) {
  const Shape& in = ctx.in[0].shape;
  const std::vector<int64_t> start = extents_attr(ctx, "start", in.rank());
  const std::vector<int64_t> limit = extents_attr(ctx, "limit", in.rank());
  const std::vector<int64_t> step = steps_of(ctx.attrs, in.rank());
  if (static_cast<int>(step.size()) != in.rank() ||
      std::any_of(step.begin(), step.end(), [](auto s) { return s < 1; })) {
    throw mismatch(ctx, fmt::format("{} positive numbers in `step`, one per axis", in.rank()), list_text(step));
  }
  std::vector<int64_t> dims;
  for (int i = 0; i < in.rank(); ++i) {
    if (start[i] > limit[i] || limit[i] > in[i]) {
      throw mismatch(ctx, fmt::format("start <= limit <= {} on axis {}", in[i], i),
                     fmt::format("start {}, limit {}", start[i], limit[i]));
    }
    const int64_t span = limit[i] - start[i];
    dims.push_back(span == 0 ? 0 : (span - 1) / step[i] + 1);
  }
  return {{ctx.in[0].dtype, to_shape(dims)}};
}

// `step - 1` zeros after each element along the axis.
Value interleave_zeros(Value x, int axis, int64_t step) {
  const Shape shape = x.shape();
  const int64_t outer = product(shape, 0, axis), n = shape[axis], inner = product(shape, axis + 1, shape.rank());
  Value gaps = pad(reshape(x, {outer * n, 1, inner}), {0, 0, 0}, {0, step - 1, 0});
  return reshape(gaps, with_dim(shape, axis, n * step));
}

// The elements go back to where they were read; the rest of x's gradient is zero.
ir::GradResult grad(const ir::GradCtx& ctx) {
  const Shape in = ctx.in[0].shape();
  const std::vector<int64_t> start = ctx.op.attrs.get_ints("start");
  const std::vector<int64_t> step = steps_of(ctx.op.attrs, in.rank());
  Value g = *ctx.cotangents[0];
  if (g.shape().elements() == 0) return {zeros(g, ctx.in[0].type())};
  std::vector<int64_t> first(in.rank(), 0), fit, high;
  for (int i = 0; i < in.rank(); ++i) {
    if (g.shape()[i] > 1 && step[i] > 1) g = interleave_zeros(g, i, step[i]);
    // The zeros after the last element may reach past the end of the axis.
    fit.push_back(std::min(g.shape()[i], in[i] - start[i]));
    high.push_back(in[i] - start[i] - fit[i]);
  }
  if (to_shape(fit) != g.shape()) g = slice(g, first, fit);
  if (g.shape() != in) g = pad(g, start, high);
  return {g};
}

ir::Sample sample(const char* name, Shape shape, std::vector<int64_t> start, std::vector<int64_t> limit,
                  std::vector<int64_t> step = {}) {
  ir::Sample s = {.name = name, .inputs = {{f32, shape}}, .attrs = {{"start", start}, {"limit", limit}}};
  if (!step.empty()) s.attrs.set("step", step);
  return s;
}

std::vector<ir::Sample> samples() {
  std::vector<ir::Sample> all = {
      sample("rank0", {}, {}, {}),
      sample("vector", {9}, {2}, {7}),
      sample("rows", {6, 5}, {1, 0}, {4, 5}),
      sample("columns", {6, 5}, {0, 2}, {6, 4}),
      sample("corner", {3, 4, 5}, {1, 1, 2}, {3, 3, 5}),
      sample("stepped", {11}, {1}, {10}, {3}),
      sample("stepped_to_the_end", {10}, {0}, {10}, {3}),
      sample("stepped_axes", {5, 7, 4}, {0, 1, 1}, {5, 7, 4}, {2, 3, 1}),
      sample("step_beyond_limit", {6}, {1}, {5}, {100}),
      sample("huge_step", {6}, {1}, {5}, {INT64_MAX}),
      sample("all", {2, 3}, {0, 0}, {2, 3}),
      sample("nothing", {4, 3}, {2, 0}, {2, 3}),
      sample("empty", {0, 3}, {0, 1}, {0, 2}),
      sample("rank4", {3, 4, 5, 6}, {0, 1, 2, 0}, {3, 4, 5, 6}, {2, 1, 2, 2}),
      sample("in_parts", {310, 140}, {3, 1}, {310, 139}, {1, 2}),
  };
  ir::Sample by_hand = sample("by_hand", {2, 5}, {0, 1}, {2, 5}, {1, 2});
  by_hand.values = {{0, Tensor::of<float>({2, 5}, {0, 1, 2, 3, 4, 5, 6, 7, 8, 9})}};
  by_hand.expected = {{1, 3, 6, 8}};
  all.push_back(by_hand);
  return all;
}

}  // namespace

const ir::OpDef slice_def = {
    .name = "slice",
    .num_inputs = 1,
    .operand_names = {"x"},
    .infer = infer,
    .grad = grad,
    .attrs = {{"start", ir::AttrSpec::Kind::ints, true},
              {"limit", ir::AttrSpec::Kind::ints, true},
              {"step", ir::AttrSpec::Kind::ints}},
    .dtypes = all_dtypes(),
    .samples = samples,
    .precision = ir::PrecisionClass::follow,
};

}  // namespace ops

Value slice(Value x, const std::vector<int64_t>& start, const std::vector<int64_t>& limit,
            const std::vector<int64_t>& step) {
  ir::Attrs attrs = {{"start", start}, {"limit", limit}};
  // Absent means all ones, so that equal slices have equal text.
  if (!step.empty() && step != std::vector<int64_t>(start.size(), 1)) attrs.set("step", step);
  return ir::emit(ops::slice_def, {x}, attrs);
}

}  // namespace aicf
