// scatter_add: base, with updates added at the places that gather would read. Repeated indices add up in index order.
#include <fmt/format.h>

#include "ops/defs.h"
#include "ops/gather.h"
#include "ops/structural.h"

namespace aicf {
namespace ops {
namespace {

std::vector<TensorType> infer(const ir::InferCtx& ctx) {
  const TensorType& base = ctx.in[0];
  if (!is_float(base.dtype) && base.dtype != i32 && base.dtype != i64) {
    throw mismatch(ctx, "a base of floats, i32 or i64", to_string(base));
  }
  const TensorType updates = {base.dtype, gathered_shape(ctx, base, ctx.in[1])};
  if (ctx.in[2] != updates) throw mismatch(ctx, "updates " + to_string(updates), to_string(ctx.in[2]));
  return {base};
}

ir::GradResult grad(const ir::GradCtx& ctx) {
  Value g = *ctx.cotangents[0];
  return {g, std::nullopt, ir::emit(gather_def, {g, ctx.in[1]}, ctx.op.attrs)};
}

ir::Cost cost(std::span<const TensorType> in, std::span<const TensorType> out, const ir::Attrs&) {
  ir::Cost c;
  c.flops = static_cast<double>(in[2].shape.elements());
  for (const TensorType& t : in) c.bytes += static_cast<double>(t.bytes());
  c.bytes += static_cast<double>(out[0].bytes());
  return c;
}

ir::Sample sample(const char* name, Shape base, Shape index, Shape updates, int64_t axis, int64_t batch_dims = 0,
                  DType dtype = i32) {
  ir::Sample s = {.name = name,
                  .inputs = {{f32, base}, {dtype, index}, {f32, updates}},
                  .attrs = {{"axis", axis}},
                  .index_extent = std::max<int64_t>(base[static_cast<int>(axis)], 1)};
  if (batch_dims != 0) s.attrs.set("batch_dims", batch_dims);
  return s;
}

std::vector<ir::Sample> samples() {
  std::vector<ir::Sample> all = {
      sample("embedding", {7, 5}, {3, 4}, {3, 4, 5}, 0),
      sample("embedding_i64", {7, 5}, {6}, {6, 5}, 0, 0, i64),
      sample("scalar_index", {4, 3}, {}, {3}, 0),
      sample("vector", {9}, {2, 5}, {2, 5}, 0),
      sample("middle_axis", {3, 4, 5}, {6}, {3, 6, 5}, 1),
      sample("last_axis", {3, 8}, {2}, {3, 2}, 1),
      sample("pick_per_row", {6, 4}, {6}, {6}, 1, 1),
      sample("batched", {2, 3, 5, 2}, {2, 4}, {2, 3, 4, 2}, 2, 1),
      sample("batched_all", {2, 3, 4}, {2, 3, 2}, {2, 3, 2}, 2, 2),
      sample("size1", {1, 1}, {1}, {1, 1}, 0),
      sample("no_picks", {4, 3}, {0}, {0, 3}, 0),
      sample("empty", {4, 0}, {2}, {2, 0}, 0),
      sample("many_rows", {200, 300}, {50}, {50, 300}, 0),
      sample("many_to_few", {3, 40}, {500}, {500, 40}, 0),
      sample("many_slabs", {90, 20, 11}, {30}, {90, 30, 11}, 1),
  };
  ir::Sample by_hand = sample("by_hand", {4, 2}, {3}, {3, 2}, 0);
  by_hand.values = {{0, Tensor::of<float>({4, 2}, {0, 0, 1, 1, 0, 0, 0, 0})},
                    {1, Tensor::of<int32_t>({3}, {0, 0, 2})},
                    {2, Tensor::of<float>({3, 2}, {1, 1, 1, 1, 1, 1})}};
  by_hand.expected = {{2, 2, 1, 1, 1, 1, 0, 0}};
  all.push_back(by_hand);
  // Such a step is refused by its input checks; the kernel must still stay inside its result.
  ir::Sample outside = sample("out_of_range_is_skipped", {2, 1}, {4}, {4, 1}, 0);
  outside.values = {{0, Tensor::of<float>({2, 1}, {0, 1})},
                    {1, Tensor::of<int32_t>({4}, {-1, 1, 2, INT32_MIN})},
                    {2, Tensor::of<float>({4, 1}, {4, 5, 6, 7})}};
  outside.expected = {{0, 6}};
  all.push_back(outside);
  return all;
}

}  // namespace

const ir::OpDef scatter_add_def = {
    .name = "scatter_add",
    .num_inputs = 3,
    .operand_names = {"base", "index", "updates"},
    .infer = infer,
    .grad = grad,
    .alias = {{0, 0}},
    .attrs = {{"axis", ir::AttrSpec::Kind::integer, true}, {"batch_dims", ir::AttrSpec::Kind::integer}},
    .dtypes = {f32, f64, bf16, f16, i64, i32},
    .cost = cost,
    .samples = samples,
    .index_operands = {{1, gather_extent}},
};

}  // namespace ops

Value scatter_add(Value base, Value index, Value updates, int axis, int batch_dims) {
  return ir::emit(ops::scatter_add_def, {base, index, updates},
                  ops::gather_attrs(ops::scatter_add_def, base.shape(), axis, batch_dims));
}

}  // namespace aicf
