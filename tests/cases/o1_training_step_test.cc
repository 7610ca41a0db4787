// Case O1 on a whole training step: 200 runs at 2 and 8 threads, under load, equal one run on one thread bit for bit.
#include <gtest/gtest.h>

#include <atomic>
#include <thread>

#include "support/programs.h"

namespace aicf {
namespace {

// Wide enough for every kind of kernel to split its work: matrix products, pointwise, both reductions, the update.
struct WideMlp {
  Model model;
  Value loss;
  WideMlp() : model(5) {
    const Value x = model.input("x", {f32, {128, 256}}), y = model.input("y", {i32, {128}});
    Value h = model.add(nn::LayerNorm(), model.add(nn::Linear(512), x, "fc1"), "norm");
    h = model.add(nn::Activation("gelu"), h);
    loss = cross_entropy(model.add(nn::Linear(64), h, "fc2"), y);
  }
};

NamedTensors one_step(int threads) {
  WideMlp m;
  Program p = compile(
      m.model,
      {.loss = m.loss, .optimizer = optim::AdamW{.lr = 0.01}, .fetch = {"fc1.weight.grad"}, .threads = threads});
  Tensor x(TensorType{f32, {128, 256}}), y(TensorType{i32, {128}});
  for (int64_t i = 0; i < x.elements(); ++i) x.as<float>()[i] = static_cast<float>(i * 37 % 1001) / 500 - 1;
  for (int64_t i = 0; i < y.elements(); ++i) y.as<int32_t>()[i] = static_cast<int32_t>(i * 7 % 64);
  const StepResult r = p.step({{"x", x}, {"y", y}});
  NamedTensors all = p.snapshot();
  all.emplace_back("loss", r["loss"]);
  all.emplace_back("fc1.weight.grad", r["fc1.weight.grad"]);
  return all;
}

TEST(CaseO1, TrainingStepsDoNotDependOnThreads) {
  const NamedTensors want = one_step(1);
  std::atomic<bool> stop{false};
  std::thread load([&] {
    volatile double sink = 0;
    while (!stop) sink = sink + 1;
  });
  for (int threads : {2, 8}) {
    for (int run = 0; run < 200; ++run) {
      const NamedTensors got = one_step(threads);
      ASSERT_EQ(got.size(), want.size());
      for (size_t i = 0; i < want.size(); ++i) {
        ASSERT_TRUE(got[i].second == want[i].second) << got[i].first << " at " << threads << " threads, run " << run;
      }
    }
  }
  stop = true;
  load.join();
}

}  // namespace
}  // namespace aicf
