// Cases K1 and K2 (K3 is in precision_test), and their class: on the device, and on every way to run a step, the order
// is unscale, check, clip, update; and a step that is skipped changes no bit but those it may.
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <map>

#include "aicf/verify.h"
#include "support/programs.h"

namespace aicf {
namespace {

using test::error_of;
using test::feeds_of;
using test::SmallMlp;

constexpr float kInf = std::numeric_limits<float>::infinity();
constexpr Mode kModes[] = {Mode::graph, Mode::replay, Mode::eager};

// L = Σ w·x, whose gradient is x.
struct Linear {
  Model model;
  Value x, w, loss;
  explicit Linear(int64_t n, Init init = Init::zeros()) : model(0) {
    x = model.input("x", {f32, {n}});
    w = model.param("w", {f32, {n}}, init);
    loss = sum(w * x);
  }
};

Tensor of(const std::vector<float>& values) { return Tensor::of<float>({static_cast<int64_t>(values.size())}, values); }

// K1. Clipping what is still scaled: 5.86e-4 and 7.81e-4.
TEST(CaseK1, ClippingSeesUnscaledGradients) {
  for (const Mode mode : kModes) {
    for (const double scale : {1.0, 1024.0}) {
      Linear m(2);
      Program p = compile(m.model, {.loss = m.loss,
                                    .optimizer = optim::SGD{.lr = 1},
                                    .mode = mode,
                                    .scale_loss = true,
                                    .loss_scale = {.initial = scale},
                                    .clip_norm = 1.0});
      p.step({{"x", of({3, 4})}});
      EXPECT_NEAR(p.read("w").at(0), -0.6, 1e-7);
      EXPECT_NEAR(p.read("w").at(1), -0.8, 1e-7);
      EXPECT_EQ(p.read("grad_norm").item(), 5);
    }
  }
}

// What a skipped step may change.
bool may_change(const std::string& name) {
  return name == "rng.offset" || name.starts_with("loss_scale.") || name == "steps.skipped" || name == "grad_norm";
}

void expect_skipped(const NamedTensors& before, const NamedTensors& after, const std::string& what) {
  ASSERT_EQ(before.size(), after.size());
  for (size_t i = 0; i < before.size(); ++i) {
    if (may_change(before[i].first)) continue;
    EXPECT_TRUE(before[i].second == after[i].second) << what << ": " << before[i].first << " changed";
  }
}

// Tanh layers with dropout, a running mean, and everything that a step may do, in each way that finds the overflow.
struct Everything {
  Model model{4};
  Value x, y, loss;
  Everything() {
    x = model.input("x", {f32, {4, 3}});
    y = model.input("y", {i32, {4}});
    const Value h = dropout(tanh(model.add(nn::Linear(5), x, "fc1")), 0.25);
    const Value seen = model.state("seen", {f32, {5}});
    model.update(seen, seen * 0.5 + mean(h, {0}));
    loss = cross_entropy(model.add(nn::Linear(3), h, "fc2"), y);
  }
};

struct Path {
  std::string name;
  CompileOptions options;
};

std::vector<Path> paths() {
  std::vector<Path> all;
  const auto add = [&](std::string name, auto change) {
    CompileOptions options;
    options.ema_decay = 0.5;
    change(options);
    all.push_back({std::move(name), options});
  };
  add("checked", [](CompileOptions& o) { o.skip_nonfinite = true; });
  add("scaled", [](CompileOptions& o) { o.scale_loss = true; });
  add("by norm", [](CompileOptions& o) { o.clip_norm = 0.5; });
  add("by value", [](CompileOptions& o) { o.clip_value = 0.01, o.skip_nonfinite = true; });
  add("all", [](CompileOptions& o) { o.scale_loss = true, o.clip_norm = 0.5, o.clip_value = 0.1; });
  add("all, bf16", [](CompileOptions& o) { o.scale_loss = true, o.clip_norm = 0.5, o.precision = "bf16"; });
  add("f16", [](CompileOptions& o) { o.precision = "f16"; });
  return all;
}

NamedTensors batch_of(int step, bool overflow) {
  NamedTensors batch = test::small_mlp_batch(step);
  if (overflow) batch[0].second.as<float>()[4] = kInf;
  return batch;
}

// K2, in every way, and with all of them for every optimizer: after an overflow all is as before, and the next step is
// the one that would have come without it.
TEST(CaseK2, ASkippedStepChangesNothingAndDoesNotCount) {
  for (const auto& [name, optimizer] : test::all_optimizers()) {
    for (const Path& path : paths()) {
      if (name != "adam" && path.name != "all") continue;
      const std::string what = name + ", " + path.name;
      Everything m;
      CompileOptions options = path.options;
      options.loss = m.loss;
      options.optimizer = optimizer;
      Program p = compile(m.model, options);
      p.step(feeds_of(batch_of(0, false)));
      const NamedTensors before = p.snapshot();
      p.step(feeds_of(batch_of(1, true)));
      expect_skipped(before, p.snapshot(), what);
      EXPECT_EQ(p.read("rng.offset").item(), 2) << what;
      EXPECT_EQ(p.read("steps.skipped").item(), 1) << what;
      EXPECT_EQ(p.read("steps.applied").item(), 1) << what;
      if (options.scale_loss.value_or(options.precision == "f16")) {
        EXPECT_EQ(p.read("loss_scale.value").item(), 32768) << what;
      }
      p.step(feeds_of(batch_of(2, false)));
      EXPECT_EQ(p.read("optimizer.step").item(), 2) << what;

      Program twin = compile(m.model, options);  // without the overflow
      twin.step(feeds_of(batch_of(0, false)));
      twin.write("rng.offset", Tensor::scalar<int64_t>(2));
      if (options.scale_loss.value_or(options.precision == "f16")) twin.write("loss_scale.value", 32768);
      twin.step(feeds_of(batch_of(2, false)));
      expect_skipped(twin.snapshot(), p.snapshot(), what + ", the step after");
    }
  }
}

TEST(CaseK2, OverflowInOneOfTenParametersSkipsAllTen) {
  for (int bad = 0; bad < 10; ++bad) {
    for (const bool clips : {false, true}) {
      Model m;
      Value loss;
      for (int i = 0; i < 10; ++i) {
        const std::string n = std::to_string(i);
        const Value term = sum(m.input("x" + n, {f32, {i + 1}}) * m.param("w" + n, {f32, {i + 1}}, Init::ones()));
        loss = i == 0 ? term : loss + term;
      }
      CompileOptions options = {.loss = loss, .optimizer = optim::Adam{.lr = 0.1}, .skip_nonfinite = true};
      if (clips) options.clip_norm = 1;
      Program p = compile(m, options);
      for (const float value : {1.0f, kInf, std::numeric_limits<float>::quiet_NaN()}) {
        NamedTensors feeds;
        for (int i = 0; i < 10; ++i) {
          std::vector<float> x(static_cast<size_t>(i) + 1, 1.0f);
          if (i == bad) x.back() = value;
          feeds.emplace_back("x" + std::to_string(i), of(x));
        }
        const NamedTensors before = p.snapshot();
        p.step(feeds_of(feeds));
        if (std::isfinite(value)) {
          EXPECT_FALSE(before == p.snapshot());
        } else {
          expect_skipped(before, p.snapshot(), "parameter " + std::to_string(bad));
        }
      }
      EXPECT_EQ(p.read("steps.skipped").item(), 2);
      EXPECT_EQ(p.read("steps.applied").item(), 1);
    }
  }
}

// Huge gradients are gradients: 1e30 is applied, though its square is no float.
TEST(CaseK2, LargeFiniteGradientsAreApplied) {
  Linear m(1);
  Program p = compile(m.model, {.loss = m.loss, .optimizer = optim::SGD{.lr = 1}, .skip_nonfinite = true});
  p.step({{"x", of({1e30f})}});
  EXPECT_EQ(p.read("w").item(), -1e30f);
  EXPECT_EQ(p.read("steps.skipped").item(), 0);
}

// The class: eager, replay, any order, alias, reuse and every exact pass, over 8 steps with an overflow in the middle.
TEST(ClassK, EveryWayToRunGivesTheSameBitsAcrossAnOverflow) {
  for (const Path& path : paths()) {
    if (path.name == "scaled" || path.name == "by norm" || path.name == "all") continue;  // part of those that follow
    Everything m;
    std::vector<NamedTensors> batches;
    for (int step = 0; step < 9; ++step) batches.push_back(batch_of(step, step == 4));
    CompileOptions options = path.options;
    options.loss = m.loss;
    options.optimizer = optim::AdamW{.lr = 0.05};
    const auto rows = verify(m.model, options, [&](int step) { return feeds_of(batches[static_cast<size_t>(step)]); },
                             {.steps = 9, .orders = 3});
    EXPECT_GT(rows.size(), 8u);
    for (const VerifyRow& row : rows) {
      // Beyond the first step these are bounds on a loss that the skipped step and dropout make incomparable.
      if (row.name.find("later steps") != std::string::npos) continue;
      EXPECT_TRUE(row.equal) << path.name << ": " << row.name << ": " << row.detail;
    }
  }
}

// The compute copies are skipped with their parameters, and an input error still gates everything.
TEST(ClassK, AnInputErrorChangesNoScaleAndNoCounter) {
  Everything m;
  Program p = compile(m.model, {.loss = m.loss, .optimizer = optim::SGD{.lr = 0.1}, .precision = "f16"});
  p.step(feeds_of(batch_of(0, false)));
  p.step(feeds_of(batch_of(0, true)));
  const NamedTensors before = p.snapshot();
  NamedTensors batch = batch_of(1, true);
  batch[1].second.as<int32_t>()[2] = 3;
  const std::string message = error_of([&] {
    p.step(feeds_of(batch));
    p.wait();
  });
  EXPECT_NE(message.find("at step 3"), std::string::npos) << message;  // skipped steps are steps
  EXPECT_TRUE(before == p.snapshot());
}

}  // namespace
}  // namespace aicf
