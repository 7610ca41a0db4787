// matmul: a (…, M, K) times b (…, K, N); `ta`, `tb` swap the last two axes of that operand, leading axes broadcast.
// Its precision: ops/compute.h.
#include "ops/matmul.h"

#include <fmt/format.h>

#include "ops/compute.h"
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
  const std::string compute = compute_of(ctx.op.attrs, a.dtype(), b.dtype());
  const auto options = [&](bool first, bool second) {
    return MatmulOptions{.ta = first, .tb = second, .compute = compute};
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

// Operands of these dtypes, whatever dtype the samples are tested in.
ir::Sample typed(const std::string& name, TensorType a, TensorType b, const std::string& compute,
                 std::optional<DType> out, bool ta = false, bool tb = false) {
  ir::Sample s = sample("", a.shape, b.shape, ta, tb);
  s.name = name;
  s.inputs = {a, b};
  s.as_typed = true;
  if (!compute.empty()) s.attrs.set(kCompute, compute);
  if (out) s.attrs.set(kOut, *out);
  return s;
}

void add_precision_samples(std::vector<ir::Sample>& all) {
  all.push_back(typed("tf32_nn", {f32, {3, 40}}, {f32, {40, 5}}, "tf32", {}));
  all.push_back(typed("tf32_nt", {f32, {33, 20}}, {f32, {17, 20}}, "tf32", f32, false, true));
  all.push_back(typed("tf32_tn", {f32, {40, 3}}, {f32, {40, 5}}, "tf32", {}, true, false));
  all.push_back(typed("tf32_tt", {f32, {2, 5, 3}}, {f32, {4, 5}}, "tf32", {}, true, true));
  for (const DType narrow : {bf16, f16}) {
    const std::string name(name_of(narrow));
    all.push_back(typed(name + "_of_f32_nn", {f32, {3, 40}}, {f32, {40, 5}}, name, {}));
    all.push_back(typed(name + "_of_f32_rounded_nt", {f32, {33, 20}}, {f32, {17, 20}}, name, narrow, false, true));
    all.push_back(typed(name + "_left_tn", {narrow, {40, 3}}, {f32, {40, 5}}, name, {}, true, false));
    all.push_back(typed(name + "_left_rounded_tt", {narrow, {7, 3}}, {f32, {5, 7}}, name, narrow, true, true));
    all.push_back(typed(name + "_right_nt", {f32, {3, 40}}, {narrow, {5, 40}}, name, {}, false, true));
    all.push_back(typed(name + "_right_rounded_nn", {f32, {2, 3, 8}}, {narrow, {8, 5}}, name, narrow));
    all.push_back(typed(name + "_to_f32_nn", {narrow, {3, 40}}, {narrow, {40, 5}}, "", f32));
    all.push_back(typed(name + "_to_f32_tt", {narrow, {2, 1, 8, 3}}, {narrow, {3, 5, 8}}, name, f32, true, true));
    all.push_back(typed(name + "_no_inner", {f32, {3, 0}}, {narrow, {0, 5}}, name, narrow));
    all.push_back(typed(name + "_no_rows", {f32, {0, 3}}, {narrow, {3, 5}}, name, narrow));
  }
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
  // 1 + 2^-9 is 1 in bf16 and in tf32 it is itself: 2^-9 is left of the difference, or nothing.
  ir::Sample rounds = typed("by_hand_rounded_to_bf16", {f32, {1, 2}}, {f32, {2, 1}}, "bf16", {});
  rounds.values = {{0, Tensor::of<float>({1, 2}, {1 + 0x1p-9f, -1})}, {1, Tensor::of<float>({2, 1}, {1, 1})}};
  rounds.expected = {{0}};
  all.push_back(rounds);
  rounds.name = "by_hand_kept_in_tf32";
  rounds.attrs.set(kCompute, std::string("tf32"));
  rounds.expected = {{0x1p-9}};
  all.push_back(rounds);
  add_precision_samples(all);
  return all;
}

}  // namespace

const ir::OpDef matmul_def = {
    .name = "matmul",
    .num_inputs = 2,
    .operand_names = {"a", "b"},
    .infer = infer,
    .grad = grad,
    .attrs = {{kCompute, ir::AttrSpec::Kind::text},
              {kOut, ir::AttrSpec::Kind::dtype},
              {"ta", ir::AttrSpec::Kind::boolean},
              {"tb", ir::AttrSpec::Kind::boolean}},
    .dtypes = {f32, f64, bf16, f16},
    .cost = cost,
    .samples = samples,
    .precision = ir::PrecisionClass::compute,
};

Value matmul(Value a, Value b, const MatmulOptions& options) {
  ir::Attrs attrs;
  set_compute(attrs, a.dtype(), b.dtype(), options.compute, options.out.value_or(a.dtype()));
  if (!options.out) attrs.erase(kOut);
  if (options.ta) attrs.set("ta", true);
  if (options.tb) attrs.set("tb", true);
  return ir::emit(matmul_def, {a, b}, attrs);
}

}  // namespace ops

Value matmul(Value a, Value b, bool transpose_a, bool transpose_b) {
  return ops::matmul(a, b, {.ta = transpose_a, .tb = transpose_b});
}

}  // namespace aicf
