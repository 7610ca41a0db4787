// The checklist of the original design (10.1–10.3): aliases in place, params not copied from outside, (1,) feeds of
// scalars.
#include <gtest/gtest.h>

#include "plan/plan.h"
#include "runtime/program.h"
#include "support/programs.h"

namespace aicf {
namespace {

plan::BufferId buffer_of(const Program& p, const std::string& name) {
  const auto& compiled = p.impl()->compiled();
  const ir::ValueId id = compiled.graph.find(name);
  EXPECT_NE(id, ir::kNoValue) << name;
  return compiled.plan.buffer_of[static_cast<size_t>(id)];
}

// 10.1: the weight, m and v share their buffers with their next values: for every optimizer, parameter and state.
TEST(SeedChecklist, UpdatesAreInPlace) {
  for (const auto& [name, optimizer] : test::all_optimizers()) {
    test::SmallMlp m;
    Program p = compile(m.model, {.loss = m.loss, .optimizer = optimizer});
    int checked = 0;
    for (const std::string param : {"fc1.weight", "fc1.bias", "fc2.weight", "fc2.bias"}) {
      for (const std::string prefix : {"", "optimizer.m/", "optimizer.v/", "optimizer.momentum/"}) {
        const std::string external = prefix + param;
        if (p.impl()->compiled().graph.find_external(external) == ir::kNoValue) continue;
        EXPECT_EQ(buffer_of(p, external), buffer_of(p, external + ".next")) << name << ": " << external;
        ++checked;
      }
    }
    EXPECT_GE(checked, 4) << name;
    for (const plan::Launch& launch : p.impl()->compiled().plan.launches) {
      if (launch.kind == plan::LaunchKind::copy) {
        EXPECT_EQ(launch.name.find("weight"), std::string::npos) << name << ": " << launch.name;
      }
    }
  }
}

// 10.2: what the caller does with its own array of a parameter is not seen without load.
TEST(SeedChecklist, ExternalArraysAreNotSeenWithoutLoad) {
  test::ScalarModel m(1.0);
  Program p = compile(m.model, {.loss = m.loss, .optimizer = optim::SGD{.lr = 0.1}});
  Tensor w = Tensor::scalar(5.f);
  p.write("w", w);
  w.as<float>()[0] = 100.f;
  p.step({{"x", Tensor::scalar(1.f)}});
  EXPECT_FLOAT_EQ(p.read("w").item(), 4.9f);
  p.load({{"w", w}}, {.states = false});
  EXPECT_EQ(p.read("w").item(), 100.f);
  EXPECT_NE(test::error_of([&] { p.step({{"x", Tensor::scalar(1.f)}, {"w", w}}); }), "") << "a fed param in train mode";
  p.step({{"x", Tensor::scalar(1.f)}, {"w", Tensor::scalar(2.f)}}, StepMode::train_reset);
  EXPECT_FLOAT_EQ(p.read("w").item(), 1.9f);
}

// 10.3: (1,) arrays for rank-0 inputs and externals.
TEST(SeedChecklist, OneElementArraysFitScalars) {
  test::ScalarModel m(1.0);
  Program p = compile(m.model, {.loss = m.loss, .optimizer = optim::SGD{.lr = 0.1}});
  EXPECT_FLOAT_EQ(p.step({{"x", Tensor::of<float>({1}, {3.f})}}).scalar("loss"), 3.f);
  p.write("optimizer.lr", Tensor::of<float>({1}, {0.5f}));
  EXPECT_EQ(p.read("optimizer.lr").item(), 0.5);
  EXPECT_NE(test::error_of([&] { p.step({{"x", Tensor::of<float>({1, 1}, {3.f})}}); }), "");
}

}  // namespace
}  // namespace aicf
