// Optimizer arithmetic, each case worked out by hand from the published formula, in f64 and in f32.
#include <gtest/gtest.h>

#include "optim/step.h"

namespace aicf::optim {
namespace {

// f32: a dozen roundings of values near 1.
double tolerance(DType dtype) { return dtype == f64 ? 1e-12 : 1e-6; }

class JOptimizerArithmetic : public testing::TestWithParam<DType> {
 protected:
  TestStep make(const Optimizer& optimizer, double p) {
    TestStep step(optimizer, {{"p", {GetParam(), {}}, ""}});
    step.set("p", p);
    return step;
  }
};

TEST_P(JOptimizerArithmetic, J1_EpsilonIsAddedToTheCorrectedRoot) {
  for (const Optimizer& optimizer : {Optimizer(Adam{.lr = 1, .eps = 1e-3}), Optimizer(AdamW{.lr = 1, .eps = 1e-3})}) {
    TestStep step = make(optimizer, 0);
    step.set("p.grad", 1e-3);
    step.step();
    EXPECT_NEAR(step.get("p"), -0.5, tolerance(GetParam()));
  }
}

TEST_P(JOptimizerArithmetic, J2_AdamDecaysThroughTheGradientAdamWDoesNot) {
  TestStep adam = make(Adam{.lr = 0.1, .weight_decay = 0.1}, 1);
  adam.step();
  // The update is lr·g/(|g| + eps) at t = 1, and eps = 1e-8 moves it by lr·eps/g.
  EXPECT_NEAR(adam.get("p"), 0.9, tolerance(GetParam()) + 1e-8);
  EXPECT_NEAR(adam.get("optimizer.m/p"), 0.01, tolerance(GetParam()));
  TestStep adamw = make(AdamW{.lr = 0.1, .weight_decay = 0.1}, 1);
  adamw.step();
  EXPECT_NEAR(adamw.get("p"), 0.99, tolerance(GetParam()));
  EXPECT_EQ(adamw.get("optimizer.m/p"), 0);
}

TEST_P(JOptimizerArithmetic, J3_DecoupledDecayDoesNotMultiplyTheUpdate) {
  TestStep step = make(AdamW{.lr = 0.1, .weight_decay = 0.1}, 1);
  step.set("p.grad", 1);
  step.step();
  EXPECT_NEAR(step.get("p"), 0.89, tolerance(GetParam()) + 1e-9);  // eps: lr·1e-8
}

TEST_P(JOptimizerArithmetic, J5_SgdDecaysFirstAndTheFirstBufferIsTheGradient) {
  TestStep decay = make(SGD{.lr = 0.1, .weight_decay = 0.1}, 1);
  decay.step();
  EXPECT_NEAR(decay.get("p"), 0.99, tolerance(GetParam()));
  TestStep momentum = make(SGD{.lr = 0.1, .momentum = 0.9, .dampening = 0.5}, 1);
  momentum.set("p.grad", 1);
  momentum.step();
  EXPECT_NEAR(momentum.get("p"), 0.9, tolerance(GetParam()));
  momentum.step();
  EXPECT_NEAR(momentum.get("p"), 0.76, tolerance(GetParam()));
}

INSTANTIATE_TEST_SUITE_P(Dtypes, JOptimizerArithmetic, testing::Values(f64, f32),
                         [](const auto& info) { return std::string(name_of(info.param)); });

}  // namespace
}  // namespace aicf::optim
