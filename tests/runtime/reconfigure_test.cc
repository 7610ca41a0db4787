// CompileOptions::reconfigure (case A2): another optimizer takes the training of a store over. Programs of the training
// before it say that they are stale; what both have stays; nothing reads memory that was given back.
#include <gtest/gtest.h>

#include "aicf/checkpoint.h"
#include "aicf/data.h"
#include "support/programs.h"

namespace aicf {
namespace {

using test::error_of;
using test::SmallMlp;

const Tensor* find(const NamedTensors& tensors, const std::string& name) {
  for (const auto& [n, tensor] : tensors) {
    if (n == name) return &tensor;
  }
  return nullptr;
}

void steps(Program& p, int from, int to) {
  for (int i = from; i < to; ++i) p.step(test::feeds_of(test::small_mlp_batch(i)));
}

// Every way to run it, and to save and restore it.
void expect_stale(Program& p, const std::vector<std::string>& words) {
  const NamedTensors batch = test::small_mlp_batch(0);
  const Tensor before = p.read("fc1.weight");
  const std::vector<std::pair<const char*, std::function<void()>>> calls = {
      {"step", [&] { p.step(test::feeds_of(batch)); }},
      {"repeat", [&] { p.repeat(); }},
      {"steps", [&] { p.steps(3); }},
      {"attach", [&] { p.attach(Dataset(batch), {.batch = 4}); }},
      {"take_checkpoint", [&] { take_checkpoint(p); }},
      {"restore_checkpoint", [&] { restore_checkpoint(p, Checkpoint()); }}};
  for (const auto& [name, call] : calls) {
    const std::string message = error_of(call);
    EXPECT_NE(message.find(std::string(name) + ": this program is stale"), std::string::npos) << message;
    for (const std::string& word : words) EXPECT_NE(message.find(word), std::string::npos) << message << " / " << word;
  }
  EXPECT_EQ(p.read("fc1.weight"), before) << "which the store still holds";
}

TEST(Reconfigure, TheProgramOfTheOldOptimizerIsStaleInEveryMode) {
  for (Mode mode : {Mode::graph, Mode::replay, Mode::eager}) {
    SmallMlp m;
    Program adam = compile(m.model, {.loss = m.loss, .optimizer = optim::Adam{.lr = 0.1}, .mode = mode});
    Program same = compile(m.model, {.loss = m.loss, .optimizer = optim::Adam{.lr = 0.1}, .share = adam});
    Program eval = compile(m.model, {.outputs = {{"logits", m.logits}}, .mode = mode, .share = adam});
    steps(adam, 0, 3);
    const Tensor w = adam.read("fc1.weight");
    Program sgd =
        compile(m.model,
                {.loss = m.loss, .optimizer = optim::SGD{.lr = 0.5}, .mode = mode, .share = adam, .reconfigure = true});
    EXPECT_EQ(sgd.read("fc1.weight"), w) << "compiling changes no param";
    for (Program* stale : {&adam, &same}) {
      expect_stale(*stale, {"default group", "adam with m, v of 4 parameters", "now sgd of 4 parameters"});
    }
    EXPECT_NE(error_of([&] { adam.read("optimizer.m/fc1.weight"); }).find("stale"), std::string::npos);
    EXPECT_NE(error_of([&] { adam.snapshot(); }).find("stale"), std::string::npos);
    EXPECT_TRUE(adam.snapshot({.states = false}) == sgd.snapshot({.states = false}));
    EXPECT_NE(error_of([&] { sgd.read("optimizer.m/fc1.weight"); }), "") << "SGD has no moments";
    EXPECT_EQ(find(sgd.snapshot(), "optimizer.v/fc1.weight"), nullptr);

    const NamedTensors batch = test::small_mlp_batch(0);
    const std::vector<Feed> x = {{"x", batch[0].second}};
    const Tensor before = eval.step(x)["logits"];
    steps(sgd, 3, 5);
    EXPECT_NE(eval.step(x)["logits"], before) << "an evaluation goes on, and sees what the new program does";
    adam = same = Program();
    steps(sgd, 5, 6);
    EXPECT_EQ(error_of([&] { sgd.load(sgd.snapshot()); }), "");
  }
}

// What trains on is what a new store with the same params would do.
TEST(Reconfigure, TheNewOptimizerStartsAsOneOfItsOwn) {
  for (const auto& [name, optimizer] : test::all_optimizers()) {
    SmallMlp m, other;
    Program sgd = compile(m.model, {.loss = m.loss, .optimizer = optim::SGD{.lr = 0.3}});
    steps(sgd, 0, 4);
    Program p = compile(m.model, {.loss = m.loss, .optimizer = optimizer, .share = sgd, .reconfigure = true});
    Program want = compile(other.model, {.loss = other.loss, .optimizer = optimizer});
    want.load(p.snapshot({.states = false}), {.states = false});
    const std::vector<std::string> states = want.states();
    const bool has_tensors =
        std::any_of(states.begin(), states.end(), [](const std::string& s) { return s.ends_with("/fc1.weight"); });
    if (!has_tensors) want.write("optimizer.step", 4);
    steps(p, 4, 9);
    steps(want, 4, 9);
    for (const auto& [external, value] : want.snapshot()) {
      if (external == "steps.applied") continue;
      EXPECT_TRUE(p.read(external) == value) << name << ": " << external;
    }
    EXPECT_EQ(p.states().size(), states.size());
    EXPECT_EQ(p.read("steps.applied").item(), 9) << "of the store, whatever the optimizer";
  }
}

TEST(Reconfigure, WhatBothHaveKeepsItsValue) {
  SmallMlp m;
  Program adam = compile(m.model, {.loss = m.loss, .optimizer = optim::Adam{.lr = 0.1}});
  steps(adam, 0, 3);
  adam.write("optimizer.lr", 0.07);
  const NamedTensors before = adam.snapshot();
  Program adamw = compile(m.model, {.loss = m.loss,
                                    .optimizer = optim::AdamW{.lr = 0.1, .beta1 = 0.5},
                                    .clip_norm = 1.0,
                                    .share = adam,
                                    .reconfigure = true});
  const NamedTensors after = adamw.snapshot();
  for (const auto& [name, tensor] : before) {
    const Tensor* now = find(after, name);
    ASSERT_NE(now, nullptr) << name;
    if (name == "optimizer.beta1" || name == "optimizer.weight_decay") continue;
    EXPECT_EQ(*now, tensor) << name << ": moments and counter go together";
  }
  EXPECT_EQ(adamw.read("optimizer.beta1").item(), 0.5) << "declared to start otherwise";
  EXPECT_FLOAT_EQ(adamw.read("optimizer.lr").item(), 0.07f) << "declared as before";
  EXPECT_EQ(error_of([&] { adamw.reset(); }), "");
  EXPECT_EQ(adamw.read("optimizer.beta1").item(), 0.5);
}

// Structure is more than the optimizer's kind: clipping, precision, averages, selection, schedule.
TEST(Reconfigure, EveryPartOfTheStructureCanChangeAndBack) {
  const optim::Optimizer adam = optim::Adam{.lr = 0.1};
  const std::vector<std::pair<const char*, CompileOptions>> changes = {
      {"clipping", {.optimizer = adam, .clip_norm = 0.5}},
      {"another limit", {.optimizer = adam, .clip_norm = 0.25}},
      {"no clipping", {.optimizer = adam}},
      {"precision", {.optimizer = adam, .precision = "bf16"}},
      {"f16", {.optimizer = adam, .precision = "f16"}},
      {"averages", {.optimizer = adam, .ema_decay = 0.9}},
      {"selection", {.optimizer = adam, .freeze = {"fc1.*"}}},
      {"all again", {.optimizer = adam}},
      {"a table", {.optimizer = optim::Adam{.lr = 0.1, .schedule = optim::Schedule::table({1, 0.5, 0.25})}}},
      {"another", {.optimizer = optim::Adam{.lr = 0.1, .schedule = optim::Schedule::table({1, 0.5})}}},
      {"momentum", {.optimizer = optim::SGD{.lr = 0.1, .momentum = 0.9}}},
      {"micro-batches", {.optimizer = adam}}};
  SmallMlp m;
  Program eval, p = compile(m.model, {.loss = m.loss, .optimizer = adam});
  eval = compile(m.model, {.outputs = {{"logits", m.logits}}, .share = p});
  std::vector<Program> before = {p};
  for (const auto& [name, change] : changes) {
    SCOPED_TRACE(name);
    CompileOptions options = change;
    options.loss = m.loss;
    options.share = p;
    options.reconfigure = true;
    p = compile(m.model, options);
    for (Program& stale : before) expect_stale(stale, {"stale"});
    steps(p, 0, 3);
    eval.step(test::feeds_of(test::small_mlp_batch(0)));
    EXPECT_EQ(eval.read("fc1.weight"), p.read("fc1.weight"));
    EXPECT_EQ(error_of([&] { restore_checkpoint(p, take_checkpoint(p)); }), "");
    before.push_back(p);
  }
}

// One counter is right for all tensors of a group or for none.
TEST(Reconfigure, AGroupWithANewTensorStartsAnew) {
  SmallMlp m;
  const auto with = [&](const CompileOptions& base, const Program& share) {
    CompileOptions options = base;
    options.loss = m.loss;
    options.optimizer = optim::Adam{.lr = 0.1};
    options.share = share;
    options.reconfigure = share.valid();
    return compile(m.model, options);
  };
  Program frozen = with({.ema_decay = 0.5, .freeze = {"fc1.*"}}, {});
  steps(frozen, 0, 3);
  Program all = with({.ema_decay = 0.5}, frozen);
  EXPECT_EQ(all.read("optimizer.step").item(), 0);
  EXPECT_EQ(all.read("optimizer.ema_steps").item(), 0);
  EXPECT_EQ(all.read("optimizer.m/fc2.weight"), Tensor(all.type("optimizer.m/fc2.weight")));
  steps(all, 3, 6);
  Program fewer = with({.ema_decay = 0.5, .freeze = {"fc2.*"}}, all);
  EXPECT_EQ(fewer.read("optimizer.step").item(), 3);
  EXPECT_EQ(fewer.read("optimizer.ema_steps").item(), 3);
  Program averaged = with({.ema_decay = 0.5, .freeze = {"fc2.*"}}, fewer);
  EXPECT_EQ(averaged.read("optimizer.step").item(), 3) << "the same again";
  Program none = with({.freeze = {"fc2.*"}}, averaged);
  EXPECT_EQ(none.read("optimizer.step").item(), 3);
  Program anew = with({.ema_decay = 0.5, .freeze = {"fc2.*"}}, none);
  EXPECT_EQ(anew.read("optimizer.step").item(), 3);
  EXPECT_EQ(anew.read("optimizer.ema_steps").item(), 0);
}

TEST(Reconfigure, AnEvaluationOfWhatIsGoneIsStale) {
  for (const char* precision : {"f32", "bf16"}) {
    SCOPED_TRACE(precision);
    SmallMlp m;
    const optim::Optimizer adam = optim::Adam{.lr = 0.1};
    Program p = compile(m.model, {.loss = m.loss, .optimizer = adam, .precision = precision, .ema_decay = 0.5});
    steps(p, 0, 2);
    CompileOptions evaluation = {.outputs = {{"logits", m.logits}}, .precision = precision, .share = p};
    Program plain = compile(m.model, evaluation);
    evaluation.use_ema = true;
    Program averaged = compile(m.model, evaluation);
    const NamedTensors batch = test::small_mlp_batch(0);
    const std::vector<Feed> x = {{"x", batch[0].second}};
    averaged.step(x);
    Program other =
        compile(m.model, {.loss = m.loss, .optimizer = adam, .precision = precision, .share = p, .reconfigure = true});
    steps(other, 2, 4);
    EXPECT_NE(error_of([&] { averaged.step(x); }).find("stale"), std::string::npos);
    EXPECT_EQ(error_of([&] { plain.step(x); }), "");
    // Averages again, of their own: the evaluation of the old ones stays stale, a new one is right.
    Program again = compile(m.model, {.loss = m.loss,
                                      .optimizer = adam,
                                      .precision = precision,
                                      .ema_decay = 0.5,
                                      .share = other,
                                      .reconfigure = true});
    evaluation.share = again;
    Program fresh = compile(m.model, evaluation);
    EXPECT_EQ(fresh.step(x)["logits"], plain.step(x)["logits"]) << "no average yet: the params";
    steps(again, 4, 5);
    EXPECT_EQ(fresh.step(x)["logits"], plain.step(x)["logits"]) << "the first average is the param";
    steps(again, 5, 6);
    EXPECT_NE(fresh.step(x)["logits"], plain.step(x)["logits"]);
    EXPECT_NE(error_of([&] { averaged.step(x); }).find("stale"), std::string::npos);
  }
}

TEST(Reconfigure, WhatFailsLeavesTheStoreAndItsProgramsAsTheyWere) {
  SmallMlp m;
  Program adam = compile(m.model, {.loss = m.loss, .optimizer = optim::Adam{.lr = 0.1}});
  steps(adam, 0, 2);
  const NamedTensors before = adam.snapshot();
  Model other(0);
  const Value x = other.input("x", {f32, {4, 3}});
  const Value w = other.param("fc1.weight", {f32, {3, 2}}), n = other.param("new", {f32, {3, 2}});
  const auto message = [&](Model& model, CompileOptions options) {
    options.share = adam;
    options.reconfigure = true;
    return error_of([&] { compile(model, options); });
  };
  EXPECT_NE(
      message(other, {.loss = sum(matmul(x, n)) + sum(matmul(x, w)), .optimizer = optim::SGD{}}).find("fc1.weight"),
      std::string::npos);
  EXPECT_NE(message(m.model, {.outputs = {{"logits", m.logits}}}).find("reconfigure"), std::string::npos);
  EXPECT_NE(error_of([&] {
              compile(m.model, {.loss = m.loss, .optimizer = optim::SGD{}, .reconfigure = true});
            }).find("share"),
            std::string::npos);
  EXPECT_EQ(adam.snapshot(), before);
  steps(adam, 2, 3);
  EXPECT_NE(adam.snapshot(), before);
  // Without the option another optimizer is refused, as ever.
  EXPECT_NE(error_of([&] {
              compile(m.model, {.loss = m.loss, .optimizer = optim::SGD{.lr = 0.1}, .share = adam});
            }).find("adam"),
            std::string::npos);
}

TEST(Reconfigure, StatesOfTheModelStay) {
  Model m(0);
  const Value x = m.input("x", {f32, {}}), w = m.param("w", {f32, {}}, Init::value(1));
  const Value seen = m.state("optimizer.seen", {f32, {}});  // whatever its name
  m.update(seen, seen + x);
  const Value loss = w * x;
  Program adam = compile(m, {.loss = loss, .optimizer = optim::Adam{}});
  Program counts = compile(m, {.share = adam});
  const Tensor one = Tensor::scalar(1.f);
  adam.step({{"x", one}});
  Program sgd = compile(m, {.loss = loss, .optimizer = optim::SGD{}, .share = adam, .reconfigure = true});
  sgd.step({{"x", one}});
  counts.step({{"x", one}});
  EXPECT_EQ(sgd.read("optimizer.seen").item(), 3);
}

}  // namespace
}  // namespace aicf
