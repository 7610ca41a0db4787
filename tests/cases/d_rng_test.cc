// Cases D1 and D2: masks fixed when the graph was built, and gradients through dropped units. The class: everything
// that decides which draws a step makes.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <set>

#include "aicf/safetensors.h"
#include "ir/op.h"
#include "ops/rng_bits.h"
#include "runtime/executable.h"
#include "runtime/program.h"
#include "support/programs.h"

namespace aicf {
namespace {

constexpr int64_t kUnits = 4096;

Tensor filled(const Shape& shape, float value) {
  Tensor t(TensorType{f32, shape});
  std::fill_n(t.as<float>(), t.elements(), value);
  return t;
}

int64_t count_nonzero(const Tensor& t) {
  int64_t n = 0;
  for (int64_t i = 0; i < t.elements(); ++i) n += t.at(i) != 0;
  return n;
}

double agreement(const Tensor& a, const Tensor& b) {
  int64_t same = 0;
  for (int64_t i = 0; i < a.elements(); ++i) same += (a.at(i) != 0) == (b.at(i) != 0);
  return static_cast<double>(same) / static_cast<double>(a.elements());
}

// Two dropouts of one input.
struct TwoMasks {
  Model model;
  explicit TwoMasks(uint64_t seed = 5, double p = 0.5) : model(seed) {
    const Value x = model.input("x", {f32, {kUnits}});
    model.output("a", dropout(x, p));
    model.output("b", dropout(x, p));
  }
};

std::vector<Tensor> masks(Program& p, int steps) {
  const Tensor ones = filled({kUnits}, 1);
  std::vector<Tensor> all;
  for (int i = 0; i < steps; ++i) {
    const StepResult r = p.step({{"x", ones}});
    all.push_back(r["a"]);
    all.push_back(r["b"]);
  }
  return all;
}

// 45 to 55 %: 6 standard deviations of a fair coin thrown 4096 times are 4.7 %.
TEST(CaseD1, ReplaysDrawWhatEagerStepsDraw) {
  TwoMasks m;
  Program graph = compile(m.model), eager = compile(m.model, {.mode = Mode::eager});
  const std::vector<Tensor> want = masks(graph, 4);
  EXPECT_EQ(masks(eager, 4), want);
  for (size_t i = 0; i < want.size(); ++i) {
    for (int64_t k = 0; k < kUnits; ++k) ASSERT_TRUE(want[i].at(k) == 0 || want[i].at(k) == 2);
    for (size_t j = 0; j < i; ++j) {
      const double same = agreement(want[i], want[j]);
      EXPECT_TRUE(same > 0.45 && same < 0.55) << "masks " << i << " and " << j << ": " << same;
    }
  }
}

// Every way to run the plan, and the seed and the offset alone decide.
TEST(CaseD1, MasksDependOnSeedAndOffsetAlone) {
  TwoMasks m;
  Program first = compile(m.model);
  const std::vector<Tensor> want = masks(first, 4);
  const auto same = [&](const CompileOptions& options) {
    Program p = compile(m.model, options);
    for (uint64_t order = 0; options.mode == Mode::eager && order < 4; ++order) {
      p.impl()->set_eager_order(runtime::random_order(p.impl()->compiled().plan, order));
      EXPECT_EQ(masks(p, 4), want) << "order " << order;
      p.reset();
    }
    EXPECT_EQ(masks(p, 4), want);
  };
  same({.mode = Mode::replay});
  same({.mode = Mode::eager});
  same({.alias = false, .reuse = false});
  same({.disable_passes = {"dce"}});
  same({.threads = 1});

  TwoMasks other_seed(6);
  Program other = compile(other_seed.model);
  EXPECT_NE(masks(other, 4), want);
  other.write("rng.seed", Tensor::scalar<int64_t>(5));
  other.write("rng.offset", 0.0);
  EXPECT_EQ(masks(other, 4), want);
}

// A seed of 64 bits arrives whole; the states go on, go back and are restored like all others.
TEST(CaseD1, SeedAndOffsetAreStates) {
  const uint64_t seed = 0xfedcba9876543210u;
  TwoMasks m(seed);
  Program p = compile(m.model);
  EXPECT_EQ(p.read("rng.seed"), Tensor::scalar<int64_t>(static_cast<int64_t>(seed)));
  const std::vector<Tensor> want = masks(p, 2);
  EXPECT_EQ(p.read("rng.offset").item(), 2);
  const std::string file = ::testing::TempDir() + "/d_rng.safetensors";
  write_safetensors(file, p.snapshot());
  const std::vector<Tensor> later = masks(p, 2);
  p.reset();
  EXPECT_EQ(p.read("rng.offset").item(), 0);
  EXPECT_EQ(p.read("rng.seed"), Tensor::scalar<int64_t>(static_cast<int64_t>(seed)));
  EXPECT_EQ(masks(p, 2), want);

  TwoMasks again(1);
  Program resumed = compile(again.model);
  resumed.load(read_safetensors(file).tensors);
  EXPECT_EQ(masks(resumed, 2), later);
}

// D2: the mask of the gradient is that of the value, which is 0 everywhere.
TEST(CaseD2, DroppedUnitsHaveNoGradient) {
  Model m(3);
  const Value w = m.param("w", {f32, {kUnits}});
  const Value y = dropout(w, 0.5);
  m.output("y", y);
  Program p = compile(m, {.loss = sum(y), .outputs = {{"y", y}}, .fetch = {"w.grad"}});
  const Tensor zero_grad = p.step({})["w.grad"];
  for (int64_t i = 0; i < kUnits; ++i) ASSERT_TRUE(zero_grad.at(i) == 0 || zero_grad.at(i) == 2);
  const int64_t kept = count_nonzero(zero_grad);
  EXPECT_TRUE(kept > 0.45 * kUnits && kept < 0.55 * kUnits) << kept;
  p.write("w", filled({kUnits}, 1));
  for (int i = 0; i < 4; ++i) {
    const StepResult r = p.step({});
    EXPECT_EQ(r["y"], r["w.grad"]);
    EXPECT_NE(r["w.grad"], zero_grad);
  }
}

// The share kept is 1 - p within 5 standard deviations of 2^16 throws.
TEST(Dropout, KeepsItsShare) {
  constexpr int64_t kThrows = 1 << 16;
  for (const double p : {0.1, 0.5, 0.9}) {
    for (const uint64_t seed : {0u, 1u, 12345u}) {
      Model m(seed);
      m.output("y", dropout(m.input("x", {f32, {256, 256}}), p));
      Program program = compile(m);
      const Tensor y = program.step({{"x", filled({256, 256}, 1)}})["y"];
      const double share = static_cast<double>(count_nonzero(y)) / kThrows;
      EXPECT_NEAR(share, 1 - p, 5 * std::sqrt(p * (1 - p) / kThrows)) << p << " with seed " << seed;
      const auto scaled = static_cast<float>(1 / (1 - p));
      for (int64_t i = 0; i < kThrows; ++i) ASSERT_TRUE(y.at(i) == 0 || y.at(i) == scaled);
    }
  }
}

// Runs of 4 words: over 128 elements of 3 ordinals and 3 offsets none comes twice (2^128 are possible).
TEST(RngBits, NoBlockRepeats) {
  Model m(9);
  const ops::RngStates rng = ops::rng_states(m.graph());
  for (int64_t ordinal : {0, 1, 1 << 19}) {
    m.output(std::to_string(ordinal), ops::rng_bits(rng.seed, rng.offset, {128}, ordinal));
  }
  Program p = compile(m);
  std::set<std::vector<int32_t>> seen;
  size_t drawn = 0;
  for (int step = 0; step < 3; ++step) {
    const StepResult r = p.step({});
    for (const std::string& name : r.names()) {
      const Tensor bits = r[name];
      for (int64_t i = 0; i < 128; i += 4, ++drawn) {
        const int32_t* b = bits.as<int32_t>() + i;
        seen.emplace(b, b + 4);
      }
    }
  }
  EXPECT_EQ(seen.size(), drawn);
}

TEST(Dropout, EvaluationDropsNothing) {
  Model m(2);
  const Value x = m.input("x", {f32, {8, 64}});
  const Value h = m.add(nn::Dropout(0.5), m.add(nn::Linear(64), x, "fc"), "drop");
  const Value loss = mean(h * h);
  Program train = compile(m, {.loss = loss, .optimizer = optim::SGD{.lr = 0.0}, .outputs = {{"h", h}}});
  Program eval = compile(m, {.outputs = {{"h", h}, {"loss", loss}}, .share = train});
  Program drawing = compile(m, {.outputs = {{"h", h}}, .training = true, .share = train});
  const Tensor ones = filled({8, 64}, 1);
  EXPECT_GT(count_nonzero(eval.step({{"x", ones}})["h"]), 500);
  EXPECT_EQ(train.read("rng.offset").item(), 0);
  const Tensor first = train.step({{"x", ones}})["h"];
  EXPECT_LT(count_nonzero(first), 400);
  EXPECT_EQ(train.read("rng.offset").item(), 1);
  const Tensor second = drawing.step({{"x", ones}})["h"];
  EXPECT_LT(count_nonzero(second), 400);
  EXPECT_NE(first, second);
  EXPECT_EQ(train.read("rng.offset").item(), 2);
  Program still = compile(m, {.loss = loss, .outputs = {{"h", h}}, .training = false, .share = train});
  EXPECT_EQ(still.step({{"x", ones}})["h"], eval.step({{"x", ones}})["h"]);
  EXPECT_EQ(train.read("rng.offset").item(), 2);
}

TEST(Dropout, POfZeroIsTheValueItself) {
  Model m;
  const Value x = m.input("x", {f32, {3}});
  EXPECT_EQ(dropout(x, 0), x);
  EXPECT_EQ(m.add(nn::Dropout(0), x), x);
  EXPECT_EQ(m.graph().find_external("rng.seed"), ir::kNoValue);
}

TEST(Dropout, RefusesWhatIsNoProbability) {
  Model m;
  const Value x = m.input("x", {f32, {3}}), i = m.input("i", {i32, {3}});
  for (const double p : {-0.1, 1.0, std::nan("")}) {
    EXPECT_EQ(test::error_of([&] { dropout(x, p); }).rfind("dropout(f32[3]): expected p in [0, 1), got ", 0), 0u);
    EXPECT_EQ(test::error_of([&] { nn::Dropout layer(p); }).rfind("dropout: expected p in [0, 1), got ", 0), 0u);
  }
  EXPECT_EQ(test::error_of([&] { dropout(i, 0.5); }), "dropout(i32[3]): expected floats");
  m.input("rng.seed", {i64, {}});
  EXPECT_EQ(test::error_of([&] { dropout(x, 0.5); }),
            "random draws: expected rng.seed to be a state of type i64[], got the input i64[]");
}

// The draws of a step that an index out of range stopped are those of the next: it changed nothing.
TEST(Dropout, AFailedStepDrawsAgain) {
  Model m(4);
  const Value x = m.input("x", {f32, {64}});
  const Value index = m.input("i", {i32, {1}});
  const Value y = dropout(x, 0.5);
  m.output("y", y);
  m.output("picked", gather(x, index));
  Program p = compile(m), other = compile(m);
  const Tensor ones = filled({64}, 1);
  const Tensor good = Tensor::of<int32_t>({1}, {0}), bad = Tensor::of<int32_t>({1}, {64});
  const Tensor want = other.step({{"x", ones}, {"i", good}})["y"];
  EXPECT_NE(test::error_of([&] {
              p.step({{"x", ones}, {"i", bad}});
              p.wait();
            }),
            "");
  EXPECT_EQ(p.read("rng.offset").item(), 0);
  EXPECT_EQ(p.step({{"x", ones}, {"i", good}})["y"], want);
}

// In 16 bits the kept values are x / (1 - p) computed in f32 and rounded once, and the masks are those of f32.
TEST(Dropout, FollowsThePrecision) {
  Model m(8);
  const Value x = m.input("x", {f32, {16, 32}});
  const Value h = dropout(m.add(nn::Linear(32, false), x, "fc1"), 0.3);
  const Value loss = mean(m.add(nn::Linear(4), h, "fc2"));
  const Tensor ones = filled({16, 32}, 1);
  Program wide = compile(m, {.loss = loss, .outputs = {{"h", h}}});
  Program narrow = compile(m, {.loss = loss, .outputs = {{"h", h}}, .precision = "bf16"});
  const std::string step = narrow.dump("step"), found = step.substr(step.find(" = dropout("));
  EXPECT_TRUE(found.substr(0, found.find('\n')).ends_with(": bf16[16,32]")) << step;
  const Tensor a = wide.step({{"x", ones}})["h"], b = narrow.step({{"x", ones}})["h"];
  EXPECT_EQ(agreement(a, b), 1);
  EXPECT_NE(a, b);
}

}  // namespace
}  // namespace aicf
