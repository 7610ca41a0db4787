// Graph, Rewriter and Attrs: what they keep and what they refuse.
#include <gtest/gtest.h>

#include "ir/op.h"
#include "ir/rewriter.h"
#include "ir/text.h"

namespace aicf::ir {
namespace {

const TensorType kVector{f32, {4}};

template <class Action>
std::string message(Action action) {
  try {
    action();
  } catch (const Error& e) {
    return e.what();
  }
  return "accepted";
}

ValueId emit1(Graph& graph, const char* op, std::vector<ValueId> inputs, Attrs attrs = {}) {
  return graph.op(graph.add_op(*find_op(op), std::move(inputs), std::move(attrs))).outputs[0];
}

TEST(Graph, IdsAreStable) {
  Graph graph;
  const ValueId x = graph.add_external(Role::input, "x", kVector);
  const ValueId y = emit1(graph, "neg", {x});
  const ValueId w = graph.add_external(Role::param, "w", kVector);
  const ValueId z = emit1(graph, "add", {y, w});
  graph.set_label(y, "z");
  EXPECT_EQ((std::vector<ValueId>{x, y, w, z}), (std::vector<ValueId>{0, 1, 2, 3}));
  EXPECT_EQ(graph.value(z).producer, 1);
  EXPECT_EQ(graph.value(x).producer, kNoOp);
  EXPECT_EQ(graph.find_external("w"), w);
  EXPECT_EQ(graph.readers()[y], std::vector<OpId>{1});
}

TEST(Graph, ARepeatedOperandIsOneReader) {
  Graph graph;
  const ValueId x = graph.add_external(Role::input, "x", kVector);
  emit1(graph, "add", {x, x});
  EXPECT_EQ(graph.readers()[x], std::vector<OpId>{0});
}

TEST(Graph, RefusesDuplicateAndEmptyKeys) {
  Graph graph;
  graph.add_external(Role::param, "w", kVector);
  EXPECT_NE(message([&] { graph.add_external(Role::state, "w", kVector); }), "accepted");
  EXPECT_NE(message([&] { graph.add_constant(Tensor(kVector), "w"); }), "accepted");
  EXPECT_NE(message([&] { graph.add_external(Role::input, "", kVector); }), "accepted");
  EXPECT_EQ(graph.num_values(), 1);
  verify(graph);
}

TEST(Graph, OneUpdateOfAnExternal) {
  Graph graph;
  const ValueId x = graph.add_external(Role::input, "x", kVector);
  const ValueId w = graph.add_external(Role::param, "w", kVector);
  const ValueId scalar = graph.add_external(Role::input, "ok", {boolean, {}});
  graph.add_update(w, x, scalar);
  EXPECT_EQ(message([&] { graph.add_update(w, x); }), "update of %w: it has one already");
  EXPECT_EQ(message([&] { graph.add_update(x, w); }), "update of %x: expected a param or a state, got a input");
  const ValueId s = graph.add_external(Role::state, "s", {f32, {5}});
  EXPECT_EQ(message([&] { graph.add_update(s, x); }), "update of %s: expected f32[5], got f32[4]");
  EXPECT_EQ(graph.updates().size(), 1u);
  EXPECT_EQ(graph.updates()[0].guard, scalar);
}

TEST(Graph, ARefusedGuardLeavesNoUpdate) {
  Graph graph;
  const ValueId x = graph.add_external(Role::input, "x", kVector);
  const ValueId w = graph.add_external(Role::param, "w", kVector);
  EXPECT_EQ(message([&] { graph.add_update(w, x, x); }), "guard %x: expected bool[], got f32[4]");
  EXPECT_EQ(graph.updates().size(), 0u);
}

TEST(Graph, AnonymousConstantsAreShared) {
  Graph graph;
  const ValueId one = graph.add_constant(Tensor::scalar(1.0f));
  EXPECT_EQ(graph.add_constant(Tensor::scalar(1.0f)), one);
  EXPECT_NE(graph.add_constant(Tensor::scalar(1.0)), one) << "another dtype";
  EXPECT_NE(graph.add_constant(Tensor::of<float>({1}, {1})), one) << "another shape";
  EXPECT_NE(graph.add_constant(Tensor::scalar(1.0f), "one"), one) << "a named constant is its own";
  const ValueId zero = graph.add_constant(Tensor::scalar(0.0f));
  EXPECT_NE(graph.add_constant(Tensor::scalar(-0.0f)), zero) << "other bits";
}

TEST(Graph, FindPrefersExternalsThenOutputsThenTheLastLabel) {
  Graph graph;
  const ValueId x = graph.add_external(Role::input, "x", kVector);
  const ValueId a = emit1(graph, "neg", {x});
  const ValueId b = emit1(graph, "neg", {a});
  for (ValueId v : {a, b}) graph.set_label(v, "h");
  graph.set_label(x, "renamed");
  EXPECT_EQ(graph.value(x).name, "x") << "an external keeps its key";
  EXPECT_EQ(graph.find("h"), b);
  graph.add_output("h", a);
  EXPECT_EQ(graph.find("h"), a);
  EXPECT_EQ(graph.find("x"), x);
  EXPECT_EQ(graph.find(""), kNoValue);
  EXPECT_EQ(message([&] { graph.add_output("h", b); }), "output \"h\": the name is taken");
}

TEST(Graph, ARefusedOpLeavesTheGraphAsItWas) {
  Graph graph;
  const ValueId x = graph.add_external(Role::input, "x", kVector);
  const ValueId y = graph.add_external(Role::input, "y", {f32, {5}});
  EXPECT_NE(message([&] { emit1(graph, "add", {x, y}); }), "accepted");
  EXPECT_NE(message([&] { emit1(graph, "add", {x}); }), "accepted");
  EXPECT_EQ(graph.num_ops(), 0);
  EXPECT_EQ(graph.num_values(), 2);
}

TEST(Rewriter, CopiesReplacesAndMaps) {
  const Graph source = parse(R"(graph {
  input %x : f32[4]
  param %w : f32[4]
  constant %c0 : bool[] = true
  %a = neg(%x) : f32[4]
  %b = neg(%a) : f32[4]
  %c = add(%b, %w) : f32[4]
  update %w := %c when %c0
  output "y" = %b
}
)");
  Rewriter rewriter(source);
  rewriter.copy(0);
  rewriter.replace(source.find("b"), rewriter.map(source.find("x")));  // neg(neg(x)) is x
  rewriter.copy(2);
  EXPECT_TRUE(rewriter.has(source.find("b")));
  const Graph result = rewriter.finish();
  EXPECT_EQ(print(result), R"(graph {
  input %x : f32[4]
  param %w : f32[4]
  constant %c0 : bool[] = true
  %a = neg(%x) : f32[4]
  %c = add(%x, %w) : f32[4]
  update %w := %c when %c0
  output "y" = %x
}
)");
  EXPECT_EQ(rewriter.mapping()[source.find("b")], result.find("x"));
}

