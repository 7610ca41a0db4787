// Every record × sample: the gradient by differentiate() against central differences, in f64, for every float operand.
#include "ops/grad_check.h"

namespace aicf::test {
namespace {

class OpsGrad : public ::testing::TestWithParam<const ir::OpDef*> {};

bool has_float_result(const ir::OpDef& def) {
  for (const OpCase& c : cases_of(def)) {
    if (c.dtype == f64 && !used_outputs(c).empty()) return true;
  }
  return false;
}

TEST_P(OpsGrad, AgreesWithCentralDifferences) {
  const ir::OpDef& def = *GetParam();
  // A composite without a rule of its own is differentiated through its expansion.
  ASSERT_TRUE(def.grad != nullptr || def.is(ir::kComposite)) << def.name << " has no gradient rule";
  if (!runs_in(def, f64) || !has_float_result(def) || means_its_body(def)) return;
  const std::vector<OpCase> cases = smooth_cases(def);
  // The gradient of these two is, by their meaning, not their derivative.
  const bool own = def.name == std::string("stop_gradient") || def.name == std::string("with_gradient");
  EXPECT_TRUE(!cases.empty() || own) << def.name << ": no sample checks the gradient";
  for (const OpCase& c : cases) check_gradient(c, used_outputs(c));
}

// loss = f(x)·3 with x = 2: "grad:x" when the loss reaches x.
TensorMap gradient_at_2(Value (*f)(Value)) {
  ir::Graph graph;
  const Value x = graph.handle(graph.add_external(ir::Role::param, "x", {f64, {}}));
  graph.add_output("loss", (f(x) * 3.0).id());
  add_gradients(graph, {"x"});
  return expand_and_interpret(graph, {{"x", Tensor::scalar<double>(2)}});
}

TEST(OpsGrad, StopGradientStopsIt) {
  EXPECT_FALSE(gradient_at_2([](Value x) { return stop_gradient(exp(x)); }).contains("grad:x"));
  EXPECT_EQ(gradient_at_2([](Value x) { return x * stop_gradient(x); }).at("grad:x").item(), 6);
}

TEST(OpsGrad, WithGradientUsesTheRuleGiven) {
  const TensorMap got = gradient_at_2([](Value x) {
    return with_gradient(
        {x}, [](const std::vector<Value>& in) { return in[0] * in[0]; },
        [](const std::vector<Value>& in, Value y, Value dy) { return std::vector<Value>{dy * (in[0] * 10.0 + y)}; });
  });
  EXPECT_EQ(got.at("loss").item(), 12);
  EXPECT_EQ(got.at("grad:x").item(), 3 * (2 * 10 + 4));
}

// The cotangents 1, 2^-8 and 2^-8 of one bf16 value: added one after another in bf16 they are 1.
TEST(OpsGrad, CotangentsOfA16BitValueAreSummedInF32) {
  ir::Graph graph;
  const Value x = graph.handle(graph.add_external(ir::Role::param, "x", {bf16, {}}));
  const auto part = [&](double slope) { return cast(x * slope, f32); };
  graph.add_output("loss", (part(1) + part(0x1p-8) + part(0x1p-8)).id());
  add_gradients(graph, {"x"});
  EXPECT_EQ(graph.type(graph.find_output("grad:x")).dtype, bf16);
  Tensor at(TensorType{bf16, {}});
  EXPECT_EQ(expand_and_interpret(graph, {{"x", at}}).at("grad:x").item(), 1 + 0x1p-7);
}

// A matrix shared by all leading axes of a: its gradient is one product over all rows, not one a batch and a sum.
TEST(OpsGrad, OfASharedMatrixIsOneProduct) {
  for (const bool tb : {false, true}) {
    ir::Graph graph;
    const Value a = graph.handle(graph.add_external(ir::Role::input, "a", {f32, {2, 3, 4, 5}}));
    const Value b = graph.handle(graph.add_external(ir::Role::param, "b", {f32, tb ? Shape{6, 5} : Shape{5, 6}}));
    graph.add_output("loss", sum(matmul(a, b, false, tb)).id());
    add_gradients(graph, {"b"});
    const ir::Op& last = graph.op(graph.value(graph.find_output("grad:b")).producer);
    EXPECT_STREQ(last.def->name, "matmul");
    for (ir::ValueId operand : last.inputs) EXPECT_EQ(graph.type(operand).shape.rank(), 2);
  }
}

INSTANTIATE_TEST_SUITE_P(Table, OpsGrad, ::testing::ValuesIn(ir::op_table().begin(), ir::op_table().end()),
                         [](const auto& info) { return std::string(info.param->name); });

}  // namespace
}  // namespace aicf::test
