// Cases H1, H2 and H3 on whole programs, and G1, G2 with the planner: aliasing and reuse on and off give the same bits.
#include <gtest/gtest.h>

#include <map>

#include "lower/evaluate.h"
#include "passes/pass.h"
#include "runtime/program.h"
#include "support/programs.h"

namespace aicf {
namespace {

struct PlanChoice {
  bool alias, reuse;
};
constexpr PlanChoice kChoices[] = {{true, true}, {false, true}, {true, false}, {false, false}};

// H1: 30 residual blocks of width 16, batch 4: every gradient bitwise equal with reuse and aliasing off and on.
TEST(CaseH1, DeepResidualGradientsDoNotDependOnReuse) {
  const auto gradients = [](PlanChoice choice) {
    Model m(3);
    const Value x = m.input("x", {f32, {4, 16}});
    std::vector<std::string> fetch;
    Value h = x;
    for (int i = 0; i < 30; ++i) {
      const std::string name = "block" + std::to_string(i);
      h = h + m.add(nn::Linear(16), tanh(h), name);
      fetch.push_back(name + ".weight.grad");
      fetch.push_back(name + ".bias.grad");
    }
    Program p = compile(m, {.loss = mean(h * h),
                            .optimizer = optim::SGD{.lr = 0.01},
                            .fetch = fetch,
                            .alias = choice.alias,
                            .reuse = choice.reuse});
    std::vector<float> values(64);
    for (size_t i = 0; i < 64; ++i) values[i] = static_cast<float>(i % 13) / 6 - 1;
    std::vector<NamedTensors> trace;
    for (int step = 0; step < 3; ++step) {
      const StepResult r = p.step({{"x", Tensor::of<float>({4, 16}, values)}});
      NamedTensors grads;
      for (const std::string& name : r.names()) grads.emplace_back(name, r[name]);
      trace.push_back(std::move(grads));
    }
    return trace;
  };
  const auto want = gradients({false, false});
  for (PlanChoice choice : kChoices) EXPECT_EQ(gradients(choice), want) << choice.alias << choice.reuse;
}

// H1, the seed's own hole: y = 2w written after the update reads the old w.
TEST(CaseH1, AReaderPlacedAfterTheUpdateSeesTheOldValue) {
  for (PlanChoice choice : kChoices) {
    test::ScalarModel m(1.0);
    const Value y = m.w * 2.0;
    Program p = compile(m.model, {.loss = m.loss,
                                  .optimizer = optim::SGD{.lr = 0.1},
                                  .outputs = {{"y", y}},
                                  .fetch = {"w", "w.next"},
                                  .alias = choice.alias,
                                  .reuse = choice.reuse});
    const StepResult r = p.step({{"x", Tensor::scalar(1.f)}});
    EXPECT_EQ(r.scalar("y"), 2.0);
    EXPECT_EQ(r.scalar("w"), 1.0) << "a fetched external is its value before the step";
    EXPECT_FLOAT_EQ(r.scalar("w.next"), 0.9f);
    EXPECT_FLOAT_EQ(p.read("w").item(), 0.9f);
  }
}

// H1, class: updates are one parallel assignment of old values: a swap works, and so does a chain.
TEST(CaseH1, UpdatesAreAParallelAssignment) {
  for (PlanChoice choice : kChoices) {
    Model m;
    const Value a = m.state("a", {f32, {}}, Init::value(1)), b = m.state("b", {f32, {}}, Init::value(2)),
                c = m.state("c", {f32, {}}, Init::value(3));
    m.update(a, b);
    m.update(b, a);
    m.update(c, a + b);
    Program p = compile(m, {.alias = choice.alias, .reuse = choice.reuse});
    p.step({});
    EXPECT_EQ(p.read("a").item(), 2);
    EXPECT_EQ(p.read("b").item(), 1);
    EXPECT_EQ(p.read("c").item(), 3);
    p.step({});
    EXPECT_EQ(p.read("a").item(), 1);
    EXPECT_EQ(p.read("c").item(), 3);
  }
}

// H2: a fetched gradient equals that of the program without the planner's reuse, at every replay.
TEST(CaseH2, FetchedValuesAreRoots) {
  const auto fetched = [](PlanChoice choice) {
    test::SmallMlp m;
    Program p = compile(m.model, {.loss = m.loss,
                                  .optimizer = optim::SGD{.lr = 0.1},
                                  .fetch = {"fc1.weight.grad", "fc2.weight.grad"},
                                  .alias = choice.alias,
                                  .reuse = choice.reuse});
    std::vector<Tensor> grads;
    for (int step = 0; step < 3; ++step) {
      const NamedTensors batch = test::small_mlp_batch(step);
      const StepResult r = p.step(test::feeds_of(batch));
      grads.push_back(r["fc1.weight.grad"]);
      grads.push_back(r["fc2.weight.grad"]);
    }
    return grads;
  };
  const auto want = fetched({false, false});
  EXPECT_NE(want[0], want[2]);
  for (PlanChoice choice : kChoices) EXPECT_EQ(fetched(choice), want);
}

TEST(CaseH2, FetchingWhatWasNotDeclaredIsAnError) {
  test::SmallMlp m;
  Program p = compile(m.model, {.loss = m.loss, .optimizer = optim::SGD{.lr = 0.1}});
  const NamedTensors batch = test::small_mlp_batch(0);
  const StepResult r = p.step(test::feeds_of(batch));
  EXPECT_NE(test::error_of([&] { r["fc1.weight.grad"]; }), "");
  const std::string message = test::error_of([&] { p.read("fc1.weight.grad"); });
  EXPECT_NE(message.find("fused or removed"), std::string::npos) << message;
}

// H3: an op with two results of one size, the second unread; the next op allocates the same size.
TEST(CaseH3, AnUnreadResultLivesThroughItsOp) {
  const auto run = [](PlanChoice choice) {
    Model m;
    const Value x = m.input("x", {f32, {2, 64}});
    const std::vector<Value> halves = split(x, 2, 0);
    m.output("y", exp(halves[0] * 2.0) + halves[0]);
    Program p = compile(m, {.alias = choice.alias, .reuse = choice.reuse});
    std::vector<float> values(128);
    for (size_t i = 0; i < 128; ++i) values[i] = static_cast<float>(i) / 64;
    return p.step({{"x", Tensor::of<float>({2, 64}, values)}})["y"];
  };
  const Tensor want = run({false, false});
  for (PlanChoice choice : kChoices) EXPECT_EQ(run(choice), want);
}

// H4: batch norm in training, composed by hand, whose running mean no output reads. The update is an effect: it stays,
// and after every pass each state has exactly one final writer.
TEST(CaseH4, RunningStatisticsOutliveDeadCodeRemoval) {
  Model m;
  const Value x = m.input("x", {f32, {4, 2}});
  const Value running = m.state("bn.running_mean", {f32, {2}}, Init::zeros());
  const Value unread = m.state("bn.unread", {f32, {2}}, Init::zeros());
  const Value average = mean(x, {0});
  m.update(running, running * 0.9 + average * 0.1);
  m.update(unread, average * 1.0);
  m.output("y", x - average);
  const Program p = compile(m);
  const auto writers = [](const ir::Graph& graph) {
    std::map<std::string, int> count;
    for (const ir::Update& u : graph.updates()) ++count[graph.value(u.target).name];
    return count;
  };
  const std::map<std::string, int> want = {{"bn.running_mean", 1}, {"bn.unread", 1}};
  ir::Graph graph = p.impl()->compiled().step;
  passes::run_pipeline(graph, {}, lower::evaluate_on_cpu, [&](const std::string& pass, const ir::Graph& after, bool) {
    EXPECT_EQ(writers(after), want) << pass;
  });
  Program run = p;
  run.step({{"x", Tensor::of<float>({4, 2}, {8, 9, 9, 10, 11, 10, 12, 11})}});
  EXPECT_FLOAT_EQ(static_cast<float>(run.read("bn.running_mean").at(0)), 1.f);
  EXPECT_FLOAT_EQ(static_cast<float>(run.read("bn.running_mean").at(1)), 1.f);
}

// H4, class: a simplification that exposes the old value of a state to a later write in place.
TEST(ClassH, SimplifiedReadersOfAnOldValueSeeTheOldValue) {
  for (PlanChoice choice : kChoices) {
    for (const char* off : {"", "simplify", "canonicalize", "cse", "layout"}) {
      Model m;
      const Value w = m.state("w", {i32, {2, 3}}, Init::value(7));
      const Value twin = m.state("twin", {i32, {2, 3}}, Init::value(1));
      m.output("same", w + 0.0);
      m.output("view", reshape(reshape(w, {6}), {3, 2}));
      m.output("back", transpose(transpose(w * 1.0, {1, 0}), {1, 0}));
      m.update(w, w + 1.0);
      m.update(twin, w * 1.0);
      CompileOptions options = {.alias = choice.alias, .reuse = choice.reuse};
      if (*off != 0) options.disable_passes.push_back(off);
      Program p = compile(m, options);
      for (int step = 0; step < 3; ++step) {
        const StepResult r = p.step({});
        for (const char* name : {"same", "view", "back"}) {
          for (int64_t i = 0; i < 6; ++i) EXPECT_EQ(r[name].at(i), 7 + step) << name << " without " << off;
        }
        EXPECT_EQ(p.read("w").at(0), 8 + step);
        EXPECT_EQ(p.read("twin").at(5), 7 + step);
      }
    }
  }
}

// H4's rule: an update is an effect, whoever reads its target.
TEST(ClassH, UnreadStateUpdatesSurviveDeadCodeRemoval) {
  Model m;
  const Value x = m.input("x", {f32, {}});
  const Value seen = m.state("seen", {f32, {}});
  m.update(seen, seen + x);
  m.output("y", x * 2.0);
  Program p = compile(m);
  p.step({{"x", Tensor::scalar(3.f)}});
  EXPECT_EQ(p.read("seen").item(), 3);
}

}  // namespace
}  // namespace aicf
