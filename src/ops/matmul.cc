// matmul: a (…, M, K) times b (…, K, N); `ta`, `tb` swap the last two axes of that operand, leading axes broadcast.
//
// Precision. The operands have one dtype, or `compute` says what they are rounded to before they are multiplied: "tf32"
// (operands f32), "bf16" or "f16" (each operand f32 or that dtype). Sums are f32 (f64 of f64 operands) and are rounded
// once, to `out`: f32 or the 16-bit dtype multiplied in; without `out`, the operands' dtype where they agree, else f32.
#include "ops/matmul.h"

#include <fmt/format.h>

#include "aicf/suggest.h"
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

DType default_out(DType a, DType b) { return a == b ? a : f32; }

// Checks the operands' dtypes and returns the one multiplied in.
DType factor_dtype(const ir::InferCtx& ctx) {
  const DType a = ctx.in[0].dtype, b = ctx.in[1].dtype;
  const std::string got = fmt::format("{} and {}", name_of(a), name_of(b));
  const std::string compute = ctx.attrs.get_string("compute");
  if (compute.empty() && !ctx.attrs.has("compute")) {
    if (is_float(a) && a == b) return a;
    throw mismatch(ctx, "two operands of one float type", got, "cast one to the dtype of the other");
  }
  if (compute == "tf32") {
    if (a == f32 && b == f32) return f32;
    throw mismatch(ctx, "two f32 operands for compute=\"tf32\"", got);
  }
  const DType factor = compute == "bf16" ? bf16 : f16;
  if (compute != name_of(factor)) {
    const std::vector<std::string> known = {"tf32", "bf16", "f16"};
    throw mismatch(ctx, "compute to be tf32, bf16 or f16", fmt::format("\"{}\"", compute),
                   base::did_you_mean(compute, known));
  }
  for (const DType dtype : {a, b}) {
    if (dtype == f32 || dtype == factor) continue;
    throw mismatch(ctx, fmt::format("operands f32 or {0} for compute=\"{0}\"", compute), got);
  }
  return factor;
}

DType result_dtype(const ir::InferCtx& ctx) {
  const DType factor = factor_dtype(ctx);
  const DType out = ctx.attrs.get_dtype("out", default_out(ctx.in[0].dtype, ctx.in[1].dtype));
  const DType sums = wide(factor);
  if (out == sums || out == factor) return out;
  throw mismatch(ctx,
                 sums == factor ? fmt::format("out to be {}", name_of(sums))
                                : fmt::format("out to be {} or {}", name_of(sums), name_of(factor)),
                 std::string(name_of(out)), "cast the result");
}

std::vector<TensorType> infer(const ir::InferCtx& ctx) {
  const TensorType &a = ctx.in[0], &b = ctx.in[1];
  const bool ta = ctx.attrs.get_bool("ta"), tb = ctx.attrs.get_bool("tb");
  const DType dtype = result_dtype(ctx);
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
  return {{dtype, to_shape(dims)}};
}

// What the factors of this matmul are rounded to: "" where they are multiplied as they are, in f32 or f64.
std::string compute_of(const ir::GradCtx& ctx) {
  if (ctx.op.attrs.has("compute")) return ctx.op.attrs.get_string("compute");
  const DType dtype = ctx.in[0].dtype();
  return dtype == bf16 || dtype == f16 ? std::string(name_of(dtype)) : std::string();
}

int64_t matrices_in(const Shape& shape) { return product(shape, 0, shape.rank() - 2); }

// The gradient of `like` as a product with the cotangent g: summed where `like` was broadcast, rounded once.
Value gradient_of(const Value& like, const Value& g, Value x, Value y, MatmulOptions options) {
  const bool whole = matrices_in(g.shape()) == matrices_in(like.shape());
  options.out = whole ? like.dtype() : wide(like.dtype());
  const Value all = matmul(x, y, options);
  return whole ? reshaped(all, like.shape()) : cast(sum_to_shape(all, like.shape()), like.dtype());
}

// With C = A'·B' (A' = A or Aᵀ) and cotangent G: dA' = G·B'ᵀ and dB' = A'ᵀ·G, transposed back for a swapped operand.
ir::GradResult grad(const ir::GradCtx& ctx) {
  const bool ta = ctx.op.attrs.get_bool("ta"), tb = ctx.op.attrs.get_bool("tb");
  const Value a = ctx.in[0], b = ctx.in[1], g = *ctx.cotangents[0];
  const auto options = [&](bool first, bool second) {
    return MatmulOptions{.ta = first, .tb = second, .compute = compute_of(ctx)};
  };
  const Value da = ta ? gradient_of(a, g, b, g, options(tb, true)) : gradient_of(a, g, g, b, options(false, !tb));
  // One b for all leading axes of a: they are only more rows, so one product instead of one a batch and a sum.
  const bool rows = matrices_in(b.shape()) == 1 && !ta && a.shape().rank() == g.shape().rank();
  const Value left = rows ? rows_of(a) : a, right = rows ? rows_of(g) : g;
  const Value db = tb ? gradient_of(b, right, right, left, options(true, ta))
                      : gradient_of(b, right, left, right, options(!ta, false));
  return {da, db};
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
    .attrs = {{"compute", ir::AttrSpec::Kind::text},
              {"out", ir::AttrSpec::Kind::dtype},
              {"ta", ir::AttrSpec::Kind::boolean},
              {"tb", ir::AttrSpec::Kind::boolean}},
    .dtypes = {f32, f64},
    .cost = cost,
    .samples = samples,
};

Value matmul(Value a, Value b, const MatmulOptions& options) {
  const auto is_compute = [&](const Value& v) { return name_of(v.dtype()) == options.compute; };
  ir::Attrs attrs;
  if (!options.compute.empty() && !(is_compute(a) && is_compute(b))) attrs.set("compute", options.compute);
  if (options.out && *options.out != default_out(a.dtype(), b.dtype())) attrs.set("out", *options.out);
  if (options.ta) attrs.set("ta", true);
  if (options.tb) attrs.set("tb", true);
  return ir::emit(matmul_def, {a, b}, attrs);
}

}  // namespace ops

Value matmul(Value a, Value b, bool transpose_a, bool transpose_b) {
  return ops::matmul(a, b, {.ta = transpose_a, .tb = transpose_b});
}

}  // namespace aicf
