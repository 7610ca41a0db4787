// An optimizer's update, run step by step in tests: gradients are inputs, the emitted graph is evaluated op by op with
// the scalar instances of ops/pointwise.inc, and its updates are assigned all at once. No backend, no plan.
#pragma once

#include <fmt/format.h>

#include <map>
#include <stdexcept>
#include <string>
#include <vector>

#include "aicf/optim.h"
#include "aicf/tensor.h"
#include "ir/graph.h"
#include "ir/init.h"
#include "ir/op.h"
#include "ops/pointwise_scalar.h"
#include "optim/optimizer.h"

namespace aicf::optim {

struct TestParam {
  std::string name;
  TensorType type;
  std::string group;
};

class TestStep {
 public:
  TestStep(const Optimizer& optimizer, const std::vector<TestParam>& params) {
    std::vector<Trained> trained;
    for (const TestParam& p : params) {
      ir::Attrs attrs;
      if (!p.group.empty()) attrs.set("group", p.group);
      const Value param = graph.handle(graph.add_external(ir::Role::param, p.name, p.type, attrs));
      const Value grad = graph.handle(graph.add_external(ir::Role::input, p.name + ".grad", p.type));
      trained.push_back({param, grad});
    }
    optimizer.impl()->emit(graph, trained);
    for (const ir::ValueInfo& v : graph.values()) {
      if (v.role == ir::Role::tmp || v.role == ir::Role::constant) continue;
      values_.emplace(v.name, ir::initial_value(v.name, v.type, v.attrs.get_string("init"), 0));
    }
  }

  bool has(const std::string& name) const { return values_.count(name) != 0; }
  double get(const std::string& name, int64_t i = 0) const { return values_.at(name).at(i); }
  void set(const std::string& name, double value, int64_t i = 0) {
    Tensor& t = values_.at(name);
    set_element(t.dtype(), t.data(), i, value);
  }

  void step() {
    std::vector<Tensor> all;
    for (const ir::ValueInfo& v : graph.values()) {
      if (v.role == ir::Role::constant) {
        all.push_back(*v.data);
      } else {
        all.push_back(v.role == ir::Role::tmp ? Tensor(v.type) : values_.at(v.name));
      }
    }
    for (const ir::Op& op : graph.ops()) evaluate(op, all);
    for (const ir::Update& u : graph.updates()) values_.at(graph.value(u.target).name) = all[u.value];
  }

  ir::Graph graph;

 private:
  template <class V>
  static double pointwise(const std::string& op, V a, V b) {
    namespace pw = ops::pointwise;
    if (op == "add") return a + b;
    if (op == "sub") return a - b;
    if (op == "mul") return a * b;
    if (op == "div") return a / b;
    if (op == "neg") return -a;
    if (op == "sqrt") return pw::op_sqrt(a);
    if (op == "exp") return pw::op_exp(a);
    if (op == "expm1") return pw::op_expm1(a);
    if (op == "log") return pw::op_log(a);
    if (op == "cos") return pw::op_cos(a);
    if (op == "minimum") return pw::op_minimum(a, b);
    if (op == "maximum") return pw::op_maximum(a, b);
    if (op == "less") return a < b;
    if (op == "equal") return a == b;
    throw std::logic_error("the test evaluator lacks " + op);
  }

  void evaluate(const ir::Op& op, std::vector<Tensor>& all) {
    Tensor& out = all[op.outputs[0]];
    const std::string name = op.def->name;
    const auto in = [&](size_t k, int64_t i) {
      const Tensor& t = all[op.inputs[k]];
      return t.at(t.elements() == 1 ? 0 : i);
    };
    for (int64_t i = 0; i < out.elements(); ++i) {
      double value = 0;
      if (name == "select") {
        value = in(0, i) != 0 ? in(1, i) : in(2, i);
      } else if (name == "cast") {
        value = in(0, i);
      } else if (name == "gather") {
        value = all[op.inputs[0]].at(static_cast<int64_t>(in(1, i)));
      } else if (all[op.inputs[0]].dtype() == f32) {
        const double b = op.inputs.size() > 1 ? in(1, i) : 0;
        value = pointwise(name, static_cast<float>(in(0, i)), static_cast<float>(b));
      } else {
        // Exact for i32 too: the counters stay far below 2^53.
        value = pointwise(name, in(0, i), op.inputs.size() > 1 ? in(1, i) : 0);
      }
      set_element(out.dtype(), out.data(), i, value);
    }
  }

  std::map<std::string, Tensor> values_;
};

}  // namespace aicf::optim
