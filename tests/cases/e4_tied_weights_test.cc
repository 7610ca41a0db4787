// Case E4: tied weights: one parameter, one summed gradient, one update, one state; for every optimizer and every
// layer.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "support/programs.h"

namespace aicf {
namespace {

// L = 2w + 3w through two uses of one w = 1.
TEST(CaseE4, OneSummedGradientAndOneUpdate) {
  const auto w_after = [](const optim::Optimizer& optimizer) {
    Model m;
    const Value w = m.param("w", {f32, {}}, Init::ones());
    const Value loss = w * 2.0 + w * 3.0;
    Program p = compile(m, {.loss = loss, .optimizer = optimizer});
    p.step({});
    return p.read("w").item();
  };
  EXPECT_FLOAT_EQ(w_after(optim::SGD{.lr = 0.1}), 0.5f);
  EXPECT_NEAR(w_after(optim::Adam{.lr = 0.1}), 0.9, 1e-6);
}

int count(const std::vector<std::string>& names, const std::string& part) {
  return static_cast<int>(std::count_if(names.begin(), names.end(),
                                        [&](const std::string& n) { return n.find(part) != std::string::npos; }));
}

TEST(CaseE4, ALayerAddedTwiceSharesItsParameters) {
  for (const auto& [name, optimizer] : test::all_optimizers()) {
    Model m;
    const nn::Linear layer(3);
    const Value x = m.input("x", {f32, {2, 3}});
    const Value loss = sum(m.add(layer, m.add(layer, x, "tied"), "tied"));
    Program p = compile(m, {.loss = loss, .optimizer = optimizer});
    EXPECT_EQ(p.params(), (std::vector<std::string>{"tied.weight", "tied.bias"}));
    EXPECT_LE(count(p.states(), "/tied.weight"), 2) << name << ": at most one state of each kind";
    EXPECT_EQ(count(p.states(), "optimizer.m/tied.weight"), count(p.states(), "optimizer.v/tied.weight"));
  }
}

// An embedding whose table is also the output head.
TEST(CaseE4, TiedEmbeddingAndHead) {
  Model m;
  const Value ids = m.input("ids", {i32, {2}});
  const Value table = m.param("wte", {f32, {4, 3}}, Init::normal(0, 1));
  const Value logits = matmul(gather(table, ids), table, false, true);
  const Value loss = cross_entropy(logits, ids);
  Program p = compile(m, {.loss = loss, .optimizer = optim::AdamW{.lr = 0.1}, .fetch = {"wte.grad"}});
  const StepResult r = p.step({{"ids", Tensor::of<int32_t>({2}, {1, 1})}});
  EXPECT_EQ(r["wte.grad"].shape(), (Shape{4, 3}));
  EXPECT_NE(r["wte.grad"].at(3), 0.0) << "the embedding's contribution";
  EXPECT_NE(r["wte.grad"].at(0), 0.0) << "the head's contribution to a row that was not looked up";
  EXPECT_EQ(count(p.states(), "/wte"), 2);
}

// One parameter, one pair of moments; and its gradient has what the head gives (that it is the whole sum, the
// comparison with PyTorch shows: runtime/gpt_reference_test).
TEST(CaseE4, TheHeadOfAGptIsItsTokenTable) {
  const Tensor tokens = Tensor::of<int32_t>({2, 3}, {1, 4, 1, 0, 2, 4});
  Model m;
  const Value x = m.input("x", {i32, {2, 3}}), y = m.input("y", {i32, {2, 3}});
  const nn::GptOptions options = {.vocabulary = 5, .context = 3, .layers = 1, .width = 4, .heads = 2};
  const Value loss = cross_entropy(m.add(nn::Gpt(options), x, "gpt"), y);
  Program p = compile(m, {.loss = loss, .optimizer = optim::AdamW{}, .fetch = {"gpt.wte.weight.grad"}});
  EXPECT_EQ(count(p.params(), "wte"), 1);
  EXPECT_EQ(count(p.params(), "head"), 0);
  EXPECT_EQ(count(p.states(), "/gpt.wte.weight"), 2);
  const Tensor gradient = p.step({{"x", tokens}, {"y", tokens}})["gpt.wte.weight.grad"];
  // Row 3 is no token: only the head reaches it.
  double head_only = 0;
  for (int64_t c = 0; c < 4; ++c) head_only += std::abs(gradient.at(3 * 4 + c));
  EXPECT_GT(head_only, 0);
}

TEST(CaseE4, TwoHandlesOfOneNameAreAnError) {
  Model m;
  const Value x = m.input("x", {f32, {2, 3}});
  m.add(nn::Linear(3), x, "fc");
  EXPECT_NE(test::error_of([&] { m.add(nn::Linear(3), x, "fc"); }), "");
}

}  // namespace
}  // namespace aicf
