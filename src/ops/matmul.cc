// matmul: a (…, M, K) times b (…, K, N); `ta`, `tb` swap the last two axes of that operand, leading axes broadcast.
#include <fmt/format.h>

#include "ops/defs.h"
#include "ops/numeric.h"
#include "ops/structural.h"

namespace aicf {
namespace ops {
namespace {

// The operand's axes as the product sees them.
struct Side {
  Shape lead;
  int64_t rows = 0, cols = 0;
};

Side side_of(const Shape& shape, bool transposed) {
  const int rank = shape.rank();
  Side side;
  side.lead = Shape(shape.dims().first(rank - 2));
  side.rows = shape[rank - (transposed ? 1 : 2)];
  side.cols = shape[rank - (transposed ? 2 : 1)];
  return side;
}

std::string swap_hint(const TensorType& b, bool tb, int64_t inner) {
  const int64_t other = side_of(b.shape, !tb).rows;
  if (other != inner) return {};
  return tb ? "leave transpose_b out" : "pass transpose_b = true to swap the last two axes of b";
}

std::vector<TensorType> infer(const ir::InferCtx& ctx) {
  const TensorType &a = ctx.in[0], &b = ctx.in[1];
  const bool ta = ctx.attrs.get_bool("ta"), tb = ctx.attrs.get_bool("tb");
  if (!is_float(a.dtype) || a.dtype != b.dtype) {
    throw mismatch(ctx, "two operands of one float type", fmt::format("{} and {}", name_of(a.dtype), name_of(b.dtype)),
                   "cast one to the dtype of the other");
  }
  for (const TensorType* t : {&a, &b}) {
    if (t->shape.rank() < 2) {
      throw mismatch(ctx, "operands of rank 2 or more", to_string(*t), "reshape a vector to [1,n] or [n,1]");
    }
  }
  const Side left = side_of(a.shape, ta), right = side_of(b.shape, tb);
  if (left.cols != right.rows) {
    throw mismatch(ctx,
                   fmt::format("axis {} of b to be {}, as axis {} of a is", b.shape.rank() - (tb ? 1 : 2), left.cols,
                               a.shape.rank() - (ta ? 2 : 1)),
                   fmt::format("{}", right.rows), swap_hint(b, tb, left.cols));
  }
  Shape lead;
  if (!broadcast_shapes(left.lead, right.lead, lead)) {
    throw mismatch(ctx, "leading axes that broadcast",
                   fmt::format("{} and {}", to_string(left.lead), to_string(right.lead)));
  }
  std::vector<int64_t> dims = to_vector(lead);
  dims.push_back(left.rows);
  dims.push_back(right.cols);
  return {{a.dtype, to_shape(dims)}};
}

// With C = A'·B' (A' = A or Aᵀ) and cotangent G: dA' = G·B'ᵀ and dB' = A'ᵀ·G, transposed back for a swapped operand.
ir::GradResult grad(const ir::GradCtx& ctx) {
  const bool ta = ctx.op.attrs.get_bool("ta"), tb = ctx.op.attrs.get_bool("tb");
  const Value a = ctx.in[0], b = ctx.in[1], g = *ctx.cotangents[0];
  const Shape a_shape = a.shape(), b_shape = b.shape();
  const Value da = sum_to_shape(ta ? matmul(b, g, tb, true) : matmul(g, b, false, !tb), a_shape);
  const auto db_of = [&](Value a, Value g) { return tb ? matmul(g, a, true, ta) : matmul(a, g, !ta, false); };
  // One b for all leading axes of a: they are only more rows, so one product instead of one a batch and a sum.
  const bool b_is_matrix = product(b_shape, 0, b_shape.rank() - 2) == 1;
  if (b_is_matrix && !ta && a_shape.rank() == g.shape().rank()) {
    return {da, reshaped(db_of(rows_of(a), rows_of(g)), b_shape)};
  }
  return {da, sum_to_shape(db_of(a, g), b_shape)};
}

ir::Cost cost(std::span<const TensorType> in, std::span<const TensorType> out, const ir::Attrs& attrs) {
  const int64_t inner = side_of(in[0].shape, attrs.get_bool("ta")).cols;
  ir::Cost c;
  c.flops = 2.0 * static_cast<double>(out[0].shape.elements()) * static_cast<double>(inner);
  for (const TensorType& t : in) c.bytes += static_cast<double>(t.bytes());
  c.bytes += static_cast<double>(out[0].bytes());
  return c;
}

ir::Sample sample(const char* name, Shape a, Shape b, bool ta = false, bool tb = false) {
  ir::Sample s = {.name = name, .inputs = {{f32, a}, {f32, b}}};
  if (ta) s.attrs.set("ta", true);
  if (tb) s.attrs.set("tb", true);
  return s;
}

std::vector<ir::Sample> samples() {
  std::vector<ir::Sample> all = {
      sample("nn", {3, 4}, {4, 5}),
      sample("nt", {3, 4}, {5, 4}, false, true),
      sample("tn", {4, 3}, {4, 5}, true, false),
      sample("tt", {4, 3}, {5, 4}, true, true),
      sample("row_times_column", {1, 7}, {7, 1}),
      sample("column_times_row", {6, 1}, {1, 5}),
      sample("size1", {1, 1}, {1, 1}),
      sample("batched", {2, 3, 4}, {2, 4, 5}),
      sample("batched_tt", {2, 4, 3}, {2, 5, 4}, true, true),
      sample("shared_b", {2, 3, 4}, {4, 5}),
      sample("shared_b_nt", {2, 2, 3, 4}, {5, 4}, false, true),
      sample("shared_b_tn", {2, 4, 3}, {4, 5}, true, false),
      sample("shared_b_of_rank_3", {2, 3, 4}, {1, 4, 5}),
      sample("shared_a", {3, 4}, {2, 4, 5}),
      sample("shared_a_tn", {4, 3}, {2, 4, 5}, true, false),
      sample("shared_a_tt", {4, 3}, {2, 5, 4}, true, true),
      sample("broadcast_both_ways", {2, 1, 3, 4}, {3, 4, 2}),
      sample("broadcast_size1", {1, 3, 4}, {1, 4, 2}),
      sample("broadcast_higher_b", {3, 4}, {1, 1, 4, 2}),
      sample("no_rows", {0, 4}, {4, 5}),
      sample("no_inner", {3, 0}, {0, 5}),
      sample("no_batch", {0, 3, 4}, {4, 5}),
      sample("odd_sizes", {37, 53}, {53, 29}),
      sample("odd_sizes_nt", {67, 131}, {75, 131}, false, true),
      sample("odd_sizes_tn", {131, 67}, {131, 75}, true, false),
      sample("odd_sizes_tt", {90, 41}, {33, 90}, true, true),
      sample("long_inner", {5, 700}, {700, 9}),
      sample("wide", {2, 64}, {64, 300}),
      sample("tall", {300, 64}, {64, 3}),
  };
  ir::Sample square = sample("repeated_operand", {4, 4}, {4, 4});
  square.same_as = {-1, 0};
  all.push_back(square);
  ir::Sample gram = sample("repeated_operand_nt", {2, 3, 4}, {2, 3, 4}, false, true);
  gram.same_as = {-1, 0};
  all.push_back(gram);
  ir::Sample by_hand = sample("by_hand", {2, 2}, {2, 2});
  by_hand.values = {{0, Tensor::of<float>({2, 2}, {1, 2, 3, 4})}, {1, Tensor::of<float>({2, 2}, {5, 6, 7, 8})}};
  by_hand.expected = {{19, 22, 43, 50}};
  all.push_back(by_hand);
  return all;
}

}  // namespace

const ir::OpDef matmul_def = {
    .name = "matmul",
    .num_inputs = 2,
    .operand_names = {"a", "b"},
    .infer = infer,
    .grad = grad,
    .attrs = {{"ta", ir::AttrSpec::Kind::boolean}, {"tb", ir::AttrSpec::Kind::boolean}},
    .dtypes = {f32, f64},
    .cost = cost,
    .samples = samples,
};

}  // namespace ops

Value matmul(Value a, Value b, bool transpose_a, bool transpose_b) {
  ir::Attrs attrs;
  if (transpose_a) attrs.set("ta", true);
  if (transpose_b) attrs.set("tb", true);
  return ir::emit(ops::matmul_def, {a, b}, attrs);
}

}  // namespace aicf
