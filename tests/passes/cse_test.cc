// What the texts cannot say of cse: ops that draw, and bodies.
#include <gtest/gtest.h>

#include "aicf/ops.h"
#include "ir/op.h"
#include "ir/text.h"
#include "passes/pass.h"

namespace aicf::passes {
namespace {

// An op of one operand and a result of its type.
ir::OpDef record(const char* name, uint32_t flags) {
  ir::OpDef def;
  def.name = name;
  def.num_inputs = 1;
  def.operand_names = {"x"};
  def.infer = [](const ir::InferCtx& ctx) { return std::vector<TensorType>{ctx.in[0]}; };
  def.flags = flags;
  return def;
}

// Two ops of the record, each with its body.
ir::Graph twins(const ir::OpDef& def, const char* body = nullptr, const char* other = nullptr) {
  const auto parsed = [](const char* text) {
    return text == nullptr ? nullptr : std::make_shared<const ir::Graph>(ir::parse(text));
  };
  ir::Graph graph;
  const ir::ValueId x = graph.add_external(ir::Role::input, "x", {f32, {2}});
  const ir::OpId a = graph.add_op(def, {x}, {}, parsed(body)), b = graph.add_op(def, {x}, {}, parsed(other));
  graph.add_output("a", graph.op(a).outputs[0]);
  graph.add_output("b", graph.op(b).outputs[0]);
  return graph;
}

TEST(Cse, NeverMergesOpsThatDraw) {
  const ir::OpDef draw = record("draw", ir::kRandom), plain = record("plain", 0);
  ir::Graph draws = twins(draw), plains = twins(plain);
  EXPECT_FALSE(cse(draws));
  EXPECT_EQ(draws.num_ops(), 2);
  EXPECT_TRUE(cse(plains));
  EXPECT_EQ(plains.num_ops(), 1);
}

TEST(Cse, ComparesBodiesWithoutTheirLabels) {
  const ir::OpDef fused = record("fused", 0);
  const char* body = "graph {\n  input %p : f32[2]\n  %y = exp(%p) : f32[2]\n  output \"0\" = %y\n}\n";
  const char* renamed = "graph {\n  input %p : f32[2]\n  %z = exp(%p) : f32[2]\n  output \"0\" = %z\n}\n";
  const char* different = "graph {\n  input %p : f32[2]\n  %y = neg(%p) : f32[2]\n  output \"0\" = %y\n}\n";
  ir::Graph same = twins(fused, body, renamed), other = twins(fused, body, different);
  EXPECT_TRUE(cse(same));
  EXPECT_EQ(same.num_ops(), 1);
  EXPECT_FALSE(cse(other));
}

}  // namespace
}  // namespace aicf::passes
