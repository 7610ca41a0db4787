// All that a step may do at once (dropout, a schedule, a scaled and clipped gradient, skipped steps, averages,
// micro-batches, a state of the model), long enough for each to act: every mode, and steps(), gives the same bits.
#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "aicf/data.h"
#include "support/programs.h"

namespace aicf {
namespace {

constexpr int64_t kSteps = 64, kExamples = 75, kMicroBatches = 3, kMicroBatch = 4;
const LoaderOptions kOrder = {.batch = kMicroBatches * kMicroBatch, .seed = 11};

// One example is infinite: once an epoch, a step is skipped. Some labels do not count.
Dataset examples() {
  Tensor x(TensorType{f32, {kExamples, 6}}), y(TensorType{i32, {kExamples}});
  for (int64_t i = 0; i < x.elements(); ++i) x.as<float>()[i] = std::sin(static_cast<float>(i * i % 211));
  for (int64_t i = 0; i < kExamples; ++i) y.as<int32_t>()[i] = static_cast<int32_t>(i % 7 == 0 ? -1 : i % 3);
  x.as<float>()[6 * 40 + 2] = std::numeric_limits<float>::infinity();
  return Dataset({{"x", x}, {"y", y}});
}

struct Trainer {
  Trainer(Mode mode, const std::string& precision) {
    const Value x = model.input("x", {f32, {kMicroBatch, 6}}), y = model.input("y", {i32, {kMicroBatch}});
    Value h = model.add(nn::Linear(16), x, "fc1");
    h = dropout(gelu(model.add(nn::LayerNorm(), h, "norm")), 0.3);
    const Value seen = model.state("seen", {f32, {}}, Init::zeros());
    model.update(seen, seen * 0.9 + mean(h));
    const Value head = model.param("head", {f32, {16, 3}}, Init::normal(0, 0.3), "head");
    const Value loss = cross_entropy(matmul(dropout(h, 0.1), head), y, Reduction::mean, -1);
    CompileOptions options = {.loss = loss, .mode = mode, .precision = precision};
    options.optimizer = optim::AdamW{.lr = 0.02,
                                     .weight_decay = 0.1,
                                     .schedule = optim::Schedule::cosine(kSteps, 5, 0.1),
                                     .groups = {{.name = "head", .lr = 0.01, .weight_decay = 0.0}}};
    options.fetch = {"fc1.weight.grad"};
    options.scale_loss = true;
    options.loss_scale = {.initial = 4096, .interval = 7};
    options.clip_norm = 0.5;
    options.clip_value = 0.2;
    options.ema_decay = 0.95;
    options.micro_batches = kMicroBatches;
    program = compile(model, options);
  }
  Model model{5};
  Program program;
};

struct Taken {
  std::vector<Tensor> losses, gradients;
  NamedTensors end;
  double skipped = 0, applied = 0;
  bool operator==(const Taken&) const = default;
};

// `at_once` 0: fed by a loader, one by one. Else by steps(at_once) on the attached data set. The learning rate is
// written on the way.
Taken take(Mode mode, const std::string& precision, int64_t at_once) {
  Trainer t(mode, precision);
  Loader loader(examples(), kOrder);
  if (at_once > 0) t.program.attach(examples(), kOrder);
  Taken r;
  for (int64_t done = 0; done < kSteps;) {
    if (done % 16 == 0) t.program.write("optimizer.lr", 0.02 + 0.001 * static_cast<double>(done));
    std::vector<StepResult> results;
    if (at_once > 0) {
      results = t.program.steps(at_once);
    } else {
      results.push_back(t.program.step(loader.next().feeds));
    }
    for (const StepResult& result : results) {
      r.losses.push_back(result["loss"]);
      r.gradients.push_back(result["fc1.weight.grad"]);
    }
    done += static_cast<int64_t>(results.size());
  }
  r.end = t.program.snapshot();
  r.skipped = t.program.read("steps.skipped").item();
  r.applied = t.program.read("steps.applied").item();
  return r;
}

TEST(EverythingOn, EveryWayToRunGivesTheSameBitsOver64Steps) {
  for (const std::string precision : {"f32", "bf16", "f16"}) {
    SCOPED_TRACE(precision);
    const Taken eager = take(Mode::eager, precision, 0);
    ASSERT_EQ(eager.losses.size(), static_cast<size_t>(kSteps));
    EXPECT_GE(eager.skipped, 5) << "an epoch is six steps, and the infinite example is in most";
    EXPECT_EQ(eager.skipped + eager.applied, kSteps);
    EXPECT_EQ(eager, take(Mode::replay, precision, 0)) << "replay";
    EXPECT_EQ(eager, take(Mode::graph, precision, 0)) << "graph";
    for (const int64_t at_once : {1, 4, 16}) {
      EXPECT_EQ(eager, take(Mode::graph, precision, at_once)) << "steps(" << at_once << ")";
    }
  }
}

}  // namespace
}  // namespace aicf
