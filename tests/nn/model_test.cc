// Model and Sequential: names, identity of layers, sharing, attributes, errors.
#include "aicf/model.h"

#include <gtest/gtest.h>

#include <optional>

#include "aicf/error.h"
#include "aicf/ops.h"
#include "aicf/program.h"
#include "ir/graph.h"

namespace aicf {
namespace {

struct Failure {
  std::string message, hint;
};

template <class F>
Failure failure(F&& f) {
  try {
    f();
  } catch (const Error& e) {
    return {e.what(), e.hint()};
  }
  return {"no error", ""};
}

std::vector<std::string> params(const Model& m) {
  std::vector<std::string> names;
  for (const ir::ValueInfo& v : m.graph().values()) {
    if (v.role == ir::Role::param) names.push_back(v.name);
  }
  return names;
}

using Names = std::vector<std::string>;
const TensorType kX{f32, {2, 4}};

TEST(Model, ALayerNamesItsParametersAndItsOutput) {
  Model m;
  const Value y = m.add(nn::Linear(3), m.input("x", kX), "fc1");
  EXPECT_EQ(params(m), (Names{"fc1.weight", "fc1.bias"}));
  EXPECT_EQ(y.name(), "fc1");
  EXPECT_EQ(m.value("fc1"), y);
  EXPECT_EQ(m.value("fc1.weight").shape(), (Shape{3, 4}));
}

TEST(Model, AnEmptyNameIsMadeFromTheKindAndACount) {
  Model m;
  Value x = m.input("x", kX);
  m.add(nn::Linear(4), x, "linear1");
  const nn::Linear second(4);
  EXPECT_EQ(m.add(second, x).name(), "linear2");
  EXPECT_EQ(m.add(nn::Activation("relu"), x).name(), "relu1");
  EXPECT_EQ(m.add(nn::Linear(4), x).name(), "linear3");
  EXPECT_EQ(m.name_of(second), "linear2");
  EXPECT_EQ(m.name_of(nn::Linear(4)), "");
}

TEST(Model, TheSameHandleSharesItsParameters) {
  Model m;
  const nn::Linear fc(4);
  const nn::Layer copy = fc;
  Value x = m.input("x", kX);
  for (const std::string name : {"fc", "", "fc"}) x = m.add(copy, m.add(fc, x, name));
  EXPECT_EQ(params(m), (Names{"fc.weight", "fc.bias"}));
}

TEST(Model, TwoHandlesOfOneNameAreAnError) {
  Model m;
  const Value x = m.input("x", kX);
  m.add(nn::Linear(3), x, "fc");
  const Failure f = failure([&] { m.add(nn::Linear(3), x, "fc"); });
  EXPECT_EQ(f.message, "layer fc: the name is taken by another linear");
  EXPECT_NE(f.hint, "");
}

TEST(Model, OneHandleUnderTwoNamesIsAnError) {
  Model m;
  const Value x = m.input("x", kX);
  const nn::Linear fc(3);
  m.add(fc, x, "fc");
  EXPECT_EQ(failure([&] { m.add(fc, x, "other"); }).message, "layer fc: expected its own name, got \"other\"");
}

// A layer that died must not lend its address, and so its identity, to another.
TEST(Model, AddedLayersStayAlive) {
  Model m;
  const Value x = m.input("x", kX);
  for (int i = 0; i < 100; ++i) m.add(nn::Linear(1), x, "fc" + std::to_string(i));
  EXPECT_EQ(params(m).size(), 200u);
  std::weak_ptr<const nn::Layer::Impl> kept;
  {
    const nn::Linear fc(1);
    m.add(fc, x);
    kept = fc.impl();
  }
  EXPECT_FALSE(kept.expired());
}

TEST(Model, ALayerThatFailsLeavesItsNameFree) {
  Model m;
  const Value bad = m.input("bad", {i32, {2, 4}}), x = m.input("x", kX);
  const nn::Linear fc(3);
  EXPECT_THROW(m.add(fc, bad, "fc"), Error);
  EXPECT_EQ(m.name_of(fc), "");
  m.add(nn::Linear(3), x, "fc");
}

TEST(Model, ADeclaredParamIsTakenByTheLayer) {
  Model m;
  m.param("fc.weight", {f32, {3, 4}}, Init::ones(), "decay");
  m.add(nn::Linear(3), m.input("x", kX), "fc");
  const ir::ValueInfo& w = m.graph().value(m.graph().find_external("fc.weight"));
  EXPECT_EQ(w.attrs.get_string("group"), "decay");
  EXPECT_EQ(w.attrs.get_string("init"), "ones");
  m.state("n.weight", {f32, {4}});
  EXPECT_EQ(failure([&] { m.add(nn::RmsNorm(), m.value("x"), "n"); }).message,
            "layer n: expected n.weight to be the param f32[4], got the state f32[4]");
}

TEST(Model, Attributes) {
  Model m;
  m.param("p", {f32, {}}, Init::value(0.5));
  m.state("s", {f32, {}}, Init::normal(0, 0.25));
  m.param("q", {f32, {}}, Init::uniform(-1, 1), "g");
  const auto attrs = [&](const char* name) { return to_string(m.graph().value(m.graph().find_external(name)).attrs); };
  EXPECT_EQ(attrs("p"), "{init=\"value(0x1p-1)\"}");
  EXPECT_EQ(attrs("s"), "{init=\"normal(0x0p+0,0x1p-2)\"}");
  EXPECT_EQ(attrs("q"), "{group=\"g\", init=\"uniform(-0x1p+0,0x1p+0)\"}");
  m.freeze("p");
  EXPECT_EQ(attrs("p"), "{init=\"value(0x1p-1)\", trainable=false}");
  const Failure f = failure([&] { m.freeze("s"); });
  EXPECT_EQ(f.message, "freeze: no parameter \"s\"");
  m.add(nn::Linear(3), m.input("x", kX), "fc1");
  EXPECT_EQ(failure([&] { m.freeze("fc1.wieght"); }).hint, "did you mean fc1.weight?");
}

TEST(Model, NamesAreUniqueAndNotEmpty) {
  Model m;
  m.input("x", kX);
  EXPECT_THROW(m.input("x", kX), Error);
  EXPECT_THROW(m.param("x", kX), Error);
  EXPECT_THROW(m.state("", kX), Error);
  EXPECT_EQ(failure([&] { m.value("y_"); }).message, "no value named \"y_\"");
}

TEST(Model, UpdatesOutputsDerived) {
  Model m;
  const Value x = m.input("x", kX), s = m.state("running", kX), p = m.param("p", kX);
  m.update(s, s + x);
  EXPECT_THROW(m.update(s, x), Error);
  EXPECT_EQ(failure([&] { m.update(p, x); }).message, "update of %p: expected a state, got a param");
  EXPECT_THROW(m.update(m.state("t", {f32, {}}), x), Error);
  const Value d = m.derived("p16", cast(p, bf16));
  EXPECT_EQ(d.type(), (TensorType{bf16, {2, 4}}));
  EXPECT_NE(m.graph().find_derivation(d.id()), nullptr);
  m.output("y", x);
  EXPECT_EQ(m.output("y"), x);
  EXPECT_THROW(m.output("y", s), Error);
  m.output("logits", s);
  EXPECT_EQ(failure([&] { m.output("logit"); }).hint, "did you mean logits?");
}

TEST(Model, ValuesOfAnotherModelAreRefused) {
  Model a, b;
  const Value x = a.input("x", kX);
  EXPECT_EQ(failure([&] { b.add(nn::Linear(2), x, "fc"); }).message, "linear fc: a value of another model");
  EXPECT_THROW(b.output("y", x), Error);
  EXPECT_THROW(b.output("y", Value()), Error);
}

TEST(Model, ValuesSurviveAMove) {
  std::optional<Model> a(std::in_place, 7);
  const Value x = a->input("x", kX);
  Model b = std::move(*a);
  a.reset();
  EXPECT_EQ(b.add(nn::Linear(3), x, "fc").shape(), (Shape{2, 3}));
  EXPECT_EQ(b.seed(), 7u);
}

TEST(Sequential, NamesItsLayersByPlaceAndKind) {
  nn::Sequential net({nn::Linear(5), nn::Activation("relu"), {nn::Linear(3), "head"}});
  const Value y = net.build(kX);
  EXPECT_EQ(params(net.model()), (Names{"0.linear.weight", "0.linear.bias", "head.weight", "head.bias"}));
  EXPECT_EQ(net.model().output("output"), y);
  EXPECT_EQ(y.shape(), (Shape{2, 3}));
  EXPECT_EQ(net.model().value("1.relu").shape(), (Shape{2, 5}));
  EXPECT_EQ(failure([&] { net.build(kX); }).message, "sequential: built already");
}

TEST(Sequential, InsideAModelItsNameComesFirst) {
  Model m;
  const nn::Sequential inner({nn::RmsNorm()});
  const nn::Sequential body({nn::Linear(4), {inner, "norms"}});
  Value x = m.add(body, m.input("x", kX), "body");
  EXPECT_EQ(x.name(), "body");
  const Names once = {"body.0.linear.weight", "body.0.linear.bias", "body.norms.0.rms_norm.weight"};
  EXPECT_EQ(params(m), once);
  m.add(body, x);
  EXPECT_EQ(params(m), once);
}

TEST(Sequential, ARepeatedHandleIsOneLayer) {
  const nn::Linear fc(4);
  nn::Sequential net({fc, nn::Activation("tanh"), fc});
  net.build(kX);
  EXPECT_EQ(params(net.model()), (Names{"0.linear.weight", "0.linear.bias"}));
  Model m;
  Value x = m.add(fc, m.input("x", kX), "shared");
  m.add(nn::Sequential({fc}), x, "body");
  EXPECT_EQ(params(m), (Names{"shared.weight", "shared.bias"}));
}

TEST(Sequential, Refuses) {
  EXPECT_EQ(failure([] { nn::Sequential({}); }).message, "sequential: expected one layer or more, got none");
  const nn::Sequential net({nn::Linear(4)});
  EXPECT_EQ(failure([&] { net.model(); }).message, "sequential: expected a built model");
  nn::Sequential bad({nn::Linear(4)});
  EXPECT_THROW(bad.build({i32, {2, 4}}), Error);
  bad.build(kX);  // a failed build leaves nothing behind
}

}  // namespace
}  // namespace aicf
