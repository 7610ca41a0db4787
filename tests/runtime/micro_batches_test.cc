// A step of several micro-batches: cases B1 and N1, and that it does not matter how the examples are split.
#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "aicf/verify.h"
#include "support/programs.h"

namespace aicf {
namespace {

using test::error_of;
using test::feeds_of;

Tensor of(const std::vector<float>& values) { return Tensor::of<float>({static_cast<int64_t>(values.size())}, values); }

// L = w·x over scalars, micro-batches x = 1 then 3, no update. Counting the second twice gives 6, losing one 3 or 1.
TEST(CaseB1, GradientsOfMicroBatchesAddUp) {
  Model m;
  const Value x = m.input("x", {f32, {1}}), w = m.param("w", {f32, {}}, Init::ones());
  const Value loss = sum(w * x);
  Program p = compile(m, {.loss = loss, .fetch = {"w.grad", "x.grad", "x", "w", "loss"}, .micro_batches = 2});
  for (int again = 0; again < 3; ++again) {
    const StepResult r = p.step({{"x", of({1, 3})}});
    EXPECT_EQ(r.scalar("w.grad"), 4);
    EXPECT_EQ(r.scalar("loss"), 4);
    EXPECT_EQ(r["x.grad"], of({1, 1}));
    EXPECT_EQ(r["x"], of({1, 3}));
    EXPECT_EQ(r.scalar("w"), 1);
  }
}

// Of two classes with logits (z, 0), z = w·x at w = 0, the loss's derivative by z is ½ - [label is 0]: by w it is x
// times that. One element of gradient 4 (x = 8, label 1) and three of 0 (x = 0).
struct Labels {
  Model model;
  Value x, y, loss;
  explicit Labels(int64_t batch) {
    x = model.input("x", {f32, {batch, 1}});
    y = model.input("y", {i32, {batch}});
    const Value w = model.param("w", {f32, {1, 2}}), only = model.constant(Tensor::of<float>({1, 2}, {1, 0}));
    loss = cross_entropy(matmul(x, w * only), y);
  }
  double gradient(int64_t parts, const std::vector<float>& xs, const std::vector<int32_t>& ys, bool scaled = false) {
    CompileOptions options = {.loss = loss, .fetch = {"w.grad"}, .micro_batches = parts};
    if (scaled) {
      options.optimizer = optim::SGD{};
      options.scale_loss = true;
    }
    Program p = compile(model, options);
    const auto n = static_cast<int64_t>(xs.size());
    const StepResult r = p.step({{"x", Tensor::of<float>({n, 1}, xs)}, {"y", Tensor::of<int32_t>({n}, ys)}});
    return r["w.grad"].at(0);
  }
};

// N1. A mean of means: 2.
TEST(CaseN1, TheDivisorIsWhatCountsInAllMicroBatches) {
  for (const bool scaled : {false, true}) {
    EXPECT_EQ(Labels(4).gradient(1, {8, 0, 0, 0}, {1, 0, 0, 0}, scaled), 1);
    EXPECT_EQ(Labels(2).gradient(2, {8, 0, 0, 0}, {1, 0, 0, 0}, scaled), 1);
    EXPECT_EQ(Labels(1).gradient(4, {8, 0, 0, 0}, {1, 0, 0, 0}, scaled), 1);
    // One element that counts in the first, three in the second.
    EXPECT_EQ(Labels(4).gradient(2, {8, 5, 5, 5, 0, 0, 0, 5}, {1, -100, -100, -100, 0, 0, 0, -100}, scaled), 1);
    EXPECT_EQ(Labels(8).gradient(1, {8, 5, 5, 5, 0, 0, 0, 5}, {1, -100, -100, -100, 0, 0, 0, -100}, scaled), 1);
    // Nothing counts at all.
    EXPECT_EQ(Labels(1).gradient(3, {8, 5, 5}, {-100, -100, -100}, scaled), 0);
  }
}

// x (n, 3) → tanh → 3 classes, some labels ignored.
struct Net {
  Model model{6};
  Value x, y, hidden, logits, loss;
  explicit Net(int64_t batch, double p = 0, const std::string& kind = "cross_entropy") {
    x = model.input("x", {f32, {batch, 3}});
    hidden = tanh(model.add(nn::Linear(5), x, "fc1")).named("hidden");
    if (p > 0) hidden = dropout(hidden, p);
    logits = model.add(nn::Linear(3), hidden, "fc2");
    if (kind == "cross_entropy") {
      y = model.input("y", {i32, {batch}});
      loss = cross_entropy(logits, y);
    } else {
      y = model.input("y", {f32, {batch, 3}});
      if (kind == "mse") loss = mse(logits, y);
      if (kind == "mean") loss = mean(square(logits - y));
      if (kind == "by hand") loss = sum(square(logits - y)) / static_cast<double>(batch) * 0.5;
    }
  }
};

NamedTensors batch_of(int64_t n, int step, const std::string& kind) {
  std::vector<float> x(static_cast<size_t>(n) * 3);
  for (size_t i = 0; i < x.size(); ++i) x[i] = static_cast<float>((static_cast<int>(i) * 7 + step * 5) % 11) / 4 - 1;
  NamedTensors batch = {{"x", Tensor::of<float>({n, 3}, x)}};
  if (kind != "cross_entropy") {
    for (float& v : x) v = 1 - v * v;
    batch.emplace_back("y", Tensor::of<float>({n, 3}, x));
    return batch;
  }
  std::vector<int32_t> y(static_cast<size_t>(n));
  for (size_t i = 0; i < y.size(); ++i)
    y[i] = i % 4 == 1 ? -100 : static_cast<int32_t>((i + static_cast<size_t>(step)) % 3);
  batch.emplace_back("y", Tensor::of<int32_t>({n}, y));
  return batch;
}

double distance(const Tensor& a, const Tensor& b) {
  double largest = 0;
  for (int64_t i = 0; i < a.elements(); ++i) largest = std::max(largest, std::abs(a.at(i) - b.at(i)));
  return largest;
}

// Twelve examples as one batch, as 2 × 6, 3 × 4 and 12 × 1: only the order of the sums differs. Values near 1 of at
// most a few dozen terms each, over 5 steps: 5e-6 is some 40 roundings.
TEST(MicroBatches, ResultsDoNotDependOnHowTheExamplesAreSplit) {
  for (const std::string kind : {"cross_entropy", "mse", "mean", "by hand"}) {
    for (const bool scaled : {false, true}) {
      if (scaled && kind != "cross_entropy") continue;
      const auto run = [&](int64_t parts) {
        Net net(12 / parts, 0, kind);
        CompileOptions options = {.loss = net.loss,
                                  .optimizer = optim::SGD{.lr = 0.1, .momentum = 0.9},
                                  .outputs = {{"logits", net.logits}},
                                  .fetch = {"hidden", "x.grad", "fc1.weight.grad"}};
        options.micro_batches = parts;
        options.clip_norm = 0.5;
        options.scale_loss = scaled;
        Program p = compile(net.model, options);
        NamedTensors seen;
        for (int step = 0; step < 5; ++step) {
          const StepResult r = p.step(feeds_of(batch_of(12, step, kind)));
          for (const std::string& name : r.names()) seen.emplace_back(name, r[name]);
        }
        for (auto& entry : p.snapshot()) seen.push_back(entry);
        return seen;
      };
      const NamedTensors want = run(1);
      for (const int64_t parts : {2, 3, 12}) {
        const NamedTensors got = run(parts);
        ASSERT_EQ(want.size(), got.size());
        for (size_t i = 0; i < want.size(); ++i) {
          EXPECT_EQ(want[i].first, got[i].first);
          ASSERT_EQ(want[i].second.type(), got[i].second.type()) << want[i].first;
          EXPECT_LE(distance(want[i].second, got[i].second), 5e-6) << kind << " in " << parts << ": " << want[i].first;
        }
      }
    }
  }
}

TEST(MicroBatches, EachDrawsForItself) {
  Model m;
  const Value x = m.input("x", {f32, {64, 8}});
  const Value kept = dropout(x, 0.5).named("kept");
  const Value w = m.param("w", {f32, {}});
  Program p = compile(m, {.loss = mean(kept * w), .fetch = {"kept", "x.grad"}, .micro_batches = 3});
  const Tensor ones = Tensor::of<float>({192, 8}, std::vector<float>(1536, 1.0f));
  const Tensor mask = p.step({{"x", ones}})["kept"];
  for (int64_t a = 0; a < 3; ++a) {
    int64_t same = 0, first = 512 * a, other = 512 * ((a + 1) % 3);
    for (int64_t i = 0; i < 512; ++i) same += mask.at(first + i) == mask.at(other + i);
    EXPECT_GT(same, 200);  // of 512 independent coins: 256 ± 11
    EXPECT_LT(same, 312);
  }
}

// The gradient's mask is the micro-batch's own: where the value is dropped, so is its gradient.
TEST(MicroBatches, BackwardDropsWhatForwardDropped) {
  Model m;
  const Value x = m.input("x", {f32, {8}}), w = m.param("w", {f32, {8}}, Init::ones());
  const Value kept = dropout(x * w, 0.5).named("kept");
  Program p = compile(m, {.loss = sum(kept), .fetch = {"kept", "x.grad"}, .micro_batches = 4});
  const StepResult r = p.step({{"x", of(std::vector<float>(32, 1.0f))}});
  EXPECT_EQ(r["kept"], r["x.grad"]);
}

// A running sum goes through the micro-batches in order, as it would through steps.
TEST(MicroBatches, StatesGoFromOneToTheNext) {
  const auto run = [](int64_t parts, int steps) {
    Model m;
    const Value x = m.input("x", {f32, {2}}), w = m.param("w", {f32, {}}, Init::ones());
    const Value seen = m.state("seen", {f32, {}}), n = m.state("n", {f32, {}});
    m.update(seen, seen * 0.5 + mean(x));
    m.update(n, n + 1);
    const Value loss = mean(x * w);
    Program p = compile(m, {.loss = loss, .fetch = {"seen"}, .micro_batches = parts});
    std::vector<float> data;
    for (int64_t i = 0; i < 2 * parts; ++i) data.push_back(static_cast<float>(i));
    for (int step = 0; step < steps; ++step) {
      std::vector<float> own = data;
      if (parts == 1) own = {static_cast<float>(2 * step), static_cast<float>(2 * step + 1)};
      EXPECT_EQ(p.step({{"x", of(own)}}).scalar("seen"), step == 0 ? 0 : p.read("seen").item()) << parts;
      if (step == 0 && parts > 1) break;
    }
    EXPECT_EQ(p.read("n").item(), parts > 1 ? 1 : steps);
    return p.read("seen").item();
  };
  EXPECT_EQ(run(3, 1), 0.25 * 0.5 + 0.5 * 2.5 + 4.5);
}

TEST(MicroBatches, SharedInputsAreReadWholeByAll) {
  Model m;
  const Value x = m.input("x", {f32, {2, 2}}), bias = m.input("bias", {f32, {2}}), gain = m.input("gain", {f32, {}});
  const Value w = m.param("w", {f32, {2}}, Init::ones());
  const Value loss = sum((x * gain + bias) * w);
  Program p = compile(m, {.loss = loss,
                          .fetch = {"w.grad", "bias.grad", "gain.grad"},
                          .micro_batches = 2,
                          .shared_inputs = {"bias", "gain"}});
  const StepResult r = p.step({{"x", Tensor::of<float>({4, 2}, {1, 2, 3, 4, 5, 6, 7, 8})},
                               {"bias", of({10, 20})},
                               {"gain", Tensor::scalar(2.f)}});
  EXPECT_EQ(r["w.grad"], of({2 * 16 + 40, 2 * 20 + 80}));
  EXPECT_EQ(r["bias.grad"], of({4, 4}));
  EXPECT_EQ(r.scalar("gain.grad"), 36);
  EXPECT_EQ(error_of([&] { compile(m, {.loss = loss, .micro_batches = 2}); }),
            "micro_batches: input 'gain' : f32[] has no leading axis to split");
  EXPECT_EQ(error_of([&] {
              compile(m, {.loss = loss, .micro_batches = 2, .shared_inputs = {"bais", "gain"}});
            }),
            "shared_inputs: no input is named 'bais'");
}

TEST(MicroBatches, WhatCannotBeSplitIsRefused) {
  Model m;
  const Value x = m.input("x", {f32, {4}}), w = m.param("w", {f32, {4}}, Init::ones());
  const Value xw = x * w, loss = mean(xw), top = max(xw);
  EXPECT_EQ(error_of([&] { compile(m, {.loss = top, .micro_batches = 2}); }),
            "micro_batches: expected a loss that shows what it is the mean or sum of, got reduce_max");
  EXPECT_EQ(error_of([&] { compile(m, {.loss = sum(xw) / 7, .micro_batches = 2}); }),
            "micro_batches: expected a loss that shows what it is the mean or sum of, got div");
  EXPECT_EQ(error_of([&] {
              compile(m, {.loss = loss, .outputs = {{"top", top}}, .micro_batches = 2});
            }),
            "micro_batches: 'top' : f32[] has no leading axis along which those of the micro-batches could follow one "
            "another");
  // The 4 of an axis is not that of the examples, and what is the same in all micro-batches is not to be added up.
  const Value rows = m.input("rows", {f32, {4, 4}}), scaled = rows * w, across = transpose(scaled, {1, 0});
  EXPECT_EQ(error_of([&] { compile(m, {.loss = sum(across) / 4, .micro_batches = 2}); }),
            "micro_batches: expected a loss that shows what it is the mean or sum of, got div");
  EXPECT_EQ(error_of([&] { compile(m, {.loss = sum(scaled) / 4, .micro_batches = 2}); }), "");
  const Value decay = sum(w * w);
  EXPECT_EQ(error_of([&] { compile(m, {.loss = decay, .micro_batches = 2}); }),
            "micro_batches: the loss depends on no input that is split into micro-batches");
  EXPECT_EQ(error_of([&] { compile(m, {.loss = loss, .micro_batches = 0}); }),
            "compile: expected micro_batches 1 or more, and 1 without a loss, got 0");
  EXPECT_NE(error_of([&] { compile(m, {.outputs = {{"top", top}}, .micro_batches = 2}); }), "");
  Program p = compile(m, {.loss = loss, .micro_batches = 2});
  EXPECT_EQ(error_of([&] { p.step({{"x", of({1, 2, 3, 4})}}); }), "input 'x': expected f32[8], got f32[4]");
}

// The parts run one after another, so that the values of one are in memory at a time: of a net whose activations are
// most of it, four parts need little more than a quarter. (A device that runs launches side by side may take more.)
TEST(MicroBatches, OnePartIsInMemoryAtATime) {
  const auto arena = [](int64_t parts) {
    Model m;
    const int64_t batch = 1024 / parts;
    const Value x = m.input("x", {f32, {batch, 16}}), y = m.input("y", {i32, {batch}});
    Value h = x;
    for (int layer = 0; layer < 6; ++layer) {
      h = m.add(nn::LayerNorm(), h, "norm" + std::to_string(layer));
      h = tanh(m.add(nn::Linear(32), h, "fc" + std::to_string(layer)));
    }
    const Value loss = cross_entropy(m.add(nn::Linear(10), h, "head"), y);
    return static_cast<double>(
        compile(m,
                {.loss = loss, .optimizer = optim::AdamW{}, .backend = "cpu", .clip_norm = 1, .micro_batches = parts})
            .memory()
            .arena);
  };
  EXPECT_LT(arena(4), 0.4 * arena(1));
}

// A label out of range in any of them: by the name that the user knows.
TEST(MicroBatches, InputErrorsNameTheInput) {
  Net net(2);
  Program p = compile(net.model, {.loss = net.loss, .optimizer = optim::SGD{.lr = 0.1}, .micro_batches = 3});
  NamedTensors batch = batch_of(6, 0, "cross_entropy");
  const NamedTensors before = p.snapshot();
  batch[1].second.as<int32_t>()[4] = 3;
  const std::string message = error_of([&] {
    p.step(feeds_of(batch));
    p.wait();
  });
  EXPECT_EQ(
      message,
      "cross_entropy: 'y' holds a value outside [0,3) other than the ignored -100 at step 1; nothing was updated");
  EXPECT_TRUE(before == p.snapshot());
}

TEST(MicroBatches, TheLossCanBeSeeded) {
  Model m;
  const Value x = m.input("x", {f32, {2}}), w = m.param("w", {f32, {}}, Init::ones());
  Program p = compile(m, {.loss = mean(x * w), .fetch = {"w.grad"}, .micro_batches = 3, .grad_initial_input = true});
  const StepResult r = p.step({{"x", of({1, 2, 3, 4, 5, 9})}, {"grad_initial", Tensor::scalar(3.f)}});
  EXPECT_EQ(r.scalar("w.grad"), 12);
  EXPECT_EQ(r.scalar("loss"), 4);
}

// Every way to run it, over 8 steps with an overflow in the middle, with all that a step may do.
TEST(MicroBatches, EveryWayToRunGivesTheSameBits) {
  for (const std::string precision : {"f32", "bf16", "f16"}) {
    Net net(2, 0.25);
    std::vector<NamedTensors> batches;
    for (int step = 0; step < 8; ++step) {
      batches.push_back(batch_of(6, step, "cross_entropy"));
      if (step == 4) batches[4][0].second.as<float>()[7] = std::numeric_limits<float>::infinity();
    }
    CompileOptions options = {.loss = net.loss, .optimizer = optim::AdamW{.lr = 0.05}, .precision = precision};
    options.micro_batches = 3;
    options.clip_norm = 0.5;
    options.scale_loss = true;
    options.ema_decay = 0.9;
    const auto rows = verify(net.model, options, [&](int step) { return feeds_of(batches[static_cast<size_t>(step)]); },
                             {.orders = 3});
    EXPECT_GT(rows.size(), 8u);
    for (const VerifyRow& row : rows) {
      if (row.name.find("later steps") != std::string::npos) continue;  // a bound, and the overflow is beyond it
      EXPECT_TRUE(row.equal) << precision << ": " << row.name << ": " << row.detail;
    }
  }
}

}  // namespace
}  // namespace aicf