TEST(Rewriter, AReplacementTakesTheLabel) {
  const Graph source = parse(R"(graph {
  input %x : f32[4]
  state %s : f32[4]
  %h = neg(%x) : f32[4]
  update %s := %h
}
)");
  Rewriter rewriter(source);
  const ValueId negated = emit1(rewriter.target(), "neg", {rewriter.map(source.find("x"))});
  rewriter.replace(source.find("h"), negated);
  const Graph result = rewriter.finish();
  ASSERT_EQ(result.updates().size(), 1u);
  EXPECT_EQ(result.value(result.updates()[0].value).name, "h");
}

TEST(Rewriter, AnUnmappedOperandIsOurBug) {
  const Graph source = parse("graph {\n input %x : f32[4]\n %a = neg(%x) : f32[4]\n %b = neg(%a) : f32[4]\n}\n");
  Rewriter rewriter(source);
  EXPECT_THROW(rewriter.copy(1), InternalError);
}

TEST(Attrs, AreSortedTypedAndReplaced) {
  Attrs attrs{{"b", int64_t{2}}, {"a", true}, {"c", 0.1}};
  attrs.set("d", std::string("say \"hi\"\n\\"));
  attrs.set("e", std::vector<int64_t>{0, -2});
  attrs.set("f", bf16);
  attrs.set("b", int64_t{-3});
  EXPECT_EQ(to_string(attrs), "{a=true, b=-3, c=0x1.999999999999ap-4, d=\"say \\\"hi\\\"\\n\\\\\", e=[0,-2], f=bf16}");
  EXPECT_EQ(attrs.get_int("b"), -3);
  EXPECT_EQ(attrs.get_int("absent", 7), 7);
  EXPECT_EQ(message([&] { attrs.get_bool("b"); }), "attribute b: expected a bool, got -3");
  EXPECT_TRUE(attrs.erase("b"));
  EXPECT_FALSE(attrs.erase("b"));
  EXPECT_EQ(attrs, (Attrs{{"f", bf16},
                          {"e", std::vector<int64_t>{0, -2}},
                          {"d", std::string("say \"hi\"\n\\")},
                          {"c", 0.1},
                          {"a", true}}));
}

}  // namespace
}  // namespace aicf::ir
