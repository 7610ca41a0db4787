// What a step does between gradients and update: the loss scale, clipping, averages; as states that can be written.
#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "support/programs.h"

namespace aicf {
namespace {

using test::error_of;
using test::feeds_of;

constexpr float kInf = std::numeric_limits<float>::infinity();

Tensor of(const std::vector<float>& values) { return Tensor::of<float>({static_cast<int64_t>(values.size())}, values); }

// L = Σ w·x, whose gradient is x; SGD of rate 1 from 0: -w is what was applied.
struct Probe {
  Model model;
  Value x, w, loss;
  explicit Probe(int64_t n = 1) : model(0) {
    x = model.input("x", {f32, {n}});
    w = model.param("w", {f32, {n}});
    loss = sum(w * x);
  }
  Program compiled(CompileOptions options) {
    options.loss = loss;
    if (options.optimizer.empty()) options.optimizer = optim::SGD{.lr = 1};
    return compile(model, options);
  }
};

// --- the loss scale -------------------------------------------------------------------------------------------------

TEST(LossScale, GrowsAfterGoodStepsAndHalvesOnOverflowWithinItsLimits) {
  Probe m;
  Program p = m.compiled({.scale_loss = true, .loss_scale = {.initial = 8, .interval = 3, .min = 4, .max = 32}});
  const auto step = [&](float x) { p.step({{"x", of({x})}}); };
  const auto expect = [&](double scale, double good) {
    EXPECT_EQ(p.read("loss_scale.value").item(), scale);
    EXPECT_EQ(p.read("loss_scale.good_steps").item(), good);
  };
  expect(8, 0);
  step(1), expect(8, 1);
  step(1), expect(8, 2);
  step(1), expect(16, 0);
  step(1), expect(16, 1);
  step(kInf), expect(8, 0);  // the count starts again
  for (int i = 0; i < 9; ++i) step(1);
  expect(32, 0);  // the ceiling, twice
  for (int i = 0; i < 2; ++i) step(1);
  expect(32, 2);
  for (int i = 0; i < 5; ++i) step(kInf);
  expect(4, 0);  // the floor
  EXPECT_EQ(p.read("steps.skipped").item(), 6);
  EXPECT_EQ(p.read("steps.applied").item(), 15);
  EXPECT_EQ(p.read("w").item(), -15);
  p.write("loss_scale.interval", 1);
  p.write("loss_scale.growth", 4);
  step(1), expect(16, 0);
}

// Powers of two: whatever the scale, every bit is as without.
TEST(LossScale, ScalingRoundsNothing) {
  const auto run = [](std::optional<double> scale) {
    test::SmallMlp m;
    CompileOptions options = {.loss = m.loss, .optimizer = optim::AdamW{.lr = 0.05}, .fetch = {"fc1.weight.grad"}};
    options.clip_norm = 0.3;
    if (scale) options.scale_loss = true, options.loss_scale = {.initial = *scale, .interval = 2};
    Program p = compile(m.model, options);
    NamedTensors seen;
    for (int step = 0; step < 8; ++step) {
      const StepResult r = p.step(feeds_of(test::small_mlp_batch(step)));
      for (const std::string& name : r.names()) seen.emplace_back(name, r[name]);
    }
    for (auto& entry : p.snapshot()) {
      if (!entry.first.starts_with("loss_scale.")) seen.push_back(entry);
    }
    return seen;
  };
  const NamedTensors want = run({});
  for (const double scale : {1.0, 1024.0, 65536.0}) EXPECT_TRUE(want == run(scale)) << scale;
}

// A gradient of 2⁻³⁰ is nothing in f16: scaled, it arrives.
TEST(LossScale, SmallGradientsSurviveF16) {
  const auto run = [](bool scaled) {
    Model m;
    const Value x = m.input("x", {f32, {1, 1}}), w = m.param("w", {f32, {1, 1}}, Init::ones());
    const Value v = m.param("v", {f32, {1, 1}}, Init::ones());
    const Value loss = sum(matmul(tanh(matmul(x, w)), v)) * 0x1p-30;
    CompileOptions options = {.loss = loss, .optimizer = optim::SGD{.lr = 1}, .fetch = {"w.grad"}, .precision = "f16"};
    options.scale_loss = scaled;
    const double got = compile(m, options).step({{"x", Tensor::of<float>({1, 1}, {1})}})["w.grad"].item();
    return got / (0x1p-30 * (1 - std::tanh(1.0) * std::tanh(1.0)));
  };
  EXPECT_EQ(run(false), 0);
  EXPECT_NEAR(run(true), 1, 0.01);  // f16: a few roundings of 2⁻¹¹
}

TEST(LossScale, AnOverflowingScaleComesDownByItself) {
  test::SmallMlp m;
  Program p = compile(m.model, {.loss = m.loss, .optimizer = optim::AdamW{.lr = 0.05}, .precision = "f16"});
  EXPECT_EQ(p.read("loss_scale.value").item(), 65536);  // f16: by default
  p.write("loss_scale.value", 0x1p30);
  const Tensor before = p.read("fc1.weight");
  p.step(feeds_of(test::small_mlp_batch(0)));
  EXPECT_EQ(p.read("fc1.weight"), before);
  EXPECT_EQ(p.read("loss_scale.value").item(), 0x1p29);
  for (int step = 0; step < 20; ++step) p.step(feeds_of(test::small_mlp_batch(step)));
  EXPECT_GT(p.read("steps.applied").item(), 0);
  EXPECT_EQ(p.read("steps.applied").item() + p.read("steps.skipped").item(), 21);
  EXPECT_NE(p.read("fc1.weight"), before);
}

TEST(LossScale, TheSeedOfTheCallerIsScaledToo) {
  Probe m;
  CompileOptions options;
  options.fetch = {"w.grad"};
  options.scale_loss = options.grad_initial_input = true;
  Program p = m.compiled(options);
  const StepResult r = p.step({{"x", of({3})}, {"grad_initial", Tensor::scalar(0.5f)}});
  EXPECT_EQ(r["w.grad"].item(), 1.5);
  EXPECT_EQ(p.read("w").item(), -1.5);
}

TEST(LossScale, OnlyPowersOfTwoAreTaken) {
  const auto refused = [](optim::LossScale scale) {
    Probe m;
    return error_of([&] { m.compiled({.scale_loss = true, .loss_scale = scale}); });
  };
  EXPECT_EQ(refused({.initial = 1000}), "loss_scale: expected initial a power of two from 1 to 16777216, got 1000");
  EXPECT_NE(refused({.growth = 0.5}), "");
  EXPECT_NE(refused({.growth = 3}), "");
  EXPECT_NE(refused({.backoff = 2}), "");
  EXPECT_NE(refused({.interval = 0}), "");
  EXPECT_NE(refused({.min = 0}), "");
  EXPECT_NE(refused({.min = 4, .max = 2}), "");
  EXPECT_NE(refused({.initial = NAN}), "");
  EXPECT_EQ(refused({.initial = 2, .growth = 1, .backoff = 1, .interval = 1, .min = 0.5, .max = 2}), "");
}

// --- clipping -------------------------------------------------------------------------------------------------------

TEST(Clip, ByTheNormOfAllParametersTogether) {
  Model m;
  const Value x = m.input("x", {f32, {2}}), y = m.input("y", {f32, {3, 2}});
  const Value a = m.param("a", {f32, {2}}), b = m.param("b", {f32, {3, 2}});
  m.param("idle", {f32, {4}});
  Program p = compile(m, {.loss = sum(a * x) + sum(b * y), .optimizer = optim::SGD{.lr = 1}, .clip_norm = 2.5});
  const NamedTensors feeds = {{"x", of({1, 2})}, {"y", Tensor::of<float>({3, 2}, {2, 0, 0, 4, 0, 0})}};
  p.step(feeds_of(feeds));  // the norm is 5
  EXPECT_EQ(p.read("grad_norm").item(), 5);
  EXPECT_EQ(p.read("a"), of({-0.5, -1}));
  EXPECT_EQ(p.read("b"), Tensor::of<float>({3, 2}, {-1, 0, 0, -2, 0, 0}));
  p.write("optimizer.clip_norm", 5);  // at the limit nothing is clipped
  p.step(feeds_of(feeds));
  EXPECT_EQ(p.read("a"), of({-1.5, -3}));
  p.write("optimizer.clip_norm", kInf);
  p.step(feeds_of(feeds));
  EXPECT_EQ(p.read("a"), of({-2.5, -5}));
  EXPECT_EQ(p.read("grad_norm").item(), 5);
}

// A norm of zero divides nothing, whatever the limit; one that is not finite skips the step.
TEST(Clip, NormsOfZeroAndInfinity) {
  for (const double limit : {1.0, 0.0}) {
    Probe m(2);
    Program p = m.compiled({.clip_norm = limit});
    p.step({{"x", of({0, 0})}});
    EXPECT_EQ(p.read("w"), of({0, 0}));
    EXPECT_EQ(p.read("grad_norm").item(), 0);
    for (const auto& bad : {std::vector<float>{kInf, 1}, {NAN, 1}, {kInf, -kInf}, {2e19f, 1}}) {
      p.step({{"x", of(bad)}});
      EXPECT_EQ(p.read("w"), of({0, 0}));
      EXPECT_EQ(p.read("grad_norm").item(), kInf);
    }
    EXPECT_EQ(p.read("steps.skipped").item(), 4);
    p.step({{"x", of({3, 4})}});
    EXPECT_NEAR(p.read("w").at(0), -0.6 * limit, 1e-7);
    EXPECT_NEAR(p.read("w").at(1), -0.8 * limit, 1e-7);
  }
}

TEST(Clip, ByValue) {
  Probe m(4);
  Program p = m.compiled({.skip_nonfinite = true, .clip_value = 0.5});
  p.step({{"x", of({3, -4, 0.25, -0.5})}});
  EXPECT_EQ(p.read("w"), of({-0.5, 0.5, -0.25, 0.5}));
  p.step({{"x", of({kInf, -4, 0.25, -0.5})}});  // an infinity is skipped, not clipped
  EXPECT_EQ(p.read("w"), of({-0.5, 0.5, -0.25, 0.5}));
  p.write("optimizer.clip_value", 0.125);
  p.step({{"x", of({3, -4, 0.25, 0})}});
  EXPECT_EQ(p.read("w"), of({-0.625, 0.625, -0.375, 0.5}));
}

// By the norm first: (3, 4) of norm 5 becomes (0.6, 0.8), then (0.6, 0.7).
TEST(Clip, ByNormThenByValue) {
  Probe m(2);
  Program p = m.compiled({.clip_norm = 1, .clip_value = 0.7});
  p.step({{"x", of({3, 4})}});
  EXPECT_NEAR(p.read("w").at(0), -0.6, 1e-7);
  EXPECT_NEAR(p.read("w").at(1), -0.7, 1e-7);
}

TEST(Clip, FetchedGradientsAreNotClipped) {
  Probe m(2);
  CompileOptions options;
  options.fetch = {"w.grad"};
  options.clip_norm = 1;
  options.scale_loss = true;
  EXPECT_EQ(m.compiled(options).step({{"x", of({3, 4})}})["w.grad"], of({3, 4}));
}

TEST(Clip, WorksInF64) {
  Model m;
  const Value x = m.input("x", {f64, {2}}), w = m.param("w", {f64, {2}}), v = m.param("v", {f32, {}});
  const Value loss = sum(w * x) + cast(v, f64);
  CompileOptions options = {.loss = loss, .optimizer = optim::SGD{.lr = 1}, .backend = "cpu"};
  options.clip_norm = 1;
  options.scale_loss = true;
  options.ema_decay = 0.5;
  Program p = compile(m, options);
  p.step({{"x", Tensor::of<double>({2}, {4, 8})}});  // with v's 1: the norm is 9
  EXPECT_NEAR(p.read("w").at(0), -4.0 / 9, 1e-15);
  EXPECT_NEAR(p.read("v").item(), -1.0 / 9, 1e-7);
  EXPECT_NEAR(p.read("ema/w").at(1), -8.0 / 9, 1e-15);
}

// --- averages -------------------------------------------------------------------------------------------------------

TEST(Averages, StartWithTheFirstValueAndFollow) {
  Probe m;
  Program p = m.compiled({.skip_nonfinite = true, .ema_decay = 0.75});
  const auto after = [&](float x) {
    p.step({{"x", of({x})}});
    return p.read("ema/w").item();
  };
  EXPECT_EQ(after(-4), 4);  // w = 4
  EXPECT_EQ(after(-4), 5);  // w = 8: 3 + 2
  EXPECT_EQ(after(kInf), 5);
  p.write("optimizer.ema_decay", 0.5);
  EXPECT_EQ(after(5), 4);  // w = 3: 2.5 + 1.5
}

// Training that was begun without averages: they start with what they see first, not from 0.
TEST(Averages, StartLateWithoutABias) {
  Probe m;
  Program p = m.compiled({});
  for (int i = 0; i < 5; ++i) p.step({{"x", of({-1})}});
  const NamedTensors saved = p.snapshot();
  Program q = m.compiled({.ema_decay = 0.99});
  q.load(saved, {.strict = false});
  q.step({{"x", of({-1})}});
  EXPECT_EQ(q.read("ema/w").item(), 6);
}

TEST(Averages, AnEvaluationComputesWithThem) {
  for (const std::string precision : {"f32", "bf16"}) {
    test::SmallMlp m;
    const Value table = m.model.derived("table", m.model.value("fc2.weight") * 2.0);
    const Value scored = m.logits + sum(table) * 0.125;
    CompileOptions train = {.loss = m.loss, .optimizer = optim::SGD{.lr = 0.5}, .precision = precision};
    train.ema_decay = 0.5;
    train.freeze = {"fc1.bias"};
    Program p = compile(m.model, train);
    const auto eval = [&](const Program& store, bool averaged) {
      return compile(m.model,
                     {.outputs = {{"scored", scored}}, .precision = precision, .use_ema = averaged, .share = store});
    };
    Program plain = eval(p, false), averaged = eval(p, true);
    const NamedTensors batch = test::small_mlp_batch(0);
    EXPECT_EQ(averaged.step(feeds_of(batch))["scored"], plain.step(feeds_of(batch))["scored"]) << "before any step";
    for (int step = 0; step < 4; ++step) p.step(feeds_of(test::small_mlp_batch(step)));
    const Tensor got = averaged.step(feeds_of(batch))["scored"];
    EXPECT_NE(got, plain.step(feeds_of(batch))["scored"]);

    // The same weights in a store of their own. In f32 that is the same computation.
    Program twin = compile(m.model, {.outputs = {{"scored", scored}}, .precision = precision});
    for (const std::string& name : p.params()) {
      twin.write(name, p.read(name == "fc1.bias" ? name : "ema/" + name));
    }
    EXPECT_EQ(got, twin.step(feeds_of(batch))["scored"]) << precision;
  }
}

TEST(Averages, AreOnlyForProgramsThatHaveThem) {
  test::SmallMlp m;
  Program p = compile(m.model, {.loss = m.loss, .optimizer = optim::SGD{}});
  const CompileOptions options = {.outputs = {{"logits", m.logits}}, .use_ema = true, .share = p};
  EXPECT_EQ(error_of([&] { compile(m.model, options); }), "use_ema: the shared store has no averages");
  CompileOptions alone = options;
  alone.share = {};
  EXPECT_NE(error_of([&] { compile(m.model, alone); }), "");
  CompileOptions training = options;
  training.loss = m.loss;
  EXPECT_NE(error_of([&] { compile(m.model, training); }), "");
}

// --- options --------------------------------------------------------------------------------------------------------

TEST(GradientPolicy, NothingAskedForChangesNothing) {
  test::SmallMlp m;
  const CompileOptions plain = {.loss = m.loss, .optimizer = optim::SGD{}};
  CompileOptions off = plain;
  off.scale_loss = off.skip_nonfinite = false;
  off.micro_batches = 1;
  Program p = compile(m.model, plain);
  EXPECT_EQ(p.hash(), compile(m.model, off).hash());
  for (const std::string& state : p.states()) EXPECT_EQ(state.find("loss_scale"), std::string::npos);
  EXPECT_NE(error_of([&] { p.read("steps.skipped"); }), "");
}

TEST(GradientPolicy, OptionsThatSayNothingAreRefused) {
  test::SmallMlp m;
  const auto refused = [&](auto change) {
    CompileOptions options = {.loss = m.loss};
    change(options);
    return error_of([&] { compile(m.model, options); });
  };
  EXPECT_EQ(refused([](CompileOptions& o) { o.clip_norm = 1; }), "compile: clip_norm without an optimizer");
  EXPECT_EQ(refused([](CompileOptions& o) { o.ema_decay = 0.5; }), "compile: ema_decay without an optimizer");
  EXPECT_EQ(refused([](CompileOptions& o) { o.skip_nonfinite = true; }),
            "compile: skip_nonfinite without an optimizer");
  EXPECT_EQ(refused([](CompileOptions& o) { o.precision = "f16"; }), "");
  const auto with = [&](auto change) {
    return refused([&](CompileOptions& o) {
      o.optimizer = optim::SGD{};
      change(o);
    });
  };
  EXPECT_EQ(with([](CompileOptions& o) { o.clip_norm = -1; }), "compile: expected clip_norm 0 or more, got -1");
  EXPECT_EQ(with([](CompileOptions& o) { o.clip_value = NAN; }), "compile: expected clip_value 0 or more, got nan");
  EXPECT_EQ(with([](CompileOptions& o) { o.ema_decay = 1; }), "ema: expected decay in [0, 1), got 1");
  EXPECT_EQ(with([](CompileOptions& o) { o.precision = "f16", o.skip_nonfinite = false; }),
            "compile: a scaled loss needs skip_nonfinite: the scale is found by steps that are skipped");
  EXPECT_EQ(with([](CompileOptions& o) { o.precision = "f16", o.skip_nonfinite = o.scale_loss = false; }), "");
}

// All parameters are one launch: what unscales and clips them is read from memory, not another pass over them.
TEST(GradientPolicy, TheUpdateStaysOneLaunch) {
  const auto launches = [](bool all) {
    test::SmallMlp m;
    CompileOptions options = {.loss = m.loss, .optimizer = optim::AdamW{}};
    if (all) options.scale_loss = true, options.clip_norm = 1, options.clip_value = 1;
    return compile(m.model, options).launches();
  };
  // The norm's sums of squares, and the scalars that follow from it.
  EXPECT_LE(launches(true), launches(false) + 4);
}

}  // namespace
}  // namespace aicf
