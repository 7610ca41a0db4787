// Every optimizer, option by option, against a scalar f64 reference written from the formulas; names, groups, dtypes,
// errors.
#include <gtest/gtest.h>

#include <cmath>
#include <functional>

#include "aicf/error.h"
#include "optim/step.h"

namespace aicf::optim {
namespace {

// One parameter element, from the formulas of aicf/optim.h: nothing shared with the code under test.
struct Reference {
  double p = 0, m = 0, v = 0, buffer = 0;
  int64_t t = 0;  // steps done

  void sgd(const SGD& o, double lr, double g) {
    g += o.weight_decay * p;
    if (o.momentum != 0) {
      buffer = t == 0 ? g : o.momentum * buffer + (1 - o.dampening) * g;
      g = o.nesterov ? g + o.momentum * buffer : buffer;
    }
    p -= lr * g;
    ++t;
  }
  template <class Options>
  void adam(const Options& o, double lr, double g, bool decoupled) {
    ++t;
    if (!decoupled) g += o.weight_decay * p;
    m = o.beta1 * m + (1 - o.beta1) * g;
    v = o.beta2 * v + (1 - o.beta2) * g * g;
    const double m_hat = m / (1 - std::pow(o.beta1, t)), v_hat = v / (1 - std::pow(o.beta2, t));
    if (decoupled) p *= 1 - lr * o.weight_decay;
    p -= lr * m_hat / (std::sqrt(v_hat) + o.eps);
  }
};

double rounded(DType dtype, double x) { return dtype == f32 ? static_cast<float>(x) : x; }

// The reference uses the hyper-parameters as their dtype holds them: 0.999 in f32 is another decay than in f64.
template <class Options>
Options rounded_options(DType d, Options o) {
  for (double* x : {&o.lr, &o.weight_decay}) *x = rounded(d, *x);
  if constexpr (requires { o.momentum; }) {
    for (double* x : {&o.momentum, &o.dampening}) *x = rounded(d, *x);
  } else {
    for (double* x : {&o.beta1, &o.beta2, &o.eps}) *x = rounded(d, *x);
  }
  return o;
}

// Relative to the largest term of an update. f32: 12 steps of about ten roundings each, 2^-24 a rounding, doubled.
double tolerance(DType dtype, double scale) {
  return (dtype == f64 ? 1e-12 : 12 * 10 * 0x1p-23) * std::max(1.0, scale);
}

struct Case {
  std::string name;
  Optimizer optimizer;
  std::function<void(Reference&, DType, double lr, double g)> reference;
};

std::vector<Case> cases() {
  std::vector<Case> all;
  for (double momentum : {0.0, 0.9}) {
    for (double dampening : {0.0, 0.5}) {
      for (double decay : {0.0, 0.1}) {
        for (bool nesterov : {false, true}) {
          if (nesterov && (momentum == 0 || dampening != 0)) continue;
          const SGD o{
              .lr = 0.3, .momentum = momentum, .dampening = dampening, .weight_decay = decay, .nesterov = nesterov};
          all.push_back(
              {fmt::format("sgd momentum {} dampening {} decay {} nesterov {}", momentum, dampening, decay, nesterov),
               o, [o](Reference& r, DType d, double lr, double g) { r.sgd(rounded_options(d, o), lr, g); }});
        }
      }
    }
  }
  for (auto [beta1, beta2] : {std::pair{0.9, 0.999}, {0.5, 0.9}, {0.0, 0.0}}) {
    for (double eps : {1e-8, 0.5}) {
      for (double decay : {0.0, 0.1}) {
        const Adam a{.lr = 0.1, .beta1 = beta1, .beta2 = beta2, .eps = eps, .weight_decay = decay};
        const AdamW w{.lr = 0.1, .beta1 = beta1, .beta2 = beta2, .eps = eps, .weight_decay = decay};
        const std::string options = fmt::format("betas {} {} eps {} decay {}", beta1, beta2, eps, decay);
        all.push_back({"adam " + options, a, [a](Reference& r, DType d, double lr, double g) {
                         r.adam(rounded_options(d, a), lr, g, false);
                       }});
        all.push_back({"adamw " + options, w, [w](Reference& r, DType d, double lr, double g) {
                         r.adam(rounded_options(d, w), lr, g, true);
                       }});
      }
    }
  }
  return all;
}

// From non-zero state, over steps whose gradient and learning rate change.
TEST(Optimizer, MatchesTheScalarReference) {
  for (const Case& c : cases()) {
    for (DType dtype : {f64, f32}) {
      for (int64_t t0 : {0, 37}) {
        SCOPED_TRACE(fmt::format("{} {} from t = {}", c.name, name_of(dtype), t0));
        TestStep step(c.optimizer, {{"w", {dtype, {3}}, ""}});
        Reference ref[3];
        for (int i = 0; i < 3; ++i) {
          ref[i].p = rounded(dtype, 0.7 - 0.9 * i);
          step.set("w", ref[i].p, i);
          ref[i].t = t0;
          if (t0 == 0) continue;
          const auto start = [&](const char* name, double value, double& slot) {
            if (!step.has(name)) return;
            slot = rounded(dtype, value);
            step.set(name, slot, i);
          };
          start("optimizer.m/w", 0.3 * i - 0.2, ref[i].m);
          start("optimizer.v/w", 0.05 + 0.4 * i, ref[i].v);
          start("optimizer.momentum/w", 0.5 - 0.3 * i, ref[i].buffer);
        }
        step.set("optimizer.step", static_cast<double>(t0));
        for (int n = 0; n < 12; ++n) {
          const double lr = rounded(dtype, 0.1 / (1 + n));
          step.set("optimizer.lr", lr);
          for (int i = 0; i < 3; ++i) {
            const double g = rounded(dtype, std::sin(1.7 * n + i) + 0.1);
            step.set("w.grad", g, i);
            c.reference(ref[i], dtype, lr, g);
          }
          step.step();
          for (int i = 0; i < 3; ++i) {
            ASSERT_NEAR(step.get("w", i), ref[i].p, tolerance(dtype, std::abs(ref[i].p)))
                << "step " << n << " element " << i;
            if (!step.has("optimizer.m/w")) continue;
            ASSERT_NEAR(step.get("optimizer.m/w", i), ref[i].m, tolerance(dtype, 1)) << "step " << n;
            ASSERT_NEAR(step.get("optimizer.v/w", i), ref[i].v, tolerance(dtype, 1)) << "step " << n;
          }
        }
        EXPECT_EQ(step.get("optimizer.step"), static_cast<double>(t0 + 12));
      }
    }
  }
}

// β1 = 0, eps = 0, m = v = 0, g = lr = 1: the update is √((1 - β2ᵗ)/(1 - β2)), so the correction alone is seen.
TEST(Optimizer, BiasCorrectionIsAccurateFromTheFirstStepToTheMillionth) {
  for (DType dtype : {f64, f32}) {
    const Adam o{.lr = 1, .beta1 = 0, .beta2 = 0.999, .eps = 0};
    TestStep step(o, {{"w", {dtype, {}}, ""}});
    step.set("w.grad", 1);
    const double log_beta = std::log(rounded(dtype, o.beta2));
    for (int64_t t = 1; t <= 1000000; t += std::max<int64_t>(1, t / 7)) {
      for (const char* name : {"w", "optimizer.m/w", "optimizer.v/w"}) step.set(name, 0);
      step.set("optimizer.step", static_cast<double>(t - 1));
      step.step();
      const double want = std::sqrt(std::expm1(static_cast<double>(t) * log_beta) / std::expm1(log_beta));
      // Half the few ulp of log and expm1, and a rounding for each of five ops.
      ASSERT_NEAR(-step.get("w") / want, 1, dtype == f64 ? 1e-13 : 8 * 0x1p-24) << name_of(dtype) << " t = " << t;
    }
  }
}

TEST(Optimizer, A1_TheStepCounterLivesInTheStep) {
  for (DType dtype : {f64, f32}) {
    TestStep step(Adam{.lr = 0.1}, {{"w", {dtype, {}}, ""}});
    step.set("w", 1);
    for (double x : {1.0, -2.0, 3.0, -1.0, 0.5}) {
      step.set("w.grad", x);
      step.step();
    }
    EXPECT_NEAR(step.get("w"), 0.872965, 1e-6);
  }
}

TEST(Optimizer, A2_AWrittenLearningRateActsAtTheNextStep) {
  for (DType dtype : {f64, f32}) {
    TestStep step(SGD{.lr = 7}, {{"w", {dtype, {}}, ""}});
    step.set("w", 1);
    step.set("w.grad", 1);
    for (double lr : {0.1, 0.05, 0.025}) {
      step.set("optimizer.lr", lr);
      step.step();
      EXPECT_EQ(step.get("optimizer.lr_effective"), rounded(dtype, lr));
    }
    EXPECT_NEAR(step.get("w"), 0.825, 1e-6);
  }
}

// A float that was baked would not answer to a write.
TEST(Optimizer, EveryFloatIsState) {
  const auto moves = [](const Optimizer& optimizer, const std::string& scalar, double value) {
    double w[2];
    for (int changed : {0, 1}) {
      TestStep step(optimizer, {{"w", {f64, {}}, ""}});
      step.set("w", 1);
      for (int n = 0; n < 3; ++n) {
        if (changed && n == 1) step.set(scalar, value);
        step.set("w.grad", 1 + n);
        step.step();
      }
      w[changed] = step.get("w");
    }
    return w[0] != w[1];
  };
  for (const char* name : {"lr", "weight_decay", "momentum", "dampening"}) {
    EXPECT_TRUE(moves(SGD{.momentum = 0.9}, std::string("optimizer.") + name, 0.3)) << name;
  }
  for (const Optimizer& o : {Optimizer(Adam{}), Optimizer(AdamW{})}) {
    for (const char* name : {"lr", "weight_decay", "beta1", "beta2", "eps"}) {
      EXPECT_TRUE(moves(o, std::string("optimizer.") + name, 0.3)) << o.name() << " " << name;
    }
  }
  EXPECT_TRUE(moves(SGD{.schedule = Schedule::linear_warmup(9)}, "optimizer.schedule.warmup_steps", 3));
  EXPECT_TRUE(moves(SGD{.schedule = Schedule::cosine(9)}, "optimizer.schedule.total_steps", 20));
  EXPECT_TRUE(moves(SGD{.schedule = Schedule::cosine(9)}, "optimizer.schedule.min_factor", 0.5));
}

TEST(Optimizer, AGroupHasItsOwnScalarsAndCounter) {
  const SGD o{.lr = 0.1, .weight_decay = 0, .groups = {{.name = "decay", .lr = 0.2, .weight_decay = 0.5}}};
  TestStep step(o, {{"a", {f64, {}}, ""}, {"b", {f64, {}}, "decay"}, {"c", {f64, {}}, "other"}});
  for (const char* p : {"a", "b", "c"}) {
    step.set(p, 1);
    step.set(std::string(p) + ".grad", 1);
  }
  step.step();
  EXPECT_DOUBLE_EQ(step.get("a"), 1 - 0.1);
  EXPECT_DOUBLE_EQ(step.get("b"), 1 - 0.2 * 1.5);
  EXPECT_DOUBLE_EQ(step.get("c"), 1 - 0.1);  // no override: the optimizer's values, as scalars of its own
  step.set("optimizer.decay.lr", 0);
  step.set("optimizer.other.weight_decay", 1);
  step.step();
  EXPECT_DOUBLE_EQ(step.get("a"), 1 - 0.2);
  EXPECT_DOUBLE_EQ(step.get("b"), 1 - 0.2 * 1.5);
  EXPECT_DOUBLE_EQ(step.get("c"), 0.9 - 0.1 * 1.9);
  for (const char* g : {"", "decay.", "other."}) EXPECT_EQ(step.get(fmt::format("optimizer.{}step", g)), 2);
}

TEST(Optimizer, MomentsOfNarrowParametersAreF32) {
  for (DType dtype : {bf16, f16}) {
    TestStep step(AdamW{.lr = 0.01}, {{"w", {dtype, {2}}, ""}, {"x", {f32, {}}, ""}});
    EXPECT_EQ(step.graph.type(step.graph.find_external("optimizer.m/w")), (TensorType{f32, {2}}));
    EXPECT_EQ(step.graph.type(step.graph.find_external("optimizer.lr")).dtype, f32);
    step.set("w", 1);
    step.set("w.grad", 1);
    step.step();
    Tensor want(TensorType{dtype, {}});
    set_element(dtype, want.data(), 0, (1 - 0.01 * 0.01) - 0.01);  // not near the middle of two neighbours
    EXPECT_EQ(step.get("w"), want.item());
  }
  TestStep mixed(AdamW{}, {{"w", {f32, {}}, ""}, {"x", {f64, {}}, ""}});
  EXPECT_EQ(mixed.graph.type(mixed.graph.find_external("optimizer.lr")).dtype, f64);
  EXPECT_EQ(mixed.graph.type(mixed.graph.find_external("optimizer.m/w")).dtype, f64);
}

TEST(Optimizer, EveryUpdateIsLabelled) {
  for (const Optimizer& o : {Optimizer(SGD{.momentum = 0.9}), Optimizer(Adam{}), Optimizer(AdamW{})}) {
    TestStep step(o, {{"a", {f32, {2}}, ""}, {"b", {bf16, {}}, "g"}});
    for (const ir::Update& u : step.graph.updates()) {
      EXPECT_EQ(step.graph.value(u.value).name, step.graph.value(u.target).name + ".next");
      EXPECT_EQ(u.guard, ir::kNoValue);
    }
  }
}

// In place wherever the formula ends in an op on the old value: AdamW's parameter is shrunk first.
TEST(Optimizer, TheLastOpReadsTheOldValue) {
  const auto reads_old = [](const TestStep& step, const std::string& name) {
    const ir::Graph& g = step.graph;
    const ir::ValueId old = g.find_external(name);
    const ir::ValueId next = g.updates()[static_cast<size_t>(g.find_update(old))].value;
    const std::vector<ir::ValueId>& in = g.op(g.value(next).producer).inputs;
    return std::find(in.begin(), in.end(), old) != in.end();
  };
  const TestStep sgd(SGD{}, {{"w", {f32, {2}}, ""}});
  EXPECT_TRUE(reads_old(sgd, "w"));
  const TestStep adam(Adam{}, {{"w", {f32, {2}}, ""}});
  EXPECT_TRUE(reads_old(adam, "w"));
  const TestStep adamw(AdamW{}, {{"w", {f32, {2}}, ""}});
  for (const TestStep* step : {&adam, &adamw}) {
    EXPECT_TRUE(reads_old(*step, "optimizer.m/w"));
    EXPECT_TRUE(reads_old(*step, "optimizer.v/w"));
  }
}

TEST(Optimizer, NothingTrainedIsNothingEmitted) {
  for (const Optimizer& o : {Optimizer(SGD{.momentum = 0.9}), Optimizer(Adam{}), Optimizer(AdamW{})}) {
    EXPECT_EQ(TestStep(o, {}).graph.num_values(), 0);
  }
}

template <class F>
std::string message_of(F&& f, std::string* hint = nullptr) {
  try {
    f();
  } catch (const Error& e) {
    if (hint != nullptr) *hint = e.hint();
    return e.what();
  }
  return "";
}

TEST(Optimizer, AnUnknownGroupIsAnErrorWithTheNearest) {
  std::string hint;
  const std::string message = message_of(
      [] {
        TestStep(SGD{.groups = {{.name = "decoy", .lr = 1, .weight_decay = {}}}}, {{"w", {f32, {}}, "decay"}});
      },
      &hint);
  EXPECT_EQ(message, "sgd: no parameter has the group \"decoy\"");
  EXPECT_EQ(hint, "did you mean decay?");
}

TEST(Optimizer, DomainsAreChecked) {
  const double nan = std::nan(""), inf = HUGE_VAL;
  const auto expect = [](const std::string& want, auto options) {
    EXPECT_EQ(message_of([&] { Optimizer o(options); }), want);
  };
  expect("sgd: expected lr finite and >= 0, got -1", SGD{.lr = -1});
  expect("sgd: expected lr finite and >= 0, got nan", SGD{.lr = nan});
  expect("sgd: expected momentum finite and >= 0, got inf", SGD{.momentum = inf});
  expect("sgd: expected dampening finite and >= 0, got -0.5", SGD{.dampening = -0.5});
  expect("sgd: expected momentum > 0 and dampening 0 with nesterov", SGD{.nesterov = true});
  expect("sgd: expected weight_decay finite and >= 0, got -1", SGD{.weight_decay = -1});
  expect("adam: expected beta1 in [0, 1), got 1", Adam{.beta1 = 1});
  expect("adam: expected beta2 in [0, 1), got -0.1", Adam{.beta2 = -0.1});
  expect("adamw: expected beta2 in [0, 1), got nan", AdamW{.beta2 = nan});
  expect("adamw: expected eps finite and >= 0, got -1e-08", AdamW{.eps = -1e-8});
  expect("adamw: expected weight_decay of group g finite and >= 0, got -1", AdamW{.groups = {{"g", {}, -1}}});
  expect("adamw: expected one entry for the group \"g\", got two", AdamW{.groups = {{"g", {}, {}}, {"g", {}, {}}}});
  expect("adamw: expected a group with a name, got \"\"", AdamW{.groups = {{"", 1, {}}}});
  Schedule bad;
  bad.kind = Schedule::Kind::table;
  expect("table: expected one factor or more, got none", SGD{.schedule = bad});
}

}  // namespace
}  // namespace aicf::optim
