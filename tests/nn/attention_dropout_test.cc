// Dropout inside attention and in the GPT: values and gradients against plain arithmetic with the same mask, what the
// mask depends on, and that every way to run such a step gives the same bits.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <cmath>
#include <set>

#include "aicf/recipe.h"
#include "aicf/verify.h"
#include "ops/grad_check.h"
#include "ops/reference.h"
#include "ops/rng_bits.h"
#include "support/programs.h"

namespace aicf {
namespace {

using test::Array;
using test::TensorMap;

Tensor ones(const Shape& shape) {
  Tensor t(TensorType{f32, shape});
  std::fill_n(t.as<float>(), t.elements(), 1.0f);
  return t;
}

Tensor ramp(const Shape& shape, double first) {
  Tensor t(TensorType{f64, shape});
  for (int64_t i = 0; i < t.elements(); ++i) t.as<double>()[i] = std::sin(first + 1.7 * static_cast<double>(i));
  return t;
}

// --- against plain arithmetic -----------------------------------------------------------------------------------

constexpr int64_t kHeads = 2, kQueries = 3, kKeys = 5, kInner = 4, kWidth = 2;

struct Plain {
  Array o, dq, dk, dv;
};

// One head after another; `w` is the cotangent of o.
Plain plain_attention(Array q, Array k, Array v, Array w, Array bits, double p, bool causal) {
  Plain r{Array({kHeads, kQueries, kWidth}), Array(q.dims), Array(k.dims), Array(v.dims)};
  const double scale = 1 / std::sqrt(static_cast<double>(kInner));
  for (int64_t h = 0; h < kHeads; ++h) {
    for (int64_t i = 0; i < kQueries; ++i) {
      double weight[kKeys] = {}, mask[kKeys] = {}, dweight[kKeys] = {}, total = 0, pull = 0;
      for (int64_t j = 0; j < kKeys; ++j) {
        double score = 0;
        for (int64_t c = 0; c < kInner; ++c) score += q.at({h, i, c}) * k.at({h, j, c});
        weight[j] = !causal || j <= i + kKeys - kQueries ? std::exp(score * scale) : 0;
        total += weight[j];
        mask[j] = (bits.at({h, i, j}) + 0x1p31) * 0x1p-32 >= p ? 1 / (1 - p) : 0;
      }
      for (int64_t j = 0; j < kKeys; ++j) {
        weight[j] /= total;
        for (int64_t c = 0; c < kWidth; ++c) {
          r.o.at({h, i, c}) += weight[j] * mask[j] * v.at({h, j, c});
          r.dv.at({h, j, c}) += weight[j] * mask[j] * w.at({h, i, c});
          dweight[j] += w.at({h, i, c}) * v.at({h, j, c}) * mask[j];
        }
        pull += weight[j] * dweight[j];
      }
      for (int64_t j = 0; j < kKeys; ++j) {
        const double dscore = weight[j] * (dweight[j] - pull) * scale;
        for (int64_t c = 0; c < kInner; ++c) {
          r.dq.at({h, i, c}) += dscore * k.at({h, j, c});
          r.dk.at({h, j, c}) += dscore * q.at({h, i, c});
        }
      }
    }
  }
  return r;
}

// A few dozen f64 operations on numbers of order 1 are within 1e-13.
void expect_equal(const Tensor& got, const Array& want, const std::string& what) {
  ASSERT_EQ(static_cast<size_t>(got.elements()), want.data.size()) << what;
  for (size_t i = 0; i < want.data.size(); ++i) {
    EXPECT_NEAR(got.at(static_cast<int64_t>(i)), want.data[i], 1e-13) << what << " element " << i;
  }
}

TEST(AttentionDropout, ValueAndGradientsHaveOneMask) {
  const Tensor q = ramp({kHeads, kQueries, kInner}, 0), k = ramp({kHeads, kKeys, kInner}, 1),
               v = ramp({kHeads, kKeys, kWidth}, 2), w = ramp({kHeads, kQueries, kWidth}, 3);
  const Tensor seed = Tensor::scalar<int64_t>(77), offset = Tensor::scalar<int64_t>(5);
  for (const bool causal : {false, true}) {
    for (const double p : {0.1, 0.5, 0.8}) {
      ir::Graph graph;
      const auto operand = [&](const char* name, const Tensor& t) {
        return graph.handle(graph.add_external(ir::Role::input, name, t.type()));
      };
      const Value o = attention(operand("q", q), operand("k", k), operand("v", v), causal, std::nullopt, p);
      graph.add_output("o", o.id());
      graph.add_output("loss", sum(o * operand("w", w)).id());
      test::add_gradients(graph, {"q", "k", "v"});
      const TensorMap got = test::expand_and_interpret(
          graph, {{"q", q}, {"k", k}, {"v", v}, {"w", w}, {"rng.seed", seed}, {"rng.offset", offset}});
      const Array bits = test::rng_bits_reference(
          {Array(seed), Array(offset)},
          {{"ordinal", int64_t{0}}, {"shape", std::vector<int64_t>{kHeads, kQueries, kKeys}}})[0];
      const Plain want = plain_attention(Array(q), Array(k), Array(v), Array(w), bits, p, causal);
      const std::string where = fmt::format("p {} causal {}: ", p, causal);
      expect_equal(got.at("o"), want.o, where + "o");
      expect_equal(got.at("grad:q"), want.dq, where + "dq");
      expect_equal(got.at("grad:k"), want.dk, where + "dk");
      expect_equal(got.at("grad:v"), want.dv, where + "dv");
    }
  }
}

TEST(AttentionDropout, WithoutAShareIsAttention) {
  ir::Graph graph;
  const Value q = graph.handle(graph.add_external(ir::Role::input, "q", {f32, {3, 4}}));
  const Value plain = attention(q, q, q, true), none = attention(q, q, q, true, std::nullopt, 0);
  EXPECT_STREQ(graph.op(graph.value(none.id()).producer).def->name, "attention");
  EXPECT_EQ(graph.op(graph.value(none.id()).producer).attrs, graph.op(graph.value(plain.id()).producer).attrs);
  EXPECT_EQ(graph.find_external(ops::kRngSeed), ir::kNoValue);
}

TEST(AttentionDropout, RefusesWhatIsNoShareAndLeavesNothing) {
  ir::Graph graph;
  const Value q = graph.handle(graph.add_external(ir::Role::input, "q", {f32, {3, 4}}));
  const Value k = graph.handle(graph.add_external(ir::Role::input, "k", {f32, {3, 5}}));
  for (const double p : {-0.1, 1.0, std::nan("")}) {
    EXPECT_EQ(test::error_of([&] {
                attention(q, q, q, false, std::nullopt, p);
              }).rfind("attention: expected a dropout in [0, 1), got ", 0),
              0u);
    EXPECT_EQ(test::error_of([&] {
                nn::SelfAttention(4, 2, true, 0, p);
              }).rfind("self_attention: expected a dropout in [0, 1), got ", 0),
              0u);
    EXPECT_EQ(test::error_of([&] { nn::Gpt({.dropout = p}); }).rfind("gpt: expected a dropout in [0, 1), got ", 0), 0u);
  }
  EXPECT_EQ(test::error_of([&] { attention(q, k, k, false, std::nullopt, 0.5); }),
            "attention(f32[3,4], f32[3,5], f32[3,5]): expected k of shape [3,4] but for axis 0, got f32[3,5]");
  EXPECT_EQ(graph.find_external(ops::kRngSeed), ir::kNoValue);
}

// --- masks ------------------------------------------------------------------------------------------------------

// Queries of zeros see all keys alike, and values that are the unit matrix show the attention's weights as they are.
struct Weights {
  static constexpr int64_t kRows = 64, kColumns = 128;
  Model model{11};
  explicit Weights(double p) {
    const Value q = model.input("q", {f32, {2, kRows, 1}}), k = model.input("k", {f32, {2, kColumns, 1}});
    const Value v = model.input("v", {f32, {2, kColumns, kColumns}});
    model.output("a", attention(q, k, v, false, std::nullopt, p));
    model.output("b", attention(q, k, v, false, std::nullopt, p));
  }
  static StepResult step(Program& p) {
    Tensor unit(TensorType{f32, {2, kColumns, kColumns}});
    for (int64_t i = 0; i < unit.elements(); ++i) unit.as<float>()[i] = i / kColumns % kColumns == i % kColumns ? 1 : 0;
    return p.step({{"q", Tensor(TensorType{f32, {2, kRows, 1}})}, {"k", ones({2, kColumns, 1})}, {"v", unit}});
  }
};

double share_kept(const Tensor& t) {
  int64_t kept = 0;
  for (int64_t i = 0; i < t.elements(); ++i) kept += t.at(i) != 0;
  return static_cast<double>(kept) / static_cast<double>(t.elements());
}

// Within 5 standard deviations of 2^14 throws; what is kept is 1/128 scaled by 1 / (1 - p), within its rounding.
TEST(AttentionDropout, KeepsItsShareAndScalesIt) {
  for (const double p : {0.1, 0.5, 0.9}) {
    Weights m(p);
    Program program = compile(m.model);
    const Tensor a = Weights::step(program)["a"];
    EXPECT_NEAR(share_kept(a), 1 - p, 5 * std::sqrt(p * (1 - p) / static_cast<double>(a.elements())));
    const double want = 1.0 / Weights::kColumns / (1 - p);
    for (int64_t i = 0; i < a.elements(); ++i) {
      ASSERT_TRUE(a.at(i) == 0 || std::fabs(a.at(i) - want) <= 0x1p-22 * want) << a.at(i);
    }
  }
}

// Two fair masks agree in half of 2^14 places, within 5 standard deviations: 2 %.
TEST(AttentionDropout, OpsAndStepsHaveMasksOfTheirOwn) {
  Weights m(0.5);
  Program program = compile(m.model);
  std::vector<Tensor> all;
  for (int step = 0; step < 3; ++step) {
    const StepResult r = Weights::step(program);
    all.push_back(r["a"]);
    all.push_back(r["b"]);
  }
  for (size_t i = 0; i < all.size(); ++i) {
    for (size_t j = 0; j < i; ++j) {
      int64_t same = 0;
      for (int64_t e = 0; e < all[i].elements(); ++e) same += (all[i].at(e) != 0) == (all[j].at(e) != 0);
      EXPECT_NEAR(static_cast<double>(same) / static_cast<double>(all[i].elements()), 0.5, 0.02) << i << " and " << j;
    }
  }
}

// --- the GPT ----------------------------------------------------------------------------------------------------

nn::GptOptions small_gpt(double dropout) {
  return {.vocabulary = 13, .context = 6, .layers = 2, .width = 8, .heads = 2, .deviation = 0.3, .dropout = dropout};
}

// After the embedding; in each block on the attention's weights, after its projection, and after the MLP's.
TEST(GptDropout, StandsWhereGpt2HasItAndDrawsAnewAtEachPlace) {
  Model m;
  m.add(nn::Gpt(small_gpt(0.25)), m.input("x", {i32, {3, 6}}), "lm");
  std::multiset<std::string> kinds;
  std::set<int64_t> ordinals;
  for (const ir::Op& op : m.graph().ops()) {
    if (!op.def->is(ir::kRandom)) continue;
    kinds.insert(op.def->name);
    ordinals.insert(op.attrs.get_int("ordinal"));
    EXPECT_EQ(op.attrs.get_float("p"), 0.25);
  }
  EXPECT_EQ(kinds.count("dropout"), 5u);
  EXPECT_EQ(kinds.count("attention_dropout"), 2u);
  EXPECT_EQ(ordinals.size(), 7u);

  Model without;
  without.add(nn::Gpt(small_gpt(0)), without.input("x", {i32, {3, 6}}), "lm");
  for (const ir::Op& op : without.graph().ops()) EXPECT_FALSE(op.def->is(ir::kRandom)) << op.def->name;
  EXPECT_EQ(without.graph().find_external(ops::kRngSeed), ir::kNoValue);
}

TEST(GptDropout, EvaluationIsTheGptWithoutIt) {
  const Tensor tokens = Tensor::of<int32_t>({2, 6}, {1, 4, 12, 0, 7, 7, 3, 3, 2, 9, 10, 5});
  for (const char* precision : {"f32", "bf16"}) {
    const auto logits = [&](double dropout, bool training) {
      Model m(4);
      m.output("logits", m.add(nn::Gpt(small_gpt(dropout)), m.input("x", {i32, {2, 6}}), "lm"));
      Program p = compile(m, {.training = training, .precision = precision});
      return p.step({{"x", tokens}})["logits"];
    };
    EXPECT_EQ(logits(0.5, false), logits(0, false)) << precision;
    EXPECT_EQ(logits(0, true), logits(0, false)) << precision;
    EXPECT_NE(logits(0.5, true), logits(0, false)) << precision;
  }
}

TEST(GptDropout, EveryWayToRunAStepGivesTheSameBits) {
  for (const std::vector<std::string>& sets :
       {std::vector<std::string>{"gpt.dropout=0.2", "gpt.layers=1"},
        std::vector<std::string>{"gpt.dropout=0.5", "gpt.layers=1", "precision=bf16"}}) {
    const Recipe recipe = load_recipe(AICF_SOURCE_DIR "/recipes/gpt-nano-mini.toml", sets);
    RecipeModel model = build_model(recipe, recipe.train.batch);
    Loader loader(load_data(recipe, true), {.batch = recipe.train.batch});
    std::vector<NamedTensors> batches(3);
    for (NamedTensors& batch : batches) {
      for (const Feed& feed : loader.next().feeds) batch.emplace_back(std::string(feed.name), Tensor(feed.tensor));
    }
    const CompileOptions options = {
        .loss = model.loss, .optimizer = build_optimizer(recipe, 1), .precision = recipe.precision};
    const auto feeds = [&](int step) { return test::feeds_of(batches[static_cast<size_t>(step)]); };
    const std::vector<VerifyRow> rows = verify(model.model, options, feeds, {.steps = 3, .orders = 2});
    EXPECT_GT(rows.size(), 15u);
    for (const VerifyRow& row : rows) EXPECT_TRUE(row.equal) << row.name << ": " << row.detail;

    // And the draws of a step matter: without dropout it is another loss.
    Program dropping = compile(model.model, options);
    RecipeModel plain =
        build_model(load_recipe(AICF_SOURCE_DIR "/recipes/gpt-nano-mini.toml", std::vector<std::string>{sets[1]}), 2);
    Program keeping = compile(plain.model, {.loss = plain.loss, .optimizer = build_optimizer(recipe, 1)});
    EXPECT_NE(dropping.step(feeds(0))["loss"].item(), keeping.step(feeds(0))["loss"].item());
  }
}

}  // namespace
}  // namespace aicf
