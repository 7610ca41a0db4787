// Odd but legal programs, and calls that must fail cleanly: loss and outputs that are no op's result, derived states,
// programs of unlike models over one store.
#include <gtest/gtest.h>

#include <type_traits>

#include "support/programs.h"

namespace aicf {
namespace {

using test::error_of;

Tensor pair(float a, float b) { return Tensor::of<float>({2}, {a, b}); }

void expect_contains(const std::string& text, const std::vector<std::string>& words) {
  for (const std::string& word : words) EXPECT_NE(text.find(word), std::string::npos) << text << " / " << word;
}

TEST(OddPrograms, UpdatesTakeInputsConstantsAndOneAnother) {
  Model m;
  const Value x = m.input("x", {f32, {2}});
  const Value a = m.state("a", {f32, {2}}, Init::value(1)), b = m.state("b", {f32, {2}}, Init::value(2));
  const Value c = m.state("c", {f32, {2}}), d = m.state("d", {f32, {2}});
  const Value k = m.constant(pair(7, 8));
  m.update(a, b);
  m.update(b, a);
  m.update(c, x);
  m.update(d, k);
  m.output("a", a);
  m.output("a again", a);
  m.output("view of a", reshape(a, {1, 2}));
  m.output("view of x", reshape(x, {2, 1}));
  m.output("k", k);
  for (bool alias : {true, false}) {
    Program p = compile(m, {.alias = alias});
    const StepResult r = p.step({{"x", pair(3, 4)}});
    EXPECT_EQ(r["a"], pair(1, 1)) << "the old value";
    EXPECT_EQ(r["a again"], pair(1, 1));
    EXPECT_EQ(r["view of a"], Tensor::of<float>({1, 2}, {1, 1}));
    EXPECT_EQ(r["view of x"], Tensor::of<float>({2, 1}, {3, 4}));
    EXPECT_EQ(r["k"], pair(7, 8));
    EXPECT_EQ(p.read("a"), pair(2, 2));
    EXPECT_EQ(p.read("b"), pair(1, 1));
    EXPECT_EQ(p.read("c"), pair(3, 4));
    EXPECT_EQ(p.read("d"), pair(7, 8));
  }
}

TEST(OddPrograms, TheLossMayBeAParameter) {
  Model m;
  const Value w = m.param("w", {f32, {}}, Init::value(1));
  Program p = compile(m, {.loss = w, .optimizer = optim::SGD{.lr = 0.25}, .fetch = {"w", "w.grad"}});
  const StepResult r = p.step({});
  EXPECT_EQ(r.scalar("loss"), 1);
  EXPECT_EQ(r.scalar("w"), 1);
  EXPECT_EQ(r.scalar("w.grad"), 1);
  EXPECT_EQ(p.read("w").item(), 0.75);
}

TEST(OddPrograms, TheModelMayNameItsLossAsAnOutput) {
  test::ScalarModel m(3);
  m.model.output("loss", m.loss);
  Program p = compile(m.model, {.loss = m.loss});
  EXPECT_EQ(p.outputs(), std::vector<std::string>{"loss"});
  EXPECT_EQ(p.step({{"x", Tensor::scalar(2.f)}}).scalar("loss"), 6);

  test::ScalarModel other;
  other.model.output("loss", other.x);
  expect_contains(error_of([&] { compile(other.model, {.loss = other.loss}); }), {"\"loss\"", "not the loss"});
}

TEST(OddPrograms, OutputsWithoutAValueOrANameAreRefused) {
  test::ScalarModel m;
  expect_contains(error_of([&] { compile(m.model, {.outputs = {{"o", Value()}}}); }), {"'o'", "empty Value"});
  expect_contains(error_of([&] { compile(m.model, {.outputs = {{"", m.loss}}}); }), {"empty name"});
}

// What `fetch` names is returned, or refused: never another value of the name.
TEST(OddPrograms, FetchIsNotFooledByAnOutputsName) {
  test::ScalarModel m;
  const auto message = [&](const std::string& name, Value output) {
    return error_of([&] { compile(m.model, {.loss = m.loss, .outputs = {{name, output}}, .fetch = {name}}); });
  };
  expect_contains(message("w", m.x), {"'w'", "output"});
  expect_contains(message("w.grad", m.w), {"'w.grad'", "output"});
  EXPECT_EQ(message("w", m.w), "");
  EXPECT_EQ(message("free", m.x), "");
}

TEST(OddPrograms, FreezeTakesBracketsAsTheyAre) {
  Model m;
  const Value a = m.param("a[12]", {f32, {}}, Init::value(1)), b = m.param("a1", {f32, {}}, Init::value(1));
  Program p = compile(m, {.loss = a * b, .optimizer = optim::SGD{}, .freeze = {"a[12]"}});
  EXPECT_EQ(p.untrained(), std::vector<std::string>{"a[12]"});
}

TEST(OddPrograms, EmptyTensorsTrain) {
  Model m;
  const Value x = m.input("x", {f32, {0, 3}});
  const Value w = m.param("w", {f32, {2, 3}}, Init::value(1)), none = m.param("none", {f32, {0}});
  const Value y = matmul(x, w, false, true);
  for (const auto& [name, optimizer] : test::all_optimizers()) {
    Program p = compile(m, {.loss = sum(y) + sum(square(none)) + sum(w),
                            .optimizer = optimizer,
                            .outputs = {{"y", y}},
                            .fetch = {"w.grad", "none.grad"}});
    const StepResult r = p.step({{"x", TensorView({f32, {0, 3}}, nullptr)}});
    EXPECT_EQ(r.scalar("loss"), 6) << name;
    EXPECT_EQ(r["y"], Tensor(TensorType{f32, {0, 2}})) << name;
    EXPECT_EQ(r["none.grad"], Tensor(TensorType{f32, {0}})) << name;
    EXPECT_EQ(r["w.grad"].to_doubles(), std::vector<double>(6, 1.0)) << name;
    EXPECT_EQ(error_of([&] { p.load(p.snapshot()); }), "") << name;
  }
}

TEST(OddPrograms, ProgramsAndResultsOutliveTheirModel) {
  Program p;
  StepResult r;
  {
    auto m = std::make_unique<test::ScalarModel>();
    Model moved = std::move(m->model);
    p = compile(moved, {.loss = m->loss, .optimizer = optim::SGD{.lr = 0.5}});
  }
  clear_compile_cache();
  r = p.step({{"x", Tensor::scalar(2.f)}});
  p = Program();
  EXPECT_EQ(r.scalar("loss"), 2);
}

TEST(OddPrograms, NamesOfTheLibrarysOwnStates) {
  for (const char* name : {"inputs.error", "inputs.error_step"}) {
    Model m;
    const Value table = m.param("t", {f32, {3}}), index = m.input("i", {i32, {1}});
    m.state(name, {i64, {}});
    m.output("row", gather(table, index));
    expect_contains(error_of([&] { compile(m); }), {name});
    Model input;
    input.output("o", input.input(name, {i32, {1}}));
    Program p = compile(input);
    EXPECT_EQ(p.step({{name, Tensor::of<int32_t>({1}, {5})}})["o"].item(), 5) << name;
  }
  Model m;
  const Value applied = m.state("steps.applied", {f32, {}}), index = m.input("i", {i32, {1}});
  m.update(applied, applied + 1);
  m.output("row", gather(m.param("t", {f32, {3}}), index));
  Program p = compile(m);
  EXPECT_NE(error_of([&] {
              p.step({{"i", Tensor::of<int32_t>({1}, {5})}});
              p.wait();
            }),
            "");
  EXPECT_EQ(p.read("steps.applied").item(), 0);
}

// --- feeds and writes ------------------------------------------------------------------------------------------

TEST(OddPrograms, NullAndRepeatedTensorsAreRefused) {
  test::ScalarModel m;
  Program p = compile(m.model, {.loss = m.loss, .optimizer = optim::SGD{}});
  const NamedTensors before = p.snapshot();
  const Tensor one = Tensor::scalar(1.f);
  const TensorView null({f32, {}}, nullptr);
  expect_contains(error_of([&] { p.write("w", null); }), {"'w'", "null"});
  expect_contains(error_of([&] { p.step({{"x", one}, {"w", null}}, StepMode::train_reset); }), {"'w'", "null"});
  expect_contains(error_of([&] {
                    p.step({{"w", one}, {"x", one}, {"w", one}}, StepMode::train_reset);
                  }),
                  {"'w'", "twice"});
  EXPECT_EQ(p.snapshot(), before);
}

TEST(OddPrograms, AnInputGoesBeforeAnotherProgramsParamOfItsName) {
  test::ScalarModel m;
  Program p = compile(m.model, {.loss = m.loss, .optimizer = optim::SGD{}});
  Model other;
  other.output("o", other.input("w", {f32, {2}}));
  Program q = compile(other, {.share = p});
  EXPECT_EQ(q.step({{"w", pair(4, 5)}})["o"], pair(4, 5));
  EXPECT_EQ(q.type("w"), (TensorType{f32, {2}}));
  EXPECT_EQ(q.read("w"), pair(4, 5));
  EXPECT_EQ(p.read("w").item(), 1) << "untouched";
}

// --- derived states --------------------------------------------------------------------------------------------

TEST(OddPrograms, ChainsOfDerivedStatesFollowTheirSource) {
  Model m;
  const Value w = m.param("w", {f32, {}}, Init::value(3));
  const Value d = m.derived("d", w * 2), e = m.derived("e", d + w), same = m.derived("same", e);
  Program p = compile(m, {.loss = same + 0.0, .optimizer = optim::SGD{.lr = 0.5}, .fetch = {"w.grad", "d.grad"}});
  const auto expect = [&](double value) {
    EXPECT_EQ(p.read("w").item(), value);
    EXPECT_EQ(p.read("d").item(), 2 * value);
    EXPECT_EQ(p.read("e").item(), 3 * value);
    EXPECT_EQ(p.read("same").item(), 3 * value);
  };
  expect(3);
  const StepResult r = p.step({});
  EXPECT_EQ(r.scalar("w.grad"), 3);
  EXPECT_EQ(r.scalar("d.grad"), 1);
  expect(1.5);
  p.write("w", 5.0);
  expect(5);
  p.reset();
  expect(3);
}

TEST(OddPrograms, ADerivedStateTakesNoUpdate) {
  Model m;
  const Value w = m.state("w", {f32, {}}), d = m.derived("d", w * 2);
  expect_contains(error_of([&] { m.update(d, w); }), {"%d", "derived"});
}

TEST(OddPrograms, AModelMayDeriveMoreThanItsStoreHolds) {
  Model first;
  first.derived("d", first.param("w", {f32, {}}, Init::value(3)) * 2);
  first.output("w", first.value("w"));
  Program p = compile(first);
  Model second;
  const Value w = second.param("w", {f32, {}}, Init::value(3));
  second.derived("d", w * 2);
  second.derived("e", w * 10);
  second.output("w", w);
  Program q = compile(second, {.share = p});
  EXPECT_EQ(q.read("e").item(), 30);
  p.write("w", 4.0);
  EXPECT_EQ(q.read("e").item(), 40);
  EXPECT_EQ(q.read("d").item(), 8);
}

// A program whose model knows nothing of a derived state still keeps it true, whichever was compiled first.
TEST(OddPrograms, DerivedStatesFollowTheStepsOfOtherModels) {
  for (bool trains_first : {false, true}) {
    Model deriving;
    deriving.output("d", deriving.derived("d", deriving.param("w", {f32, {}}, Init::value(3)) * 2));
    test::ScalarModel plain(3);
    const CompileOptions train{.loss = plain.loss, .optimizer = optim::SGD{.lr = 1}};
    Program p, t;
    if (trains_first) {
      t = compile(plain.model, train);
      t.step({{"x", Tensor::scalar(0.f)}});
      p = compile(deriving, {.share = t});
    } else {
      p = compile(deriving);
      CompileOptions shared = train;
      shared.share = p;
      t = compile(plain.model, shared);
    }
    t.step({{"x", Tensor::scalar(1.f)}});
    EXPECT_EQ(p.read("w").item(), 2);
    EXPECT_EQ(p.read("d").item(), 4);
  }
}

TEST(OddPrograms, AStateIsDerivedInAllModelsOfAStoreOrInNone) {
  Model deriving;
  deriving.output("d", deriving.derived("d", deriving.param("w", {f32, {}}, Init::value(3)) * 2));
  Model plain;
  const Value d = plain.state("d", {f32, {}});
  plain.update(d, d + 1);
  Program p = compile(deriving), q = compile(plain);
  expect_contains(error_of([&] { compile(plain, {.share = p}); }), {"%d", "derived"});
  expect_contains(error_of([&] { compile(deriving, {.share = q}); }), {"%d", "not derived"});
}

// What would put an index of a derived state out of range is refused, and later writes work.
TEST(OddPrograms, AnIndexOfADerivedStateIsChecked) {
  Model m;
  const Value table = m.param("table", {f32, {3}}, Init::value(3)), row = m.state("row", {i32, {1}});
  m.output("d", m.derived("d", gather(table, row)));
  Program p = compile(m);
  const auto at = [](int32_t i) { return Tensor::of<int32_t>({1}, {i}); };
  NamedTensors before = p.snapshot();
  expect_contains(error_of([&] { p.write("row", at(9)); }), {"gather", "'row'", "[0,3)"});
  expect_contains(error_of([&] { p.step({{"row", at(-1)}}, StepMode::train_reset); }), {"'row'"});
  NamedTensors bad = before;
  bad[0].second.as<float>()[0] = 100;
  bad[1].second = at(3);
  expect_contains(error_of([&] { p.load(bad); }), {"'row'"});
  EXPECT_EQ(p.snapshot(), before);
  EXPECT_EQ(p.read("d").item(), 3);
  p.write("table", Tensor::of<float>({3}, {5, 6, 7}));
  p.write("row", at(1));
  EXPECT_EQ(p.read("d").item(), 6);
}

// --- several models over one store -----------------------------------------------------------------------------

TEST(OddPrograms, AFailedCompileLeavesTheStoreAsItWas) {
  test::ScalarModel m;
  Program p = compile(m.model, {.loss = m.loss, .optimizer = optim::SGD{}});
  const NamedTensors before = p.snapshot();
  Model bad;  // `v` and its group could be added; `w` has another type
  const Value v = bad.param("v", {f32, {}}, Init::value(1), "late");
  bad.param("w", {f64, {}});
  bad.derived("d", v * 2);
  EXPECT_NE(error_of([&] { compile(bad, {.loss = v, .optimizer = optim::SGD{}, .share = p}); }), "");
  EXPECT_EQ(p.snapshot(), before);

  Model good;
  const Value v2 = good.param("v", {f32, {2}}, Init::value(1), "late"), u = good.param("u", {f32, {2}}, {}, "late");
  const Value d = good.derived("d", v2 * 2);
  Program q = compile(good, {.loss = sum(v2 * u + d), .optimizer = optim::SGD{}, .share = p});
  EXPECT_EQ(q.read("d"), pair(2, 2));
}

TEST(OddPrograms, GroupsAreSetsOfParameters) {
  Model a, b;
  const Value u = a.param("u", {f32, {}}, Init::value(2)), v = a.param("v", {f32, {}}, Init::value(3));
  const Value v2 = b.param("v", {f32, {}}), u2 = b.param("u", {f32, {}});
  Program p = compile(a, {.loss = u * v, .optimizer = optim::SGD{.lr = 1}});
  Program q = compile(b, {.loss = u2 * v2, .optimizer = optim::SGD{.lr = 1}, .share = p});
  q.step({});
  EXPECT_EQ(p.read("u").item(), -1);
  EXPECT_EQ(p.read("v").item(), 1);

  Model c;
  const Value u3 = c.param("u", {f32, {}}, {}, "slow");
  expect_contains(error_of([&] { compile(c, {.loss = u3, .optimizer = optim::SGD{.lr = 1}, .share = p}); }),
                  {"%u", "default group", "'slow'"});
}

// One counter serves one rule, and what `share` would silently ignore is refused.
TEST(OddPrograms, ProgramsOfOneStoreTrainByOneOptimizer) {
  const std::vector<test::NamedOptimizer> all = test::all_optimizers();
  for (const auto& [name, optimizer] : all) {
    test::ScalarModel m;
    Program p = compile(m.model, {.loss = m.loss, .optimizer = optimizer});
    const NamedTensors before = p.snapshot();
    for (const auto& [other_name, other] : all) {
      // A schedule more or less leaves the rule as it is.
      if (name != other_name && name.starts_with("adamw") && other_name.starts_with("adamw")) continue;
      const std::string message =
          error_of([&, &rule = other] { compile(m.model, {.loss = m.loss, .optimizer = rule, .share = p}); });
      EXPECT_EQ(message.empty(), name == other_name) << name << " then " << other_name << ": " << message;
      EXPECT_EQ(p.snapshot(), before) << name << " then " << other_name;
    }
  }
  test::ScalarModel m;
  Program p = compile(m.model, {.loss = m.loss, .optimizer = optim::SGD{.lr = 0.5}});
  expect_contains(
      error_of([&] { compile(m.model, {.loss = m.loss, .optimizer = optim::SGD{.lr = 0.25}, .share = p}); }),
      {"optimizer.lr"});
}

// --- host types ------------------------------------------------------------------------------------------------

TEST(OddPrograms, TypesAboveTwoToThe62BytesAreRefused) {
  Model m;
  m.output("w", m.param("w", {f64, {int64_t{1} << 61}}));
  expect_contains(error_of([&] { compile(m); }), {"2^62", "f64[2305843009213693952]"});
}

TEST(OddPrograms, TensorsOfEveryElementType) {
  EXPECT_EQ(Tensor::of<uint8_t>({2}, {3, 255}).to_doubles(), (std::vector<double>{3, 255}));
  EXPECT_EQ(*Tensor::scalar(uint8_t{7}).as<uint8_t>(), 7);
  EXPECT_TRUE((std::is_same_v<decltype(Value().name()), std::string>)) << "a reference would dangle after the next op";
}

}  // namespace
}  // namespace aicf
