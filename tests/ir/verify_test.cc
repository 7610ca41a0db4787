// verify(): a graph that holds passes; each planted fault is named.
#include <gtest/gtest.h>

#include "ir/graph_test_access.h"
#include "ir/op.h"
#include "ir/text.h"

namespace aicf::ir {
namespace {

constexpr const char* kSound = R"(graph {
  input %x : f32[4]
  param %w : f32[4] {init="zeros"}
  state %s : f32[4]
  state %w.c : bf16[4]
  constant %one : f32[] = 0x1p+0
  constant %c0 : bool[] = true
  %h = add(%x, %w) : f32[4]
  %p, %q = split(%h) {axis=0, sizes=[1,3]} : f32[1], f32[3]
  %r = concat(%p, %q) {axis=0} : f32[4]
  %next = mul(%r, %one) : f32[4]
  %cast = cast(%w) {to=bf16} : bf16[4]
  derive %w.c := %cast
  update %w := %next when %c0
  update %s := %w
  output "y" = %r
}
)";

class Verify : public testing::Test {
 protected:
  Graph graph_ = parse(kSound);
  GraphTestAccess plant_{graph_};

  ValueId id(const char* name) const {
    const ValueId v = graph_.find(name);
    EXPECT_NE(v, kNoValue) << name;
    return v;
  }
  Op& producer(const char* name) { return plant_.ops()[graph_.value(id(name)).producer]; }
  std::string message() const {
    try {
      verify(graph_);
    } catch (const Error& e) {
      return e.what();
    }
    return "accepted";
  }
};

TEST_F(Verify, AcceptsASoundGraph) { EXPECT_EQ(message(), "accepted"); }

TEST_F(Verify, TypeOtherThanInferred) {
  plant_.values()[id("r")].type.shape = Shape{5};
  EXPECT_EQ(message(), "op concat of %r: expected %r : f32[4], got f32[5]");
}

TEST_F(Verify, OperandDefinedLater) {
  producer("h").inputs[1] = id("r");
  EXPECT_EQ(message(), "op add of %h: expected operand %r defined before its use, got it after");
}

TEST_F(Verify, OperandIsTheResult) {
  producer("h").inputs[1] = id("h");
  EXPECT_EQ(message(), "op add of %h: expected operand %h defined before its use, got it after");
}

TEST_F(Verify, OperandOfNoGraph) {
  producer("h").inputs[1] = graph_.num_values();
  EXPECT_EQ(message(), "op add of %h: expected operands of this graph, got none");
  producer("h").inputs[1] = kNoValue;
  EXPECT_EQ(message(), "op add of %h: expected operands of this graph, got none");
}

TEST_F(Verify, NumberOfOperands) {
  producer("h").inputs.pop_back();
  EXPECT_EQ(message(), "op add of %h: expected 2 operands, got 1");
  producer("h").inputs = {id("x"), id("w")};
  producer("r").inputs.clear();
  EXPECT_EQ(message(), "op concat of %r: expected one operand or more, got 0");
}

TEST_F(Verify, NumberOfResults) {
  Op& split = producer("p");
  split.attrs.set("sizes", std::vector<int64_t>{1, 1, 2});
  EXPECT_EQ(message(), "op split of %p: expected 3 results, got 2");
}

TEST_F(Verify, ResultsOfAnotherOp) {
  producer("h").outputs[0] = id("r");
  EXPECT_EQ(message(), "tmp %h: expected to be a result of its op, got another value there");
}

TEST_F(Verify, TmpWithoutOp) {
  plant_.values()[id("h")].producer = kNoOp;
  EXPECT_EQ(message(), "tmp %h: expected an op that produces it, got none");
}

TEST_F(Verify, ExternalWithOp) {
  plant_.values()[id("x")].producer = 0;
  EXPECT_EQ(message(), "input %x: expected no op that produces it, got op add of %h");
}

TEST_F(Verify, Attributes) {
  producer("p").attrs.set("axes", int64_t{0});
  EXPECT_EQ(message(), "op split of %p: expected one of axis, sizes, got axes");
  producer("p").attrs.erase("axes");
  producer("p").attrs.set("axis", true);
  EXPECT_EQ(message(), "op split of %p: expected an integer for axis, got true");
  producer("p").attrs.erase("axis");
  EXPECT_EQ(message(), "op split of %p: expected the attribute axis, got none");
  producer("p").attrs.set("axis", int64_t{0});
  producer("h").attrs.set("axis", int64_t{0});
  EXPECT_EQ(message(), "op add of %h: expected no attributes, got axis");
}

