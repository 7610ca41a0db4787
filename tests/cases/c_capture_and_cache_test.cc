// Cases C1 (for the store), C2 and C3: compiling changes nothing, and a cached plan serves only the program it was made
// for.
#include <gtest/gtest.h>

#include <functional>
#include <memory>

#include "support/programs.h"

namespace aicf {
namespace {

// C1: compiling, in every mode and variant, leaves every external as it was; the first step is step 1.
TEST(CaseC1, CompilingChangesNoState) {
  for (const auto& [name, optimizer] : test::all_optimizers()) {
    test::SmallMlp m;
    Program p = compile(m.model, {.loss = m.loss, .optimizer = optimizer});
    const NamedTensors batch = test::small_mlp_batch(0);
    p.step(test::feeds_of(batch));
    const NamedTensors before = p.snapshot();
    for (Mode mode : {Mode::graph, Mode::replay, Mode::eager}) {
      for (bool alias : {true, false}) {
        compile(m.model, {.loss = m.loss, .optimizer = optimizer, .mode = mode, .share = p, .alias = alias});
      }
    }
    compile(m.model, {.outputs = {{"logits", m.logits}}, .share = p});
    EXPECT_EQ(p.snapshot(), before) << name;
  }
}

TEST(CaseC1, FirstStepIsStepOne) {
  test::ScalarModel m(1.0);
  Program p = compile(m.model, {.loss = m.loss, .optimizer = optim::SGD{.lr = 0.1}});
  EXPECT_EQ(p.read("w").item(), 1.0);
  EXPECT_EQ(p.read("optimizer.step").item(), 0);
  p.step({{"x", Tensor::scalar(1.f)}});
  EXPECT_FLOAT_EQ(p.read("w").item(), 0.9f);
  EXPECT_EQ(p.read("optimizer.step").item(), 1);
}

// C1: a running mean, momentum 0.1, over a batch of mean 10: 1.0 after one step (3.439 when three warm-ups ran first).
TEST(CaseC1, RunningStatisticsMoveOncePerStep) {
  Model m;
  const Value x = m.input("x", {f32, {4}});
  const Value running = m.state("running_mean", {f32, {}});
  m.update(running, running * 0.9 + mean(x) * 0.1);
  m.output("mean", mean(x));
  Program p = compile(m);
  EXPECT_EQ(p.read("running_mean").item(), 0.0);
  p.step({{"x", Tensor::of<float>({4}, {10, 10, 10, 10})}});
  EXPECT_FLOAT_EQ(p.read("running_mean").item(), 1.f);
}

// C2: the same expression as an in-place update and as a plain output.
TEST(CaseC2, AliasedAndPlainProgramsDoNotShareAnEntry) {
  Model m;
  const Value t0 = m.state("t0", {f32, {}}, Init::value(1));
  const Value t1 = m.state("t1", {f32, {}}, Init::value(2));
  const Value total = t1 + t0;
  m.update(t1, total);
  Program p1 = compile(m);
  Program p2 = compile(m, {.outputs = {{"t2", total}}, .share = p1});
  p1.step({});
  EXPECT_EQ(p1.read("t1").item(), 3);
  EXPECT_EQ(p2.step({}).scalar("t2"), 4);
  EXPECT_EQ(p1.read("t1").item(), 3);
}

Program linear_program(Model& m, int64_t hidden, const CompileOptions& base = {}) {
  const Value x = m.input("x", {f32, {2, 3}});
  m.output("y", m.add(nn::Linear(2), m.add(nn::Linear(hidden), x, "a"), "b"));
  return compile(m, base);
}

// C2, class: whatever is baked is in the key. Each of these differs from the first in one thing.
TEST(CaseC2, EverythingBakedIsInTheKey) {
  clear_compile_cache();
  const auto entries = [](const std::function<void(Model&)>& make) {
    Model m;
    make(m);
    return compile_cache_size();
  };
  const auto scaled = [](Model& m, double factor, DType dtype) {
    m.output("y", m.input("x", {dtype, {3}}) * factor);
    compile(m);
  };
  size_t n = 0;
  EXPECT_EQ(entries([](Model& m) { linear_program(m, 4); }), ++n);
  EXPECT_EQ(entries([](Model& m) { linear_program(m, 4); }), n) << "the same program again";
  EXPECT_EQ(entries([](Model& m) { linear_program(m, 5); }), ++n) << "hidden width";
  EXPECT_EQ(entries([](Model& m) { linear_program(m, 4, {.alias = false}); }), ++n) << "aliasing";
  EXPECT_EQ(entries([](Model& m) { linear_program(m, 4, {.reuse = false}); }), ++n) << "reuse";
  EXPECT_EQ(entries([](Model& m) { linear_program(m, 4, {.disable_passes = {"dce"}}); }), ++n) << "passes";
  EXPECT_EQ(entries([](Model& m) { linear_program(m, 4, {.fetch = {"a.weight"}}); }), ++n) << "fetch list";
  EXPECT_EQ(entries([&](Model& m) { scaled(m, 2.0, f32); }), ++n);
  EXPECT_EQ(entries([&](Model& m) { scaled(m, 2.0000001, f32); }), n) << "rounds to the same f32 constant";
  EXPECT_EQ(entries([&](Model& m) { scaled(m, 2.5, f32); }), ++n) << "a baked constant";
  EXPECT_EQ(entries([&](Model& m) { scaled(m, 2.0, bf16); }), ++n) << "dtype";
}

// C3: an entry must not outlive its program under another's name. A thousand models at whatever address comes.
TEST(CaseC3, EntriesAreKeyedByContentNotAddress) {
  for (int i = 0; i < 1000; ++i) {
    auto m = std::make_unique<Model>();
    m->output("y", m->input("x", {f32, {}}) * static_cast<double>(i));
    Program p = compile(*m);
    ASSERT_EQ(p.step({{"x", Tensor::scalar(1.f)}}).scalar("y"), i);
  }
}

// Class C3: layer handles too are known by identity of the living object, never by a recycled address.
TEST(CaseC3, LayersOfOneModelNeverShareByAddress) {
  Model m;
  const Value x = m.input("x", {f32, {1, 2}});
  for (int i = 0; i < 200; ++i) {
    const auto layer = std::make_unique<nn::Linear>(1);  // freed at the end of each turn
    m.add(*layer, x, "fc" + std::to_string(i));
  }
  int weights = 0;
  m.output("y", sum(x));
  Program p = compile(m);
  for (const std::string& name : p.params()) weights += name.ends_with(".weight") ? 1 : 0;
  EXPECT_EQ(weights, 200);
}

}  // namespace
}  // namespace aicf
