// Gradients by differentiate() against central differences, in f64, for one op.
#pragma once

#include <set>
#include <string>

#include "aicf/ops.h"
#include "autodiff/differentiate.h"
#include "ops/harness.h"

namespace aicf::test {

// Central differences with step h = 1e-5·max(1,|x|) err by h²·f'''/6 ≈ 2e-11·f''' and eps·|L|/h ≈ 1e-10 for losses of
// order 10; samples stay where third derivatives are below 1e4. So 1e-6, relative to max(1, |gradient|).
inline constexpr double kStep = 1e-5;
inline constexpr double kGradTolerance = 1e-6;
// Elements of an operand that are perturbed; of a larger one about so many, evenly spread.
inline constexpr int64_t kMostElements = 24;

// A fixed weight for each element of an output, in ±[0.5, 1.5], so that no two contributions cancel by symmetry.
inline Tensor loss_weights(const TensorType& type, size_t output) {
  std::mt19937_64 random(text_hash("weights" + std::to_string(output)));
  Tensor w({f64, type.shape});
  for (int64_t i = 0; i < w.elements(); ++i) {
    const double unit = static_cast<double>(random() >> 11) * 0x1p-53;
    w.as<double>()[i] = (random() & 1 ? 1 : -1) * (0.5 + unit);
  }
  return w;
}

// The outputs of a sample that a loss reads.
inline std::set<size_t> used_outputs(const OpCase& c) {
  std::set<size_t> used;
  const OpGraph built = graph_of(*c.def, c.sample);
  for (size_t o = 0; o < built.graph.outputs().size(); ++o) {
    const TensorType& type = built.graph.type(built.graph.outputs()[o].value);
    if (is_float(type.dtype) && static_cast<int>(o) != c.sample.unused_output) used.insert(o);
  }
  return used;
}

// Σ outputs · weights over the used outputs, in f64.
inline Value weighted_sum(ir::Graph& graph, const std::set<size_t>& used) {
  Value loss;
  const std::vector<ir::Output> outputs(graph.outputs().begin(), graph.outputs().end());
  for (size_t o : used) {
    const Value y = graph.handle(outputs.at(o).value);
    const Value w = graph.handle(graph.add_constant(loss_weights(y.type(), o)));
    const Value part = sum(mul(y.dtype() == f64 ? y : cast(y, f64), w));
    loss = loss.valid() ? add(loss, part) : part;
  }
  return loss;
}

// Adds the gradients of the output "loss" as outputs grad:KEY; a key without one is not reached from the loss.
inline void add_gradients(ir::Graph& graph, const std::set<std::string>& keys, double cotangent = 1) {
  passes::expand_undifferentiable(graph);
  std::vector<ir::ValueId> wrt;
  for (const std::string& key : keys) wrt.push_back(graph.find_external(key));
  const ir::ValueId loss = graph.find_output("loss");
  const Tensor seed = converted(Tensor::scalar<double>(cotangent), graph.type(loss).dtype);
  const auto grads = autodiff::differentiate(graph, loss, graph.add_constant(seed), wrt);
  size_t i = 0;
  for (const std::string& key : keys) {
    const auto& grad = grads[i++];
    if (grad) graph.add_output("grad:" + key, *grad);
  }
  ir::verify(graph);
}

struct GradSetup {
  ir::Graph forward;   // expanded, with the output "loss"
  ir::Graph backward;  // with the outputs grad:KEY
  TensorMap feeds;
  std::set<std::string> keys;  // of the f64 operands
};

inline GradSetup grad_setup(const OpCase& c, const std::set<size_t>& used) {
  OpGraph built = graph_of(*c.def, c.sample);
  GradSetup setup;
  const std::vector<Tensor> operands = operands_of(*c.def, c.sample);
  for (size_t i = 0; i < operands.size(); ++i) {
    setup.feeds[built.operand_keys[i]] = operands[i];
    if (operands[i].dtype() == f64) setup.keys.insert(built.operand_keys[i]);
  }
  const Value loss = weighted_sum(built.graph, used);
  built.graph.add_output("loss", loss.id());
  setup.forward = built.graph;
  passes::expand(setup.forward);
  setup.backward = std::move(built.graph);
  add_gradients(setup.backward, setup.keys);
  return setup;
}

// The gradient of each f64 operand; zeros where the loss does not reach one.
inline TensorMap gradients(const GradSetup& setup) {
  const TensorMap outputs = expand_and_interpret(setup.backward, setup.feeds);
  TensorMap grads;
  for (const std::string& key : setup.keys) {
    const auto found = outputs.find("grad:" + key);
    const TensorType type = setup.feeds.at(key).type();
    grads[key] = found == outputs.end() ? Tensor(type) : found->second;
    EXPECT_EQ(grads[key].type(), type) << "gradient of operand " << key;
  }
  return grads;
}

// REQUIRES: the case is at f64, and at least one output is used.
inline void check_gradient(const OpCase& c, const std::set<size_t>& used) {
  GradSetup setup = grad_setup(c, used);
  const TensorMap grads = gradients(setup);
  const auto loss = [&] { return interpret(setup.forward, setup.feeds).at("loss").item(); };
  for (const std::string& key : setup.keys) {
    Tensor& x = setup.feeds.at(key);
    const int64_t stride = std::max<int64_t>(1, x.elements() / kMostElements);
    for (int64_t i = 0; i < x.elements(); i += stride) {
      double& element = x.as<double>()[i];
      const double at = element, h = kStep * std::max(1.0, std::fabs(at));
      element = at + h;
      const double above = loss();
      element = at - h;
      const double below = loss();
      element = at;
      const double numeric = (above - below) / (2 * h);
      ASSERT_NEAR(grads.at(key).at(i), numeric, kGradTolerance * std::max(1.0, std::fabs(numeric)))
          << c.text() << ": gradient of operand " << key << ", element " << i;
    }
  }
}

// The cases of an op whose gradient the tests may check: f64, smooth, with a float result.
inline std::vector<OpCase> smooth_cases(const ir::OpDef& def) {
  std::vector<OpCase> cases;
  if (!runs_in(def, f64)) return cases;
  for (const OpCase& c : cases_of(def)) {
    if (c.dtype == f64 && c.sample.check_grad && !used_outputs(c).empty()) cases.push_back(c);
  }
  return cases;
}

}  // namespace aicf::test