TEST_F(Verify, ConstantElements) {
  ValueInfo& one = plant_.values()[id("one")];
  one.type.dtype = f64;
  EXPECT_EQ(message(), "constant %one: expected elements of f64[], got f32[]");
  one.data = nullptr;
  EXPECT_EQ(message(), "constant %one: expected elements, got none");
}

TEST_F(Verify, ExternalWithElements) {
  plant_.values()[id("x")].data = std::make_shared<const Tensor>(TensorType{f32, {4}});
  EXPECT_EQ(message(), "input %x: expected no elements, got some");
}

TEST_F(Verify, Keys) {
  plant_.values()[id("s")].name = "w";
  EXPECT_EQ(message(), "state %w: expected a name of its own, got one that another value has");
  plant_.values()[2].name.clear();
  EXPECT_EQ(message(), "state %2: expected a name, got an empty one");
}

TEST_F(Verify, Updates) {
  plant_.updates()[1].target = id("w");
  EXPECT_EQ(message(), "update of %w: expected one, got two");
  plant_.updates()[1].target = id("x");
  EXPECT_EQ(message(), "update of %x: expected a param or a state, got input %x");
  plant_.updates()[1] = {id("s"), id("p"), kNoValue};
  EXPECT_EQ(message(), "update of %s: expected f32[4], got %p : f32[1]");
  plant_.updates()[1] = {id("s"), 1000, kNoValue};
  EXPECT_EQ(message(), "update of %s: expected a value of this graph, got none");
  plant_.updates()[1] = {id("s"), id("w"), id("p")};
  EXPECT_EQ(message(), "update of %s: expected a guard of bool[], got %p : f32[1]");
}

TEST_F(Verify, Derivations) {
  plant_.derivations()[0].value = id("h");
  EXPECT_EQ(message(), "derivation of %w.c: expected bf16[4], got %h : f32[4]");
  plant_.derivations()[0].state = id("s");
  EXPECT_EQ(message(), "derivation of %s: expected an expression of params and states, got the input %x");
  plant_.derivations()[0] = {id("s"), id("s")};
  EXPECT_EQ(message(), "derivation of %s: expected an expression of states that are derived before it, got %s");
  plant_.derivations()[0] = {id("s"), id("w")};
  EXPECT_EQ(message(), "accepted");
  plant_.derivations().push_back({id("s"), id("w")});
  EXPECT_EQ(message(), "derivation of %s: expected one, got two");
  plant_.derivations()[0] = {id("w"), id("w")};
  EXPECT_EQ(message(), "derivation of %w: expected a state, got param %w");
}

TEST_F(Verify, Outputs) {
  plant_.outputs().push_back({"y", id("h")});
  EXPECT_EQ(message(), "output \"y\": expected a name of its own, got one that another output has");
  plant_.outputs()[1] = {"z", 1000};
  EXPECT_EQ(message(), "output \"z\": expected a value of this graph, got none");
}

TEST_F(Verify, Bodies) {
  Graph body;
  const ValueId w = body.add_external(Role::param, "w", {f32, {4}});
  body.add_output("0", w);
  producer("h").region = std::make_shared<const Graph>(body);
  EXPECT_EQ(message(), "op add of %h, in its body: body: expected inputs, constants and ops, got param %w");
  Graph deep = Graph();
  deep.add_output("0", deep.add_external(Role::input, "x", {f32, {4}}));
  producer("h").region = std::make_shared<const Graph>(deep);
  EXPECT_EQ(message(), "accepted");
  for (int i = 0; i < kMaxBodyDepth; ++i) {
    Graph outer;
    const ValueId x = outer.add_external(Role::input, "x", {f32, {4}});
    const OpId op = outer.add_op(*find_op("neg"), {x}, {}, std::make_shared<const Graph>(deep));
    outer.add_output("0", outer.op(op).outputs[0]);
    deep = outer;
  }
  producer("h").region = std::make_shared<const Graph>(deep);
  EXPECT_NE(message().find("expected at most 16 bodies in one another, got more"), std::string::npos) << message();
}

}  // namespace
}  // namespace aicf::ir
