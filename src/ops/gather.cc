// gather: elements of x picked by index along one axis.
#include "ops/gather.h"

#include <fmt/format.h>

#include "ops/defs.h"
#include "ops/structural.h"

namespace aicf {
namespace ops {

GatherDims gather_dims(const Shape& x, const Shape& index, const ir::Attrs& attrs) {
  const int axis = static_cast<int>(attrs.get_int("axis"));
  const int batch = static_cast<int>(attrs.get_int("batch_dims"));
  return {.batch = product(x, 0, batch),
          .outer = product(x, batch, axis),
          .extent = x[axis],
          .inner = product(x, axis + 1, x.rank()),
          .picks = product(index, batch, index.rank())};
}

Shape gathered_shape(const ir::InferCtx& ctx, const TensorType& x, const TensorType& index) {
  const int axis = axis_attr(ctx, x.shape.rank());
  const int64_t batch = ctx.attrs.get_int("batch_dims");
  if (index.dtype != i32 && index.dtype != i64) {
    throw mismatch(ctx, "an i32 or i64 index", to_string(index), "cast the index to i32");
  }
  if (batch < 0 || batch > axis || batch > index.shape.rank()) {
    throw mismatch(ctx, fmt::format("batch_dims from 0 to {}", std::min(axis, index.shape.rank())),
                   fmt::format("{}", batch));
  }
  std::vector<int64_t> dims;
  for (int i = 0; i < batch; ++i) {
    if (x.shape[i] != index.shape[i]) {
      throw mismatch(ctx, fmt::format("an index of extent {} on batch axis {}", x.shape[i], i), to_string(index));
    }
  }
  dims.insert(dims.end(), x.shape.begin(), x.shape.begin() + axis);
  dims.insert(dims.end(), index.shape.begin() + batch, index.shape.end());
  dims.insert(dims.end(), x.shape.begin() + axis + 1, x.shape.end());
  if (static_cast<int>(dims.size()) > kMaxRank) {
    throw mismatch(ctx, fmt::format("a result of rank at most {}", kMaxRank), fmt::format("rank {}", dims.size()));
  }
  return to_shape(dims);
}

int64_t gather_extent(std::span<const TensorType> in, const ir::Attrs& attrs) {
  return in[0].shape[static_cast<int>(attrs.get_int("axis"))];
}

ir::Attrs gather_attrs(const ir::OpDef& def, const Shape& x, int axis, int batch_dims) {
  ir::Attrs attrs = {{"axis", int64_t{normalize_axis(def, axis, x.rank())}}};
  if (batch_dims != 0) attrs.set("batch_dims", int64_t{batch_dims});
  return attrs;
}

namespace {

std::vector<TensorType> infer(const ir::InferCtx& ctx) {
  return {{ctx.in[0].dtype, gathered_shape(ctx, ctx.in[0], ctx.in[1])}};
}

ir::GradResult grad(const ir::GradCtx& ctx) {
  Value g = *ctx.cotangents[0];
  const TensorType type = ctx.in[0].type();
  return {ir::emit(scatter_add_def, {zeros(g, type), ctx.in[1], g}, ctx.op.attrs), std::nullopt};
}

ir::Sample sample(const char* name, Shape x, Shape index, int64_t axis, int64_t batch_dims = 0, DType dtype = i32) {
  ir::Sample s = {.name = name,
                  .inputs = {{f32, x}, {dtype, index}},
                  .attrs = {{"axis", axis}},
                  .index_extent = std::max<int64_t>(x[static_cast<int>(axis)], 1)};
  if (batch_dims != 0) s.attrs.set("batch_dims", batch_dims);
  return s;
}

std::vector<ir::Sample> samples() {
  std::vector<ir::Sample> all = {
      sample("embedding", {7, 5}, {3, 4}, 0),
      sample("embedding_i64", {7, 5}, {6}, 0, 0, i64),
      sample("scalar_index", {4, 3}, {}, 0),
      sample("vector", {9}, {2, 5}, 0),
      sample("middle_axis", {3, 4, 5}, {6}, 1),
      sample("last_axis", {3, 8}, {2}, 1),
      sample("pick_per_row", {6, 4}, {6}, 1, 1),
      sample("batched", {2, 3, 5, 2}, {2, 4}, 2, 1),
      sample("batched_all", {2, 3, 4}, {2, 3, 2}, 2, 2),
      sample("size1", {1, 1}, {1}, 0),
      sample("no_picks", {4, 3}, {0}, 0),
      sample("empty_inner", {4, 0}, {2}, 0),
      sample("in_parts", {60, 33}, {700}, 0),
  };
  ir::Sample by_hand = sample("by_hand", {2, 2}, {3}, 0);
  by_hand.values = {{0, Tensor::of<float>({2, 2}, {0, 1, 2, 3})}, {1, Tensor::of<int32_t>({3}, {1, 0, 1})}};
  by_hand.expected = {{2, 3, 0, 1, 2, 3}};
  all.push_back(by_hand);
  // Such a step is refused by its input checks; the kernel must still stay inside its operand.
  ir::Sample outside = sample("out_of_range_gives_0", {2, 2}, {4}, 0);
  outside.values = {{0, Tensor::of<float>({2, 2}, {4, 5, 6, 7})}, {1, Tensor::of<int32_t>({4}, {-1, 1, 2, INT32_MAX})}};
  outside.expected = {{0, 0, 6, 7, 0, 0, 0, 0}};
  all.push_back(outside);
  return all;
}

}  // namespace

const ir::OpDef gather_def = {
    .name = "gather",
    .num_inputs = 2,
    .operand_names = {"x", "index"},
    .infer = infer,
    .grad = grad,
    .attrs = {{"axis", ir::AttrSpec::Kind::integer, true}, {"batch_dims", ir::AttrSpec::Kind::integer}},
    .dtypes = all_dtypes(),
    .samples = samples,
    .index_operands = {{1, gather_extent}},
    .precision = ir::PrecisionClass::follow,
};

}  // namespace ops

Value gather(Value x, Value index, int axis, int batch_dims) {
  return ir::emit(ops::gather_def, {x, index}, ops::gather_attrs(ops::gather_def, x.shape(), axis, batch_dims));
}

}  // namespace aicf
