// Cases A1 and A2: a host value frozen into the captured step. The whole class: every scalar of every optimizer, in
// every mode.
#include <gtest/gtest.h>

#include <cmath>

#include "support/programs.h"

namespace aicf {
namespace {

using test::ScalarModel;

constexpr Mode kModes[] = {Mode::graph, Mode::replay, Mode::eager};

// A1: bias correction follows the step counter. Frozen at t = 1 the result is 0.843081.
TEST(CaseA1, AdamBiasCorrectionAdvances) {
  for (Mode mode : kModes) {
    ScalarModel m(1.0);
    Program p = compile(m.model, {.loss = m.loss, .optimizer = optim::Adam{.lr = 0.1}, .mode = mode});
    for (float x : {1.f, -2.f, 3.f, -1.f, .5f}) p.step({{"x", Tensor::scalar(x)}});
    EXPECT_NEAR(p.read("w").item(), 0.872965, 1e-6);
    EXPECT_EQ(p.read("optimizer.step").item(), 5);
  }
}

// A2: a learning rate written between replays acts at the next one. Frozen: 0.7.
TEST(CaseA2, LearningRateWrittenBetweenReplaysActs) {
  for (Mode mode : kModes) {
    ScalarModel m(1.0);
    Program p = compile(m.model, {.loss = m.loss, .optimizer = optim::SGD{.lr = 0.1}, .mode = mode});
    for (double lr : {0.1, 0.05, 0.025}) {
      p.write("optimizer.lr", lr);
      p.step({{"x", Tensor::scalar(1.f)}});
    }
    EXPECT_NEAR(p.read("w").item(), 0.825, 1e-6);
  }
}

// A2, second half: the next replay uses the changed beta1. By hand: m2 = b·m1 + (1-b)·g with b the new one.
TEST(CaseA2, ChangedBetaActsAtTheNextReplay) {
  ScalarModel m(1.0);
  Program p = compile(m.model, {.loss = m.loss, .optimizer = optim::Adam{.lr = 0.1}});
  p.step({{"x", Tensor::scalar(1.f)}});
  EXPECT_NEAR(p.read("optimizer.m/w").item(), 0.1, 1e-7);
  p.write("optimizer.beta1", 0.5);
  p.step({{"x", Tensor::scalar(3.f)}});
  EXPECT_NEAR(p.read("optimizer.m/w").item(), 0.5 * 0.1 + 0.5 * 3, 1e-6);
}

// A schedule is computed on the device from the counter: the effective rate moves without the host.
TEST(CaseA2, ScheduleAdvancesOnTheDevice) {
  ScalarModel m(1.0);
  const auto schedule = optim::Schedule::table({1.0, 0.5, 0.25});
  Program p = compile(m.model, {.loss = m.loss, .optimizer = optim::SGD{.lr = 0.1, .schedule = schedule}});
  std::vector<double> rates;
  for (int i = 0; i < 4; ++i) {
    p.step({{"x", Tensor::scalar(1.f)}});
    rates.push_back(p.read("optimizer.lr_effective").item());
  }
  EXPECT_FLOAT_EQ(rates[0], 0.1f);
  EXPECT_FLOAT_EQ(rates[1], 0.05f);
  EXPECT_FLOAT_EQ(rates[2], 0.025f);
  EXPECT_FLOAT_EQ(rates[3], 0.025f);
  EXPECT_NEAR(p.read("w").item(), 1 - 0.1 - 0.05 - 0.025 - 0.025, 1e-6);
}

// A scalar the update reads: writing it must change what later steps do.
std::vector<std::string> live_scalars(const Program& p) {
  std::vector<std::string> names;
  for (const std::string& name : p.states()) {
    const bool counter = name == "optimizer.step" || name == "optimizer.lr_effective" || name == "steps.applied";
    if (name.starts_with("optimizer.") && !counter && p.type(name).shape.rank() == 0 &&
        name.find('/') == std::string::npos) {
      names.push_back(name);
    }
  }
  return names;
}

TEST(ClassA, EveryScalarOfEveryOptimizerIsReadAtEachReplay) {
  for (const auto& [name, optimizer] : test::all_optimizers()) {
    ScalarModel probe(1.0);
    const std::vector<std::string> scalars =
        live_scalars(compile(probe.model, {.loss = probe.loss, .optimizer = optimizer}));
    ASSERT_FALSE(scalars.empty()) << name;
    for (const std::string& scalar : scalars) {
      const auto run = [&, &rule = optimizer](bool change, Mode mode) {
        ScalarModel m(1.0);
        Program p = compile(m.model, {.loss = m.loss, .optimizer = rule, .mode = mode});
        for (int i = 0; i < 6; ++i) {
          if (change && i == 3) p.write(scalar, p.read(scalar).item() * 0.5 + 0.3);
          p.step({{"x", Tensor::scalar(static_cast<float>(i % 3) - 0.75f)}});
        }
        return p.snapshot();
      };
      const NamedTensors changed = run(true, Mode::graph);
      EXPECT_FALSE(changed == run(false, Mode::graph)) << name << ": writing " << scalar << " changed nothing";
      EXPECT_TRUE(changed == run(true, Mode::eager)) << name << ": " << scalar << " in eager and graph differ";
    }
  }
}

// Eager and graph agree bit for bit over 8 steps with inputs and learning rate changing, for every optimizer.
TEST(ClassA, EagerEqualsGraphForEveryOptimizer) {
  for (const auto& [name, optimizer] : test::all_optimizers()) {
    const auto run = [&, &opt = optimizer](Mode mode) {
      test::SmallMlp m;
      Program p = compile(m.model, {.loss = m.loss, .optimizer = opt, .mode = mode});
      std::vector<NamedTensors> trace;
      for (int i = 0; i < 8; ++i) {
        p.write("optimizer.lr", 0.1 / (i + 1));
        const NamedTensors batch = test::small_mlp_batch(i);
        p.step(test::feeds_of(batch));
        trace.push_back(p.snapshot());
      }
      return trace;
    };
    EXPECT_TRUE(run(Mode::graph) == run(Mode::eager)) << name;
  }
}

}  // namespace
}  // namespace aicf
