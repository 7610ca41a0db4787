// fused: a region of ops that is run in one go, without a value of it in memory but the results. It means its ops run
// one by one, bit for bit.
#include <fmt/format.h>

#include "ops/defs.h"
#include "ops/loops.h"
#include "ops/numeric.h"
#include "ops/region_op.h"
#include "ops/rng_bits.h"
#include "ops/samples.h"
#include "ops/structural.h"

namespace aicf::ops {
namespace {

std::vector<TensorType> infer(const ir::InferCtx& ctx) {
  std::vector<TensorType> types = infer_body(ctx);
  std::string why;
  if (!loops_of(*ctx.region, &why)) throw mismatch(ctx, "a body that is one set of loops", why);
  return types;
}

std::vector<ir::AliasRule> alias_of(const ir::Op& op) { return alias_rules_of(*loops_of(*op.region), *op.region); }

using Values = std::vector<Value>;

constexpr auto sample = region_sample;

// The dtypes are the point.
ir::Sample typed(ir::Sample s) {
  s.as_typed = true;
  return s;
}

Values softmax_of(Value x, int axis) {
  const Value shifted = x - max(x, {axis}, true);
  const Value e = exp(shifted);
  return {e / sum(e, {axis}, true)};
}

// Rows of f32 whatever the operands are.
Values layer_norm_of(const Values& v) {
  const Value x = widen(v[0]);
  const double n = static_cast<double>(x.shape()[1]);
  const Value centred = x - sum(x, {1}, true) / n;
  const Value scale = rsqrt(sum(centred * centred, {1}, true) / n + 1e-5);
  return {cast(centred * scale * widen(v[1]) + widen(v[2]), v[0].dtype()), scale};
}

// The cotangents of x, gamma and beta, with sums over the rows.
Values layer_norm_gradient_of(const Values& v) {
  const Value x = widen(v[0]), dy = widen(v[1]);
  const double n = static_cast<double>(x.shape()[1]);
  const Value normal = x * v[3];
  const Value g = dy * widen(v[2]);
  const Value along = normal * (sum(g * normal, {1}, true) / n);
  return {cast((g - sum(g, {1}, true) / n - along) * v[3], v[0].dtype()), sum(dy * normal, {0}), sum(dy, {0})};
}

Values adamw_of(const Values& v) {
  const Value m = v[1] + (v[3] - v[1]) * v[4];
  const Value s = v[2] + (v[3] * v[3] - v[2]) * v[4];
  return {v[0] * v[5] - m / (sqrt(s) + v[6]), m, s};
}

std::vector<ir::Sample> pointwise_samples() {
  const auto two = [](const char* name, Shape a, Shape b) {
    return sample(name, floats({a, b}), [](Values v) { return Values{relu(v[0] * v[1] + v[1])}; });
  };
  std::vector<ir::Sample> all = {
      two("scalars", {}, {}),
      two("vector", {7}, {7}),
      two("rows_by_a_vector", {5, 33}, {33}),
      two("rows_by_a_column", {5, 33}, {5, 1}),
      two("rank4", {2, 3, 4, 5}, {3, 1, 5}),
      two("in_parts", {300, 257}, {257}),
      two("size1", {1, 1}, {1}),
      sample("two_results", floats({{40}, {40}}),
             [](Values v) {
               return Values{v[0] + v[1], exp(v[0] - v[1])};
             }),
      sample("a_result_read_again", floats({{6, 10}}),
             [](Values v) {
               const Value t = tanh(v[0]);
               return Values{t, t * t};
             }),
      sample("a_view_between", floats({{4, 6}, {24}}),
             [](Values v) { return Values{reshape(v[0] * 2.0, {24}) + v[1]}; }),
      sample("transposed", floats({{35, 66}, {66, 35}}),
             [](Values v) {
               return Values{transpose(v[0], {1, 0}) * v[1]};
             }),
      sample("heads", floats({{2, 5, 3 * 8}, {24}}),
             [](Values v) {
               const Value x = reshape(v[0] + v[1], {2, 5, 3, 2, 4});
               const auto head = [&](int64_t k) {
                 const Value part = reshape(slice(x, {0, 0, k, 0, 0}, {2, 5, k + 1, 2, 4}), {2, 5, 2, 4});
                 return transpose(part, {0, 2, 1, 3});
               };
               return Values{head(0), head(1), head(2)};
             }),
      sample("every_second", floats({{9, 10}}),
             [](Values v) {
               return Values{neg(slice(v[0], {1, 0}, {9, 10}, {2, 3}))};
             }),
      sample("a_mask_of_indices", floats({{3, 8, 8}}),
             [](Values v) {
               const Value row = iota(v[0], i32, {8, 8}, 0), column = iota(v[0], i32, {8, 8}, 1);
               return Values{select(greater_equal(row, column), v[0], literal(v[0], -1))};
             }),
      sample("an_odd_window", floats({{6, 40}, {33}}),
             [](Values v) {
               return Values{slice(v[0], {1, 3}, {6, 36}) * v[1]};
             }),
      sample("numbers", floats({{5, 9}}),
             [](Values v) {
               const auto number = [&](DType dtype, int axis) { return cast(iota(v[0], dtype, {5, 9}, axis), f32); };
               const Value whole = number(i32, 0) + number(i64, 1) + number(u8, 1);
               return Values{v[0] * iota(v[0], v[0].dtype(), {5, 9}, 1), whole + number(f32, 0)};
             }),
      sample("a_chain_of_casts", {{f32, {70}}, {i32, {70}}},
             [](Values v) {
               return Values{cast(cast(v[0] * 8.0, i32) + v[1], f32), greater(v[0], cast(v[1], f32))};
             }),
      sample("gathered", {{f32, {9, 12}}, {i32, {4, 5}}, {f32, {5, 12}}},
             [](Values v) { return Values{gather(v[0], v[1]) + v[2]}; }),
      sample("draws", {{f32, {9, 37}}, {i64, {}}, {i64, {}}},
             [](Values v) {
               const Value bits = rng_bits(v[1], v[2], {9, 37}, 3);
               return Values{select(less(bits, literal(bits, 1 << 29)), v[0], literal(v[0], 0)), bits};
             }),
      sample("draws_read_across", {{i64, {}}, {i64, {}}},
             [](Values v) {
               const Value bits = rng_bits(v[0], v[1], {35, 6}, 0);
               return Values{transpose(bits, {1, 0}) + literal(bits, 1)};
             }),
      sample("adamw", floats({{31, 40}, {31, 40}, {31, 40}, {31, 40}, {}, {}, {}}), adamw_of),
  };
  all.back().low = 0.1;
  all[all.size() - 2].index_extent = 9;
  // Nothing is read beyond the operand.
  ir::Sample outside = sample("gathered_from_outside", {{f32, {3, 2}}, {i32, {4}}},
                              [](Values v) { return Values{gather(v[0], v[1]) + 1.0}; });
  outside.values = {{0, values({3, 2}, {1, 2, 3, 4, 5, 6})}, {1, Tensor::of<int32_t>({4}, {2, -1, 3, 0})}};
  outside.expected = {{6, 7, 1, 1, 1, 1, 2, 3}};
  all.push_back(std::move(outside));
  ir::Sample repeated = sample("a_repeated_operand", floats({{4, 5}, {4, 5}}), [](Values v) {
    return Values{v[0] * v[1], v[0] - v[1]};
  });
  repeated.same_as = {-1, 0};
  repeated.unused_output = 1;
  all.push_back(std::move(repeated));
  all.push_back(typed(sample("bf16_and_f32", {{bf16, {9, 20}}, {f32, {20}}, {f16, {9, 1}}}, [](Values v) {
    const Value y = cast(v[0], f32) * v[1] + cast(v[2], f32);
    return Values{cast(y, bf16), cast(tanh(y), f16)};
  })));
  // A product of bf16 is rounded before it is used again.
  ir::Sample rounded =
      sample("rounded_between", {{bf16, {2}}, {bf16, {2}}}, [](Values v) { return Values{(v[0] + v[1]) - v[0]}; });
  rounded.values = {{0, Tensor(TensorType{bf16, {2}})}, {1, Tensor(TensorType{bf16, {2}})}};
  set_element(bf16, rounded.values[0].second.data(), 0, 2);
  set_element(bf16, rounded.values[1].second.data(), 0, 0x1p-8);
  all.push_back(typed(std::move(rounded)));
  return all;
}

std::vector<ir::Sample> row_samples() {
  const auto softmax = [](const char* name, Shape x) {
    const int last = x.rank() - 1;
    return sample(name, floats({x}), [last](Values v) { return softmax_of(v[0], last); });
  };
  std::vector<ir::Sample> all = {
      softmax("softmax", {6, 33}),
      softmax("softmax_of_one_row", {70}),
      softmax("softmax_rank4", {2, 3, 5, 16}),
      softmax("softmax_short_rows", {90, 3}),
      softmax("softmax_long_rows", {3, 2500}),
      softmax("softmax_many", {300, 128}),
      softmax("softmax_longer_rows", {2, 9001}),
      sample("masked_softmax", floats({{2, 3, 8, 8}}),
             [](Values v) {
               const Value row = iota(v[0], i32, {8, 8}, 0), column = iota(v[0], i32, {8, 8}, 1);
               return softmax_of(select(greater_equal(row, column), v[0] * 0.25, literal(v[0], -100)), 3);
             }),
      sample("softmax_gradient", floats({{7, 40}, {7, 40}}),
             [](Values v) { return Values{(v[1] - sum(v[1] * v[0], {1}, true)) * v[0]}; }),
      sample("row_results_beside", floats({{9, 65}}),
             [](Values v) {
               const Value top = max(v[0], {1}), total = sum(exp(v[0] - reshape(top, {9, 1})), {1});
               return Values{top, log(total), v[0] - reshape(top, {9, 1})};
             }),
      sample("three_stages", floats({{5, 70}}),
             [](Values v) {
               const Value p = softmax_of(v[0], 1)[0], size = sqrt(sum(p * p, {1}, true));
               return Values{p / size, reshape(size, {5}), max(p, {1})};
             }),
      sample("a_sum_repeated_over_its_row", floats({{6, 19}}),
             [](Values v) {
               return Values{broadcast(sum(v[0], {1}, true), {6, 19})};
             }),
      sample("cross_entropy", {{f32, {20, 37}}, {i32, {20}}},
             [](Values v) {
               const Value top = max(v[0], {1}, true), e = exp(v[0] - top), total = sum(e, {1}, true);
               const Value hit = equal(iota(v[1], i32, {1, 37}, 1), reshape(v[1], {20, 1}));
               const Value p = e / total, of_label = gather(v[0], v[1], 1, 1) - reshape(top, {20});
               return Values{log(reshape(total, {20})) - of_label, select(hit, p - 1.0, p) * (1.0 / 20)};
             }),
      sample("layer_norm", floats({{11, 48}, {48}, {48}}), layer_norm_of),
      sample("layer_norm_gradient", floats({{150, 24}, {150, 24}, {24}, {150, 1}}), layer_norm_gradient_of),
      sample("layer_norm_gradient_few_rows", floats({{3, 130}, {3, 130}, {130}, {3, 1}}), layer_norm_gradient_of),
      sample("layer_norm_gradient_long_rows", floats({{3, 17000}, {3, 17000}, {17000}, {3, 1}}),
             layer_norm_gradient_of),
      sample("layer_norm_gradient_many_rows", floats({{4500, 8}, {4500, 8}, {8}, {4500, 1}}), layer_norm_gradient_of),
  };
  for (ir::Sample& s : all) {
    if (s.name == "cross_entropy") s.index_extent = 37;
  }
  // 16 bits keep too few digits of a sum over thousands.
  for (ir::Sample& s : all) {
    if (s.name == "softmax_long_rows" || s.name == "softmax_longer_rows" || s.name.starts_with("layer_norm")) {
      s.as_typed = true;
    }
  }
  all.push_back(typed(sample("layer_norm_bf16", {{bf16, {70, 96}}, {bf16, {96}}, {bf16, {96}}}, layer_norm_of)));
  all.push_back(
      typed(sample("layer_norm_gradient_bf16", {{bf16, {70, 96}}, {bf16, {70, 96}}, {bf16, {96}}, {f32, {70, 1}}},
                   layer_norm_gradient_of)));
  return all;
}

std::vector<ir::Sample> reduce_samples() {
  const auto squares = [](const char* name, Shape x, std::vector<int> axes) {
    ir::Sample s = sample(name, floats({x, x}), [axes](Values v) {
      const Value d = v[0] - v[1];
      return Values{d * 2.0, sqrt(sum(d * d, axes))};
    });
    s.as_typed = x.elements() > 1000;
    return s;
  };
  std::vector<ir::Sample> all = {
      squares("rows", {6, 50}, {1}),
      squares("columns", {70, 30}, {0}),
      squares("middle", {3, 20, 7}, {1}),
      squares("everything", {40, 20}, {0, 1}),
      squares("long_vector", {70000}, {0}),
      squares("tall_columns", {5000, 9}, {0}),
      squares("wide_columns", {130, 700}, {0}),
      squares("one_element_rows", {5, 1}, {0}),
      sample("two_sums", floats({{300, 20}, {300, 20}, {20}}),
             [](Values v) {
               return Values{sum(v[0], {0}) * v[2], max(v[1], {0}) + v[2]};
             }),
      sample("the_update_of_a_bias", floats({{64, 10}, {10}, {10}, {}}),
             [](Values v) {
               const Value m = v[2] + (sum(v[0], {0}) - v[2]) * v[3];
               return Values{v[1] - m, m};
             }),
      sample("finite", floats({{33, 9}}),
             [](Values v) {
               return Values{cast(min(cast(isfinite(v[0]), i32), {0, 1}), boolean)};
             }),
      sample("counted", {{i32, {3000}}},
             [](Values v) { return Values{sum(cast(not_equal(v[0], literal(v[0], 3)), i32), {0})}; }),
  };
  return all;
}

std::vector<ir::Sample> epilogue_samples() {
  const auto product = [](Values v, bool tb) { return matmul(v[0], v[1], false, tb); };
  return {
      sample("linear_relu", floats({{10, 33}, {17, 33}, {17}}),
             [&](Values v) { return Values{relu(product(v, true) + v[2])}; }),
      sample("draws_after_a_product", {{f32, {10, 33}}, {f32, {17, 33}}, {i64, {}}, {i64, {}}},
             [&](Values v) {
               const Value bits = rng_bits(v[2], v[3], {10, 17}, 2), y = product(v, true);
               return Values{select(less(bits, literal(bits, 0)), y, literal(y, 0))};
             }),
      sample("product_kept_too", floats({{40, 20}, {20, 70}, {70}}),
             [&](Values v) {
               const Value y = product(v, false) + v[2];
               return Values{y, tanh(y)};
             }),
      sample("the_product_itself", floats({{18, 24}, {24, 10}}),
             [&](Values v) {
               const Value y = product(v, false);
               return Values{sigmoid(y), y};
             }),
      sample("batched", floats({{3, 9, 20}, {3, 11, 20}, {3, 9, 11}}),
             [&](Values v) { return Values{product(v, true) * 0.25 + v[2]}; }),
      sample("the_update_of_a_weight", floats({{30, 12}, {30, 20}, {12, 20}, {12, 20}, {}}),
             [](Values v) {
               const Value m = v[3] + (matmul(v[0], v[1], true, false) - v[3]) * v[4];
               return Values{v[2] - m, m};
             }),
      typed(sample("bf16_factors_f32_sums", {{bf16, {24, 40}}, {bf16, {24, 40}}, {f32, {24}}},
                   [](Values v) {
                     const Value y = ir::emit(matmul_def, {v[0], v[1]}, {{"out", f32}, {"tb", true}}) + v[2];
                     return Values{cast(relu(y), bf16)};
                   })),
  };
}

std::vector<ir::Sample> samples() {
  std::vector<ir::Sample> all = pointwise_samples();
  for (ir::Sample& s : epilogue_samples()) all.push_back(std::move(s));
  for (ir::Sample& s : row_samples()) all.push_back(std::move(s));
  for (ir::Sample& s : reduce_samples()) all.push_back(std::move(s));
  return all;
}

}  // namespace

const ir::OpDef fused_def = {
    .name = "fused",
    .num_inputs = ir::kVariadic,
    .operand_names = {"operands"},
    .infer = infer,
    .grad = ir::not_differentiable,
    .alias_of = alias_of,
    .dtypes = {f32, f64, bf16, f16},
    .samples = samples,
};

}  // namespace aicf::ops
