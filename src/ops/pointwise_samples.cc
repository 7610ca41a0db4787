// The samples of the pointwise ops: common shapes, and each op's own edges with results worked out by hand.
#include "ops/pointwise_samples.h"

#include <limits>

#include "ops/pointwise.h"

namespace aicf::ops {

using ir::Sample;
using Samples = std::vector<Sample>;

namespace {

constexpr float kInf = std::numeric_limits<float>::infinity();
constexpr float kNan = std::numeric_limits<float>::quiet_NaN();

Sample drawn(const char* name, std::vector<TensorType> inputs, double low, double high) {
  Sample s;
  s.name = name;
  s.inputs = std::move(inputs);
  s.low = low;
  s.high = high;
  return s;
}

Tensor ints(Shape shape, const std::vector<int32_t>& data) { return Tensor::of<int32_t>(shape, data); }

Tensor bools(Shape shape, const std::vector<bool>& data) { return Tensor::of<bool>(shape, data); }

// One operand, without a gradient check.
Sample edge(const char* name, const std::vector<float>& x, const std::vector<double>& y, double tolerance = 0) {
  return by_hand(name, {values({static_cast<int64_t>(x.size())}, x)}, {y}, {}, tolerance);
}

Sample edge(const char* name, const std::vector<float>& a, const std::vector<float>& b, const std::vector<double>& y,
            double tolerance = 0) {
  const Shape shape{static_cast<int64_t>(y.size())};
  return by_hand(name, {values(shape, a), values(shape, b)}, {y}, {}, tolerance);
}

Sample int_edge(const char* name, const std::vector<int32_t>& a, const std::vector<double>& y) {
  return by_hand(name, {ints({static_cast<int64_t>(a.size())}, a)}, {y});
}

Sample int_edge(const char* name, const std::vector<int32_t>& a, const std::vector<int32_t>& b,
                const std::vector<double>& y) {
  const Shape shape{static_cast<int64_t>(y.size())};
  return by_hand(name, {ints(shape, a), ints(shape, b)}, {y});
}

// Every pair of -1, 0, 1 and NaN against the truth values of a comparison.
Samples comparison(const std::vector<double>& truth) {
  const std::vector<float> v = {-1, 0, 1, kNan};
  std::vector<float> a, b;
  for (float x : v) {
    for (float y : v) {
      a.push_back(x);
      b.push_back(y);
    }
  }
  const Samples bytes = {by_hand("bool_operands",
                                 {bools({4}, {false, false, true, true}), bools({4}, {false, true, false, true})},
                                 {{truth[5], truth[6], truth[9], truth[10]}})};
  return binary_samples() + of_dtype(binary_samples(), i32) + of_dtype(binary_samples(), i64) +
         of_dtype(binary_samples(), u8) + bytes + Samples{edge("all_pairs_and_nan", a, b, truth)};
}

}  // namespace

Samples operator+(Samples samples, Samples more) {
  samples.insert(samples.end(), more.begin(), more.end());
  return samples;
}

Samples unary_samples(double low, double high) {
  return {drawn("scalar", floats({{}}), low, high),          drawn("vector", floats({{7}}), low, high),
          drawn("matrix", floats({{3, 5}}), low, high),      drawn("rank3", floats({{2, 3, 4}}), low, high),
          drawn("rank4", floats({{2, 1, 3, 2}}), low, high), drawn("one", floats({{1}}), low, high),
          drawn("empty", floats({{0, 3}}), low, high),       drawn("long", floats({{67}}), low, high)};
}

Samples binary_samples(double low, double high) {
  Samples samples = {drawn("scalars", floats({{}, {}}), low, high),
                     drawn("vectors", floats({{7}, {7}}), low, high),
                     drawn("matrices", floats({{3, 5}, {3, 5}}), low, high),
                     drawn("rank4", floats({{2, 1, 3, 2}, {2, 1, 3, 2}}), low, high),
                     drawn("outer", floats({{3, 1}, {1, 4}}), low, high),
                     drawn("row_left", floats({{4}, {2, 3, 4}}), low, high),
                     drawn("row_right", floats({{2, 3, 4}, {4}}), low, high),
                     drawn("column", floats({{2, 1, 4, 6}, {2, 1, 4, 1}}), low, high),
                     drawn("scalar_left", floats({{}, {5}}), low, high),
                     drawn("scalar_right", floats({{5}, {}}), low, high),
                     drawn("one_left", floats({{1}, {5, 7}}), low, high),
                     drawn("empty", floats({{0, 3}, {3}}), low, high),
                     drawn("long", floats({{67}, {67}}), low, high)};
  Sample same = drawn("same_operand", floats({{5}, {5}}), low, high);
  same.same_as = {-1, 0};
  samples.push_back(std::move(same));
  return samples;
}

Samples away_from_kinks(Samples samples) {
  const std::vector<float> numbers[2] = {{-1.75f, -1.3f, -0.7f, -0.2f, 0.2f, 0.8f, 1.3f, 1.65f},
                                         {-1.6f, 0.1f, 1.1f, -0.4f, 0.9f, -1.1f, 1.4f}};
  for (Sample& s : samples) {
    for (size_t i = 0; i < s.inputs.size(); ++i) {
      if (i < s.same_as.size() && s.same_as[i] >= 0) continue;
      s.values.emplace_back(static_cast<int>(i), cycle(s.inputs[i].shape, numbers[i % 2]));
    }
  }
  return samples;
}

Samples of_dtype(Samples samples, DType dtype) {
  for (Sample& s : samples) {
    for (TensorType& t : s.inputs) t.dtype = dtype;
    if (dtype == boolean) s.index_extent = 2;
    s.name += "_" + std::string(name_of(dtype));
  }
  return samples;
}

Samples samples_abs() {
  return away_from_kinks(unary_samples()) + of_dtype(unary_samples(), i64) +
         Samples{edge("kink_at_zero", {-3, 0, 2}, {3, 0, 2}), int_edge("integers", {-3, 0, 2}, {3, 0, 2})};
}

Samples samples_add() {
  return binary_samples() + of_dtype(binary_samples(), i32) + of_dtype(binary_samples(), i64) +
         Samples{by_hand("outer_by_hand", {values({2, 1}, {1, 2}), values({1, 3}, {10, 20, 30})},
                         {{11, 21, 31, 12, 22, 32}})};
}

Samples samples_cast() {
  Samples samples;
  const std::pair<DType, DType> pairs[] = {{f32, f64}, {f32, bf16}, {f32, f16},     {f32, i32},     {f32, i64},
                                           {f32, u8},  {i32, f32},  {i64, f32},     {i32, i64},     {i64, i32},
                                           {u8, f32},  {u8, i32},   {boolean, f32}, {f32, boolean}, {boolean, i32},
                                           {i32, u8},  {f32, f32}};
  for (const auto& [from, to] : pairs) {
    Sample s = drawn("", {{from, {3, 5}}}, 0.25, 2);
    s.name = std::string(name_of(from)) + "_to_" + std::string(name_of(to));
    s.attrs = {{"to", to}};
    if (from == boolean) s.index_extent = 2;
    // Differences of a step, or of a result rounded to less than f64, say nothing of the slope.
    s.check_grad = to == f64;
    samples.push_back(std::move(s));
  }
  samples.push_back(by_hand("truncates_towards_zero", {values({5}, {-1.75f, -0.5f, 0, 0.75f, 2.5f})},
                            {{-1, 0, 0, 0, 2}}, {{"to", i32}}));
  samples.push_back(by_hand("bool_is_not_zero", {values({4}, {-1, 0, 0.5f, 2})}, {{1, 0, 1, 1}}, {{"to", boolean}}));
  Sample empty = drawn("empty", floats({{0}}), 0, 1);
  empty.attrs = {{"to", i32}};
  samples.push_back(std::move(empty));
  Sample scalar = drawn("scalar", floats({{}}), 0, 1);
  scalar.attrs = {{"to", f64}};
  samples.push_back(std::move(scalar));
  return samples;
}

Samples samples_ceil() {
  return away_from_kinks(unary_samples()) + Samples{edge("steps", {-1.5f, -1, 0, 0.25f, 2}, {-1, -1, 0, 1, 2})};
}

Samples samples_cos() { return unary_samples(-6, 6) + Samples{edge("at_zero", {0}, {1}, 1e-6)}; }

Samples samples_div() {
  return binary_samples(0.5, 2) + Samples{edge("by_zero", {1, -1, 6, 0}, {0, 0, 2, 5}, {kInf, -kInf, 3, 0})};
}

Samples samples_equal() { return comparison({1, 0, 0, 0, 0, 1, 0, 0, 0, 0, 1, 0, 0, 0, 0, 0}); }

Samples samples_erf() { return unary_samples(-3, 3) + Samples{edge("saturated", {-30, 0, 30}, {-1, 0, 1}, 1e-6)}; }

Samples samples_exp() { return unary_samples() + Samples{edge("ends", {-kInf, -300, 0, kInf}, {0, 0, 1, kInf}, 1e-6)}; }

Samples samples_expm1() {
  return unary_samples() + Samples{edge("ends", {-kInf, -300, 0, kInf}, {-1, -1, 0, kInf}, 1e-6)};
}

Samples samples_floor() {
  return away_from_kinks(unary_samples()) + Samples{edge("steps", {-1.5f, -1, 0, 0.75f, 2}, {-2, -1, 0, 0, 2})};
}

Samples samples_greater() { return comparison({0, 0, 0, 0, 1, 0, 0, 0, 1, 1, 0, 0, 0, 0, 0, 0}); }
Samples samples_greater_equal() { return comparison({1, 0, 0, 0, 1, 1, 0, 0, 1, 1, 1, 0, 0, 0, 0, 0}); }
Samples samples_less() { return comparison({0, 1, 1, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0}); }
Samples samples_less_equal() { return comparison({1, 1, 1, 0, 0, 1, 1, 0, 0, 0, 1, 0, 0, 0, 0, 0}); }
Samples samples_not_equal() { return comparison({0, 1, 1, 1, 1, 0, 1, 1, 1, 1, 0, 1, 1, 1, 1, 1}); }

Samples samples_isfinite() {
  return unary_samples() + Samples{edge("each_kind", {1, 0, kInf, -kInf, kNan}, {1, 1, 0, 0, 0})};
}

Samples samples_log() {
  return unary_samples(0.1, 3) + Samples{edge("infinite_slope_at_zero", {0, 1, kInf}, {-kInf, 0, kInf}, 1e-6)};
}

Samples samples_log1p() {
  return unary_samples(-0.5, 2) + Samples{edge("infinite_slope_at_minus_one", {-1, 0, kInf}, {-kInf, 0, kInf}, 1e-6)};
}

Samples samples_logical_and() {
  return of_dtype(binary_samples(), boolean) +
         Samples{by_hand("table", {bools({2, 1}, {false, true}), bools({1, 2}, {false, true})}, {{0, 0, 0, 1}})};
}

Samples samples_logical_or() {
  return of_dtype(binary_samples(), boolean) +
         Samples{by_hand("table", {bools({2, 1}, {false, true}), bools({1, 2}, {false, true})}, {{0, 1, 1, 1}})};
}

Samples samples_logical_not() {
  return of_dtype(unary_samples(), boolean) + Samples{by_hand("table", {bools({2}, {false, true})}, {{1, 0}})};
}

// One value as both operands is a tie at every element, and the halves add up to the slope of x itself.
Samples samples_maximum() {
  return away_from_kinks(binary_samples()) + of_dtype(binary_samples(), i32) + of_dtype(binary_samples(), i64) +
         Samples{edge("ties_and_infinities", {1, 2, -kInf, kInf}, {1, -3, 0, 0}, {1, 2, 0, kInf}),
                 edge("nan_wins", {kNan, 1}, {1, kNan}, {kNan, kNan})};
}

Samples samples_minimum() {
  return away_from_kinks(binary_samples()) + of_dtype(binary_samples(), i32) + of_dtype(binary_samples(), i64) +
         Samples{edge("ties_and_infinities", {1, 2, -kInf, kInf}, {1, -3, 0, 0}, {1, -3, -kInf, 0}),
                 edge("nan_wins", {kNan, 1}, {1, kNan}, {kNan, kNan})};
}

Samples samples_mul() {
  return binary_samples() + of_dtype(binary_samples(), i32) + of_dtype(binary_samples(), i64) +
         Samples{int_edge("integers", {-3, 0, 70000}, {5, 7, 3}, {-15, 0, 210000})};
}

Samples samples_neg() { return unary_samples() + of_dtype(unary_samples(), i32) + of_dtype(unary_samples(), i64); }

Samples samples_pow() {
  return binary_samples(0.5, 2) + Samples{edge("zero_base_and_exponent", {0, 0, 0, 2, -2, -2}, {0, 1, 2, -1, 2, 3},
                                               {1, 0, 0, 0.5, 4, -8}, 1e-6)};
}

Samples samples_relu() {
  return away_from_kinks(unary_samples()) + Samples{edge("kink_at_zero", {-1, 0, 2, kInf, -kInf}, {0, 0, 2, kInf, 0})};
}

Samples samples_round() {
  return away_from_kinks(unary_samples()) +
         Samples{edge("half_to_even", {-2.5f, -1.5f, -0.5f, 0.5f, 1.5f, 2.5f, 2.75f}, {-2, -2, 0, 0, 2, 2, 3})};
}

Samples samples_select() {
  const auto three = [](const char* name, Shape c, Shape a, Shape b) {
    Sample s = drawn(name, {{boolean, c}, {f32, a}, {f32, b}}, -2, 2);
    s.index_extent = 2;
    return s;
  };
  Samples samples = {three("scalars", {}, {}, {}),
                     three("vectors", {67}, {67}, {67}),
                     three("rank4", {2, 1, 3, 2}, {2, 1, 3, 2}, {2, 1, 3, 2}),
                     three("mask_row", {4}, {2, 3, 4}, {2, 3, 4}),
                     three("mask_column", {3, 1}, {3, 4}, {}),
                     three("scalar_condition", {}, {3, 4}, {3, 4}),
                     three("all_broadcast", {2, 1, 1}, {3, 1}, {4}),
                     three("one", {1}, {1}, {1}),
                     three("empty", {0, 3}, {3}, {1})};
  Sample same = three("same_branches", {5}, {5}, {5});
  same.same_as = {-1, -1, 1};
  samples.push_back(std::move(same));
  samples.push_back(by_hand(
      "branch_not_taken_is_not_read",
      {bools({4}, {true, false, true, false}), values({4}, {1, kNan, kInf, -kInf}), values({4}, {kNan, 2, 0, 3})},
      {{1, 2, kInf, 3}}));
  samples.push_back(by_hand("integers", {bools({2}, {true, false}), ints({2}, {1, 2}), ints({}, {7})}, {{1, 7}}));
  samples.push_back(
      by_hand("bools", {bools({2}, {true, false}), bools({2}, {true, true}), bools({}, {false})}, {{1, 0}}));
  return samples;
}

Samples samples_sigmoid() {
  return unary_samples(-4, 4) + Samples{edge("saturated", {-300, 0, 300}, {0, 0.5, 1}, 1e-6)};
}

Samples samples_sign() {
  return away_from_kinks(unary_samples()) + Samples{edge("steps", {-2, 0, 3, kInf, -kInf}, {-1, 0, 1, 1, -1}),
                                                    int_edge("integers", {-2, 0, 3}, {-1, 0, 1})};
}

Samples samples_sin() { return unary_samples(-6, 6) + Samples{edge("at_zero", {0}, {0}, 1e-6)}; }

Samples samples_sqrt() {
  return unary_samples(0.1, 3) + Samples{edge("infinite_slope_at_zero", {0, 1, 9, kInf}, {0, 1, 3, kInf})};
}

Samples samples_sub() { return binary_samples() + of_dtype(binary_samples(), i32) + of_dtype(binary_samples(), i64); }

Samples samples_tanh() { return unary_samples(-3, 3) + Samples{edge("saturated", {-300, 0, 300}, {-1, 0, 1}, 1e-6)}; }

}  // namespace aicf::ops
