// Cases B2 and B3: results overwritten by the next replay, and weights reloaded under a captured step. The class:
// everything a program hands out, and everything that load, write, reset and train_reset put in.
#include <gtest/gtest.h>

#include <cstring>

#include "runtime/program.h"
#include "support/programs.h"

namespace aicf {
namespace {

// B2: two results kept of one program.
TEST(CaseB2, ResultsAreSnapshots) {
  Model m;
  const Value x = m.input("x", {f32, {}});
  m.output("y", x + 1);
  Program p = compile(m);
  const StepResult first = p.step({{"x", Tensor::scalar(1.1f)}});
  const StepResult second = p.step({{"x", Tensor::scalar(1.2f)}});
  EXPECT_FLOAT_EQ(first.scalar("y"), 2.1f);
  EXPECT_FLOAT_EQ(second.scalar("y"), 2.2f);
}

// Class: every kind of thing that can be fetched, over many kept results, also after the program is gone.
TEST(ClassB, EveryFetchedValueSurvivesLaterStepsAndTheProgram) {
  std::vector<StepResult> kept;
  std::vector<NamedTensors> copies;
  {
    test::SmallMlp m;
    Program p =
        compile(m.model, {.loss = m.loss,
                          .optimizer = optim::AdamW{.lr = 0.1},
                          .outputs = {{"logits", m.logits}, {"x_again", m.x}},
                          .fetch = {"fc1.weight", "fc1.weight.grad", "optimizer.m/fc1.weight", "optimizer.step"}});
    for (int i = 0; i < 20; ++i) {
      const NamedTensors batch = test::small_mlp_batch(i);
      kept.push_back(p.step(test::feeds_of(batch)));
      NamedTensors copy;
      for (const std::string& name : kept.back().names()) copy.emplace_back(name, kept.back()[name]);
      copies.push_back(std::move(copy));
    }
  }
  for (size_t i = 0; i < kept.size(); ++i) {
    for (const auto& [name, tensor] : copies[i]) EXPECT_EQ(kept[i][name], tensor) << name << " of step " << i;
  }
  EXPECT_NE(copies[0], copies[1]);
}

// The caller's arrays may be reused as soon as step() returns.
TEST(ClassB, FedArraysAreCopied) {
  Model m;
  const Value x = m.input("x", {f32, {3}});
  m.output("y", x * 2.0);
  Program p = compile(m);
  Tensor feed = Tensor::of<float>({3}, {1, 2, 3});
  const StepResult r = p.step({{"x", feed}});
  std::memset(feed.data(), 0xff, feed.bytes());
  EXPECT_EQ(r["y"], Tensor::of<float>({3}, {2, 4, 6}));
}

// w (2, 3) used through a packed (transposed) copy: y = x·packed, L = sum(y).
struct PackedModel {
  Model model;
  Value x, w, loss;
  PackedModel() {
    x = model.input("x", {f32, {1, 3}});
    w = model.param("w", {f32, {2, 3}}, Init::ones());
    const Value packed = model.derived("w.packed", transpose(w));
    loss = sum(matmul(x, packed));
  }
};

std::vector<void*> addresses(const Program& p) {
  std::vector<void*> list;
  for (const auto& e : p.impl()->store()->externals()) list.push_back(e->memory.data());
  for (const auto& own : p.impl()->executable().own()) list.push_back(own.address);
  return list;
}

// B3: load after three replays, then one SGD step from the loaded weight.
TEST(CaseB3, LoadCopiesIntoTheFixedBuffers) {
  test::ScalarModel m(1.0);
  Program p = compile(m.model, {.loss = m.loss, .optimizer = optim::SGD{.lr = 0.1, .momentum = 0.9}});
  for (int i = 0; i < 3; ++i) p.step({{"x", Tensor::scalar(1.f)}});
  const std::vector<void*> before = addresses(p);
  p.load({{"w", Tensor::scalar(5.f)},
          {"optimizer.momentum/w", Tensor::scalar(0.f)},
          {"optimizer.step", Tensor::scalar<int32_t>(0)}},
         {.strict = false});
  p.step({{"x", Tensor::scalar(1.f)}});
  EXPECT_FLOAT_EQ(p.read("w").item(), 4.9f);
  EXPECT_EQ(addresses(p), before);
}

// B3 with a parameter whose kernel reads a packed copy: every way of putting a weight in refreshes the copy in place.
TEST(CaseB3, EveryWayInRefreshesDerivedStates) {
  const Tensor fives = Tensor::of<float>({2, 3}, {5, 5, 5, 5, 5, 5});
  const Tensor x = Tensor::of<float>({1, 3}, {1, 1, 1});
  using Put = std::function<void(Program&)>;
  const std::vector<std::pair<std::string, Put>> ways = {
      {"load",
       [&](Program& p) {
         p.load({{"w", fives}}, {.strict = false});
       }},
      {"write", [&](Program& p) { p.write("w", fives); }},
      {"train_reset",
       [&](Program& p) {
         p.write("optimizer.lr", 0.0);
         p.step({{"x", x}, {"w", fives}}, StepMode::train_reset);
         p.write("optimizer.lr", 0.1);
       }},
  };
  for (const auto& [name, put] : ways) {
    PackedModel m;
    Program p = compile(m.model, {.loss = m.loss, .optimizer = optim::SGD{.lr = 0.1}});
    for (int i = 0; i < 3; ++i) p.step({{"x", x}});
    EXPECT_NEAR(p.read("w").at(0), 0.7, 1e-6) << "the gradient reaches w through its copy";
    const std::vector<void*> before = addresses(p);
    put(p);
    EXPECT_EQ(p.read("w.packed"), Tensor::of<float>({3, 2}, {5, 5, 5, 5, 5, 5})) << name;
    EXPECT_FLOAT_EQ(p.step({{"x", x}}).scalar("loss"), 30.f) << name;
    EXPECT_FLOAT_EQ(p.read("w").at(5), 4.9f) << name;
    EXPECT_FLOAT_EQ(p.read("w.packed").at(5), 4.9f) << name << ": the update refreshes the copy too";
    EXPECT_EQ(addresses(p), before) << name;
    p.reset();
    EXPECT_EQ(p.read("w.packed"), Tensor::of<float>({3, 2}, {1, 1, 1, 1, 1, 1})) << name;
    EXPECT_EQ(addresses(p), before) << name;
  }
}

TEST(ClassB, DerivedStatesAreNotWritableAndNotSaved) {
  PackedModel m;
  Program p = compile(m.model, {.loss = m.loss, .optimizer = optim::SGD{.lr = 0.1}});
  const Tensor t(TensorType{f32, {3, 2}});
  EXPECT_NE(test::error_of([&] { p.write("w.packed", t); }), "");
  EXPECT_NE(test::error_of([&] {
              p.load({{"w.packed", t}}, {.strict = false});
            }),
            "")
      << "named explicitly: refused, not skipped";
  for (const auto& [name, tensor] : p.snapshot()) EXPECT_NE(name, "w.packed");
}

}  // namespace
}  // namespace aicf
