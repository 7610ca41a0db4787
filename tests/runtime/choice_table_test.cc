// The choice table: what each matrix product is computed by, saved with a run and taken up by the program that goes on
// with it, whatever would be chosen now.
#include <gtest/gtest.h>

#include <set>

#include "aicf/checkpoint.h"
#include "backend/api.h"
#include "ir/op.h"
#include "runtime/program.h"
#include "support/programs.h"

namespace aicf {
namespace {

using Table = std::map<std::string, std::string>;

// Products of unlike sizes, with epilogues, side by side, and one of a derived state.
struct Products {
  Model model{4};
  Value loss;
  Products() {
    const Value x = model.input("x", {f32, {8, 40}}), y = model.input("y", {i32, {8}});
    const Value h = relu(model.add(nn::Linear(70), x, "fc1"));
    const Value sides = model.add(nn::Linear(24), h, "left") * model.add(nn::Linear(24), h, "right");
    const Value a = model.param("a", {f32, {24, 16}}, Init::normal(0, 0.3));
    const Value b = model.param("b", {f32, {16, 10}}, Init::normal(0, 0.3));
    loss = cross_entropy(matmul(sides, model.derived("ab", matmul(a, b))), y);
  }
  Program program(const Table& kernels = {}, const std::string& kernels_of = "",
                  const std::vector<std::string>& disabled = {}) {
    return compile(model, {.loss = loss,
                           .optimizer = optim::AdamW{.lr = 0.01},
                           .disable_passes = disabled,
                           .kernels = kernels,
                           .kernels_of = kernels_of});
  }
};

void steps(Program& p, int from, int to) {
  for (int i = from; i < to; ++i) {
    Tensor x(TensorType{f32, {8, 40}}), y(TensorType{i32, {8}});
    for (int64_t k = 0; k < x.elements(); ++k) {
      x.as<float>()[k] = static_cast<float>((k * 37 + i * 11) % 101) / 50.0f - 1;
    }
    for (int32_t k = 0; k < 8; ++k) y.as<int32_t>()[k] = (k + i) % 10;
    p.step({{"x", x}, {"y", y}});
  }
}

// Other variants, where there are any: those that `p` would not choose.
Table other_choices(const Program& p, const Table& table) {
  Table other;
  for (const auto& [product, choice] : table) {
    if (p.backend() == "cpu") {
      other[product] = choice == "packed" ? "reference" : "packed";
    } else {
      other[product] = choice.starts_with("cublasLt") ? "mma" : choice;
    }
  }
  return other;
}

TEST(ChoiceTable, HoldsEveryProductWhereverItStandsInThePlan) {
  Products m;
  const Table table = take_checkpoint(m.program()).kernels;
  Program apart = m.program({}, "", {"fuse", "epilogues", "merge_launches"});
  const ir::Graph& graph = apart.impl()->compiled().graph;
  std::set<std::string> products, named;
  for (const ir::Op& op : graph.ops()) {
    if (std::string_view(op.def->name) != "matmul") continue;
    std::vector<TensorType> in;
    for (ir::ValueId v : op.inputs) in.push_back(graph.type(v));
    products.insert(backend::product_key(*op.def, in, op.attrs));
  }
  for (const auto& [product, choice] : table) named.insert(product);
  EXPECT_GT(products.size(), 6u);
  EXPECT_EQ(named, products);
  EXPECT_EQ(take_checkpoint(apart).kernels, table) << "of each product, not of the launch that it is part of";
}

TEST(ChoiceTable, IsTakenUpWhateverWouldBeChosen) {
  Products m;
  Program usual = m.program();
  const Checkpoint fresh = take_checkpoint(usual);
  const Table asked = other_choices(usual, fresh.kernels);
  Program p = m.program(asked, fresh.backend);
  const Checkpoint before = take_checkpoint(p);
  if (usual.backend() == "cpu") {
    EXPECT_EQ(before.kernels, asked);
  }
  steps(p, 0, 5);
  const Checkpoint saved = take_checkpoint(p);
  steps(p, 5, 10);
  const NamedTensors straight = p.snapshot();
  EXPECT_EQ(saved.kernels, before.kernels);

  Products again;
  Program resumed = again.program(saved.kernels, saved.backend);
  EXPECT_TRUE(restore_checkpoint(resumed, saved).differences.empty());
  EXPECT_EQ(take_checkpoint(resumed).kernels, saved.kernels);
  steps(resumed, 5, 10);
  EXPECT_TRUE(resumed.snapshot() == straight);
  // The refresher of the derived product is of the same table.
  EXPECT_TRUE(resumed.read("ab") == p.read("ab"));
  resumed.load(resumed.snapshot());
  EXPECT_TRUE(resumed.read("ab") == p.read("ab"));

  if (usual.backend() != "cpu") return;
  Program without = again.program();
  const std::vector<std::string> told = restore_checkpoint(without, saved).differences;
  ASSERT_EQ(told.size(), 1u);
  EXPECT_NE(told[0].find("by other kernels than when saved"), std::string::npos) << told[0];
  steps(without, 5, 10);
  EXPECT_FALSE(without.snapshot() == straight) << "this test sees no difference that the table makes";
}

TEST(ChoiceTable, OfAnotherMachineIsLeftAlone) {
  Products m;
  Program usual = m.program();
  const Checkpoint fresh = take_checkpoint(usual);
  const Table asked = other_choices(usual, fresh.kernels);
  for (const std::string& of : {fresh.backend + " of another kind", std::string()}) {
    EXPECT_EQ(take_checkpoint(m.program(asked, of)).kernels, fresh.kernels);
  }
}

TEST(ChoiceTable, WhatIsUnknownOrDoesNotRunIsChosenAsEver) {
  Products m;
  Program usual = m.program();
  const Checkpoint fresh = take_checkpoint(usual);
  Table asked;
  for (const auto& [product, choice] : fresh.kernels) {
    asked[product] = choice.starts_with("cublasLt") ? "cublasLt 1/tile 2, one by one: 00ff" : choice;
  }
  if (usual.backend() == "cpu") {
    for (auto& [product, choice] : asked) choice = "of a later version";
  }
  asked["matmul f32[1,1] f32[1,1]"] = "packed";
  EXPECT_EQ(take_checkpoint(m.program(asked, fresh.backend)).kernels, fresh.kernels);
}

TEST(ChoiceTable, IsPartOfTheKeyOfCompiledPlans) {
  Products m;
  Program usual = m.program();
  const Checkpoint fresh = take_checkpoint(usual);
  clear_compile_cache();
  m.program();
  const size_t one = compile_cache_size();
  m.program(other_choices(usual, fresh.kernels), fresh.backend);
  EXPECT_EQ(compile_cache_size(), one + 1);
  m.program(other_choices(usual, fresh.kernels), "another");
  EXPECT_EQ(compile_cache_size(), one + 1);
}

}  // namespace
}  // namespace aicf
