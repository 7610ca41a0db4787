// Case J4: a parameter that skips steps would be corrected with a step counter that counts other parameters' steps.
// AICF keeps one counter a group and refuses partial updates of a group; a group of its own is right.
#include <gtest/gtest.h>

#include "support/programs.h"

namespace aicf {
namespace {

struct TwoParams {
  Model model;
  Value a, b, loss_a, loss_both;
  explicit TwoParams(const std::string& group_of_b) : model(0) {
    a = model.param("A", {f32, {}}, Init::ones());
    b = model.param("B", {f32, {}}, Init::ones(), group_of_b);
    loss_a = a * 0.5;
    loss_both = a * 0.5 + b * 0.5;
  }
};

TEST(CaseJ4, PartialUpdateOfAGroupIsRefused) {
  for (const auto& [name, optimizer] : test::all_optimizers(0.01)) {
    TwoParams m("");
    Program first = compile(m.model, {.loss = m.loss_a, .optimizer = optimizer});
    EXPECT_EQ(first.untrained(), std::vector<std::string>{"B"}) << name;
    const std::string message = test::error_of(
        [&, &rule = optimizer] { compile(m.model, {.loss = m.loss_both, .optimizer = rule, .share = first}); });
    EXPECT_NE(message.find("%B"), std::string::npos) << name << ": " << message;
  }
}

// The case's numbers, with B in a group of its own: step 1 trains A alone, step 2 both; B = 0.99 (0.992559 with A's
// counter).
TEST(CaseJ4, AGroupOfItsOwnHasItsOwnCounter) {
  TwoParams m("late");
  const optim::Optimizer adam = optim::Adam{.lr = 0.01};
  Program first = compile(m.model, {.loss = m.loss_a, .optimizer = adam});
  Program both = compile(m.model, {.loss = m.loss_both, .optimizer = adam, .share = first});
  first.step({});
  both.step({});
  EXPECT_NEAR(both.read("B").item(), 0.99, 1e-6);
  EXPECT_NEAR(both.read("A").item(), 0.98, 1e-5);
}

TEST(CaseJ4, AFrozenParameterLeavesItsGroupAndKeepsEveryBit) {
  for (const auto& [name, optimizer] : test::all_optimizers()) {
    test::SmallMlp m;
    Program p = compile(m.model, {.loss = m.loss, .optimizer = optimizer, .freeze = {"fc1.*"}});
    EXPECT_EQ(p.untrained(), (std::vector<std::string>{"fc1.weight", "fc1.bias"})) << name;
    const Tensor before = p.read("fc1.weight");
    const Tensor head = p.read("fc2.weight");
    const NamedTensors batch = test::small_mlp_batch(0);
    p.step(test::feeds_of(batch));
    EXPECT_EQ(p.read("fc1.weight"), before) << name << ": decay included";
    EXPECT_NE(p.read("fc2.weight"), head) << name;
  }
}

}  // namespace
}  // namespace aicf
