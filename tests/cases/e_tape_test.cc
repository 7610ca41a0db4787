// Cases E1, E2, E3: the shape of the tape. Cotangents of a value are summed over its consumers, an absent one is zeros,
// and an op without a gradient rule between a parameter and the loss is an error that names it.
#include "cases/tape.h"

namespace aicf::test {
namespace {

// --- E1: a value with several consumers -------------------------------------------------------------------------

TEST(E1, TwoConsumersOfOneValueAdd) {
  Tape tape;
  const Value x = tape.param("x", Tensor::scalar<float>(2));
  const Value y = x * 3.0, c = y * 2.0 + y * 5.0;
  expect_values(tape.backward(c).at("grad:x"), {21});
}

TEST(E1, SharedSubResults) {
  Tape tape;
  const Value x = tape.param("x", Tensor::scalar<float>(1)), one = tape.constant(Tensor::scalar<float>(1));
  const Value square = x * x, scaled = x * one;
  const Value f = square * one + x * scaled + scaled * x;
  expect_values(tape.backward(f).at("grad:x"), {6});
}

// The result read by two consumers gives the gradient of both, through every op that has one.
TEST(E1, EveryOpWithTwoConsumersOfItsResult) {
  int ops = 0;
  for (const ir::OpDef* def : ir::op_table()) {
    const std::vector<OpCase> cases = smooth_cases(*def);
    if (cases.empty()) continue;
    ++ops;
    const OpCase& c = cases[0];
    SCOPED_TRACE(c.text());
    const std::set<size_t> used = used_outputs(c);
    GradSetup setup = grad_setup(c, used);
    const TensorMap once = gradients(setup);
    OpGraph built = graph_of(*c.def, c.sample);
    const Value first = weighted_sum(built.graph, used), second = weighted_sum(built.graph, used);
    built.graph.add_output("loss", (first + second * 2.0).id());
    add_gradients(built.graph, setup.keys);
    setup.backward = std::move(built.graph);
    for (const auto& [key, grad] : gradients(setup)) {
      for (int64_t i = 0; i < grad.elements(); ++i) {
        const double want = 3 * once.at(key).at(i);
        EXPECT_NEAR(grad.at(i), want, 1e-13 * std::max(1.0, std::fabs(want)));  // a few f64 roundings
      }
    }
  }
  EXPECT_GT(ops, 30);
}

// --- E2: some outputs unused ------------------------------------------------------------------------------------

std::vector<double> split_gradient(size_t used) {
  Tape tape;
  const Value x = tape.param("x", vec({1, 2, 3, 4, 5, 6}));
  return tape.backward(sum(split(x, 3, 0)[used])).at("grad:x").to_doubles();
}

TEST(E2, SplitWithOneOutputUsed) {
  EXPECT_EQ(split_gradient(0), (std::vector<double>{1, 1, 0, 0, 0, 0}));
  EXPECT_EQ(split_gradient(1), (std::vector<double>{0, 0, 1, 1, 0, 0}));
  EXPECT_EQ(split_gradient(2), (std::vector<double>{0, 0, 0, 0, 1, 1}));
}

// Every op with several results, each float result used alone.
TEST(E2, EveryMultiOutputOpWithOneOutputUsed) {
  std::set<std::string> ops;
  for (const ir::OpDef* def : ir::op_table()) {
    for (const OpCase& c : smooth_cases(*def)) {
      if (graph_of(*c.def, c.sample).graph.outputs().size() < 2) continue;
      ops.insert(def->name);
      for (size_t output : used_outputs(c)) check_gradient(c, {output});
    }
  }
  EXPECT_TRUE(ops.contains("split"));
  EXPECT_TRUE(ops.contains("cross_entropy"));
}

// --- E3: an op without a rule -----------------------------------------------------------------------------------

std::vector<TensorType> same_type(const ir::InferCtx& ctx) { return {ctx.in[0]}; }

const ir::OpDef kOpaque = {
    .name = "opaque", .num_inputs = 1, .operand_names = {"x"}, .infer = same_type, .grad = ir::not_differentiable};

TEST(E3, SoftmaxHasAGradient) {
  Tape tape;
  const Value x = tape.param("x", vec({0, 0}));
  expect_values(tape.backward(sum(softmax(x) * tape.constant(vec({1, 0})))).at("grad:x"), {.25, -.25}, kFewUlps);
}

TEST(E3, AnOpWithoutARuleIsNamedWithThePath) {
  Tape tape;
  const Value w = tape.param("fc.weight", vec({1, 2}));
  const Value hidden = ir::emit(kOpaque, {exp(w)}).named("hidden");
  tape.graph().add_output("loss", sum(hidden).id());
  try {
    add_gradients(tape.graph(), {"fc.weight"});
    FAIL() << "differentiated through an op without a rule";
  } catch (const Error& error) {
    const std::string text = error.what();
    EXPECT_NE(text.find("opaque"), std::string::npos) << text;
    EXPECT_NE(text.find("fc.weight"), std::string::npos) << text;
    EXPECT_NE(text.find("hidden"), std::string::npos) << text;
  }
}

// Off the path from the parameter, or behind stop_gradient, it does no harm.
TEST(E3, AnOpWithoutARuleOffThePathIsFine) {
  Tape tape;
  const Value w = tape.param("w", vec({1, 2})), x = tape.input("x", vec({3, 4}));
  ir::emit(kOpaque, {x});
  tape.graph().add_output("loss", sum(w * x).id());
  add_gradients(tape.graph(), {"w"});
  EXPECT_NE(tape.graph().find_output("grad:w"), ir::kNoValue);
}

TEST(E3, NormGainsMove) {
  for (const bool rms : {true, false}) {
    Tape tape;
    const Value x = tape.input("x", tensor<float>({2, 3}, {1, 2, 4, -1, 0, 2}));
    const Value gamma = tape.param("gamma", vec({1, 1, 1})), beta = tape.param("beta", vec({0, 0, 0}));
    const Value y = rms ? rms_norm(x, gamma) + beta : layer_norm(x, gamma, beta);
    const Value w = tape.constant(tensor<float>({2, 3}, {1, 2, 3, 4, 5, 6}));
    const TensorMap got = tape.backward(sum(y * w));
    for (const char* key : {"grad:gamma", "grad:beta"}) {
      for (double g : got.at(key).to_doubles()) EXPECT_GT(std::fabs(g), 0.1) << key << (rms ? " rms" : " layer norm");
    }
  }
}

// Every record has a rule of its own or an expansion that is differentiated.
TEST(E3, EveryRecordHasAGradientRule) {
  for (const ir::OpDef* def : ir::op_table()) {
    EXPECT_TRUE(def->grad != nullptr || def->expand != nullptr) << def->name;
    // But for what passes make after differentiation.
    EXPECT_EQ(def->grad == &ir::not_differentiable, test::means_its_body(*def)) << def->name;
  }
}

}  // namespace
}  // namespace aicf::test
