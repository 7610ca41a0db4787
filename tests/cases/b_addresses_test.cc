// Cases B1 to B4: results overwritten by the next replay, and weights reloaded under a captured step. The class:
// everything a program hands out, and everything that load, write, reset and train_reset put in.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>

#include "runtime/program.h"
#include "support/programs.h"

namespace aicf {
namespace {

// B1: gradients of micro-batches accumulated in a state inside the step; fetched ones are the step's own.
TEST(CaseB1, AccumulatedGradientsAreTheSum) {
  Model m;
  const Value x = m.input("x", {f32, {}});
  const Value w = m.param("w", {f32, {}}, Init::value(2));
  const Value total = m.state("total", {f32, {}});
  const Value first = m.input("first", {boolean, {}});
  m.update(total, select(first, x, total + x));  // d(w·x)/dw, cleared on request
  m.output("loss", w * x);
  Program p = compile(m, {.loss = w * x, .outputs = {{"total", total}}, .fetch = {"w.grad"}});
  const auto step = [&](float value, bool clears) {
    Tensor flag(TensorType{boolean, {}});
    *static_cast<uint8_t*>(flag.data()) = clears;
    return p.step({{"x", Tensor::scalar(value)}, {"first", flag}});
  };
  for (int round = 0; round < 3; ++round) {
    const StepResult a = step(1, true), b = step(3, false);
    EXPECT_EQ(a.scalar("w.grad") + b.scalar("w.grad"), 4);
    EXPECT_EQ(p.read("total").item(), 4);
  }
}

// B4: a kernel that takes many addresses keeps none of the caller's: host memory used again changes nothing.
TEST(CaseB4, ConcatOfFiveAfterTheHeapWasScribbledOver) {
  Model m;
  std::vector<Value> parts;
  for (int i = 0; i < 5; ++i) parts.push_back(m.input("x" + std::to_string(i), {f32, {3, i + 1}}));
  m.output("y", concat(parts, 1));
  Program p = compile(m);
  std::vector<Tensor> tensors;
  std::vector<std::string> names;
  for (int i = 0; i < 5; ++i) {
    tensors.emplace_back(TensorType{f32, {3, i + 1}});
    std::fill_n(tensors.back().as<float>(), tensors.back().elements(), static_cast<float>(i));
    names.push_back("x" + std::to_string(i));
  }
  std::vector<Feed> feeds;
  for (int i = 0; i < 5; ++i) feeds.push_back({names[static_cast<size_t>(i)], tensors[static_cast<size_t>(i)]});
  const Tensor want = p.step(feeds)["y"];
  for (size_t size = 16; size < (1 << 20); size *= 2) {
    std::vector<unsigned char> scribble(size, 0xFF);
    EXPECT_EQ(scribble.back(), 0xFF);
  }
  EXPECT_EQ(p.step(feeds)["y"], want);
  EXPECT_EQ(want.at(14), 4);
}

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
