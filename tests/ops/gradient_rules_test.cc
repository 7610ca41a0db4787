// Gradients where finite differences say nothing: ties, kinks, gradients of the user's own.
#include <gtest/gtest.h>

#include <functional>
#include <vector>

#include "aicf/model.h"
#include "aicf/ops.h"
#include "aicf/program.h"

namespace aicf {
namespace {

// d(sum of f(x) times `upstream`)/dx; an empty `upstream` is all ones.
std::vector<double> gradient(const std::vector<float>& x, const std::function<Value(Value)>& f,
                             const std::vector<float>& upstream = {}) {
  Model m;
  const Shape shape{static_cast<int64_t>(x.size())};
  const Value w = m.param("w", {f32, shape});
  Value y = f(w);
  if (!upstream.empty()) y = y * m.constant(Tensor::of<float>(y.shape(), upstream));
  Program p = compile(m, {.loss = sum(y), .fetch = {"w.grad"}, .backend = "cpu"});
  p.write("w", Tensor::of<float>(shape, x));
  return p.step({})["w.grad"].to_doubles();
}

using Doubles = std::vector<double>;

TEST(GradientRules, TiesOfAReductionShareEvenly) {
  const std::vector<float> x = {3, 1, 3, 2};
  EXPECT_EQ(gradient(x, [](Value v) { return max(v); }), (Doubles{0.5, 0, 0.5, 0}));
  EXPECT_EQ(gradient(x, [](Value v) { return min(v); }), (Doubles{0, 1, 0, 0}));
  EXPECT_EQ(gradient({7, 7, 7, 7},
                     [](Value v) {
                       return max(reshape(v, {2, 2}), {0, 1});
                     }),
            (Doubles{0.25, 0.25, 0.25, 0.25}));
}

TEST(GradientRules, TiesOfTwoOperandsAreSplitInHalf) {
  const auto against_one = [](Value (*op)(Value, Value)) {
    return gradient({0, 1, 2}, [op](Value v) { return op(v, literal(v, 1)); });
  };
  EXPECT_EQ(against_one(maximum), (Doubles{0, 0.5, 1}));
  EXPECT_EQ(against_one(minimum), (Doubles{1, 0.5, 0}));
  EXPECT_EQ(gradient({5}, [](Value v) { return maximum(v, v); }), (Doubles{1}));
}

TEST(GradientRules, KinksAtZero) {
  EXPECT_EQ(gradient({-1, 0, 2}, relu), (Doubles{0, 0, 1}));
  EXPECT_EQ(gradient({-1, 0, 2}, abs), (Doubles{-1, 0, 1}));
}

// x·Π others, with no, one and two zeros: no division by what is zero.
TEST(GradientRules, ProductsWithZeros) {
  const auto product = [](Value v) { return prod(v); };
  EXPECT_EQ(gradient({2, 3, 4}, product), (Doubles{12, 8, 6}));
  EXPECT_EQ(gradient({2, 0, 4}, product), (Doubles{0, 8, 0}));
  EXPECT_EQ(gradient({0, 0, 4, 5, 6}, product), (Doubles{0, 0, 0, 0, 0}));
  EXPECT_EQ(gradient({1e30f, 1e30f}, product), (Doubles{1e30f, 1e30f})) << "the product overflows, its slopes do not";
}

// x^p at x = 0 and at p = 0.
TEST(GradientRules, PowerAtZero) {
  const auto power = [](double p) { return [p](Value v) { return pow(v, literal(v, p)); }; };
  EXPECT_EQ(gradient({0, 3}, power(2)), (Doubles{0, 6}));
  EXPECT_EQ(gradient({0, 3}, power(1)), (Doubles{1, 1}));
  EXPECT_EQ(gradient({0, 3}, power(0)), (Doubles{0, 0}));
  const auto exponent = [](double x) { return [x](Value v) { return pow(literal(v, x), v); }; };
  EXPECT_EQ(gradient({0, 1, 2}, exponent(0)), (Doubles{0, 0, 0}));
  EXPECT_EQ(gradient({0, 1, 2}, exponent(1)), (Doubles{0, 0, 0}));
}

TEST(GradientRules, StopGradientPassesNothing) {
  EXPECT_EQ(gradient({2, 3}, [](Value v) { return v * stop_gradient(v); }), (Doubles{2, 3}));
}

TEST(GradientRules, WithGradientUsesTheUsersRule) {
  const auto rounded = [](Value v) {
    return with_gradient(
        {v}, [](const auto& in) { return round(in[0]); },
        [](const auto& in, Value y, Value dy) { return std::vector{dy * in[0] + (y - y) + 1.0}; });
  };
  EXPECT_EQ(gradient({2, -3}, rounded, {10, 100}), (Doubles{21, -299}));
}

// One region used twice, two inputs, one of them without a gradient.
TEST(GradientRules, WithGradientOfSeveralInputs) {
  const auto f = [](Value v) {
    const auto product = [](const auto& in) { return in[0] * in[1]; };
    const auto first_only = [](const auto& in, Value, Value dy) { return std::vector{dy * in[1], Value()}; };
    return with_gradient({v, v * 2.0}, product, first_only) + with_gradient({v * 3.0, v}, product, first_only);
  };
  // y1 = v·(2v): dv = 2v. y2 = (3v)·v: 3·v. The second operands give nothing.
  EXPECT_EQ(gradient({1, 2}, f), (Doubles{5, 10}));
}

}  // namespace
}  // namespace aicf
