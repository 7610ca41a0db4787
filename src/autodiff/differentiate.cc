// The reverse walk. Each value is expanded once, after all its consumers, with the sum of their contributions.
#include "autodiff/differentiate.h"

#include <algorithm>

#include "aicf/error.h"
#include "aicf/ops.h"
#include "ir/op.h"

namespace aicf::autodiff {
namespace {

using ir::Graph;
using ir::kNoOp;
using ir::kNoValue;
using ir::OpId;
using ir::ValueId;

// The value a value is computed from besides its producer's operands: a derived state stands for its expression.
ValueId derivation_of(const Graph& graph, ValueId v) {
  if (graph.value(v).role != ir::Role::state) return kNoValue;
  const ir::Derivation* d = graph.find_derivation(v);
  return d == nullptr ? kNoValue : d->value;
}

// What `v` is computed from, directly.
std::vector<ValueId> sources(const Graph& graph, ValueId v) {
  if (const ValueId d = derivation_of(graph, v); d != kNoValue) return {d};
  const OpId producer = graph.value(v).producer;
  return producer == kNoOp ? std::vector<ValueId>{} : graph.op(producer).inputs;
}

// Everything the loss is computed from, sources first.
std::vector<ValueId> cone_of(const Graph& graph, ValueId loss) {
  std::vector<ValueId> order;
  std::vector<char> state(static_cast<size_t>(graph.num_values()), 0);  // 0 new, 1 open, 2 done
  std::vector<ValueId> stack = {loss};
  while (!stack.empty()) {
    const ValueId v = stack.back();
    if (state[v] == 0) {
      state[v] = 1;
      for (ValueId s : sources(graph, v)) {
        if (state[s] == 0) stack.push_back(s);
      }
      continue;
    }
    stack.pop_back();
    if (state[v] == 1) order.push_back(v);
    state[v] = 2;
  }
  return order;
}

class Walk {
 public:
  Walk(Graph& graph, ValueId loss, const std::vector<ValueId>& wrt)
      : graph_(graph), loss_(loss), cone_(cone_of(graph, loss)) {
    const auto n = static_cast<size_t>(graph.num_values());
    needed_.assign(n, 0);
    parts_.resize(n);
    for (ValueId v : wrt) needed_[v] = 1;
    for (ValueId v : cone_) {
      if (needed_[v]) continue;
      for (ValueId s : sources(graph, v)) needed_[v] |= needed_[s];
    }
  }

  void run(ValueId cotangent) {
    parts_[loss_].push_back(cotangent);
    std::vector<char> done(static_cast<size_t>(graph_.num_ops()), 0);
    for (size_t i = cone_.size(); i-- > 0;) {
      const ValueId v = cone_[i];
      if (!needed_[v]) continue;
      if (const ValueId d = derivation_of(graph_, v); d != kNoValue) {
        if (const ValueId sum = total(v); sum != kNoValue) parts_[d].push_back(sum);
        continue;
      }
      // Of an op's results the one earliest in the cone comes last here: then all consumers have contributed.
      const OpId producer = graph_.value(v).producer;
      if (producer == kNoOp || done[producer] || !is_last_result(producer, i)) continue;
      done[producer] = 1;
      expand(producer);
    }
  }

  // The summed cotangent of a value, or kNoValue. Several of a 16-bit value are summed in f32 and rounded once.
  ValueId total(ValueId v) {
    std::vector<ValueId>& parts = parts_[v];
    if (parts.empty()) return kNoValue;
    if (parts.size() > 1) {
      const DType dtype = graph_.type(v).dtype, wide = dtype == bf16 || dtype == f16 ? f32 : dtype;
      Value sum = cast(graph_.handle(parts[0]), wide);
      for (size_t i = 1; i < parts.size(); ++i) sum = sum + cast(graph_.handle(parts[i]), wide);
      parts = {cast(sum, dtype).id()};
    }
    return parts[0];
  }

 private:
  bool is_last_result(OpId op, size_t place) {
    if (place_.empty()) {
      place_.assign(needed_.size(), cone_.size());
      for (size_t i = 0; i < cone_.size(); ++i) place_[cone_[i]] = i;
    }
    for (ValueId out : graph_.op(op).outputs) {
      if (place_[out] < place) return false;
    }
    return true;
  }

  void expand(OpId id) {
    const ir::Op op = graph_.op(id);
    ir::GradCtx ctx{graph_, op, {}, {}, {}};
    bool any = false;
    for (ValueId v : op.outputs) {
      ctx.out.push_back(graph_.handle(v));
      const ValueId sum = total(v);
      any |= sum != kNoValue;
      ctx.cotangents.push_back(sum == kNoValue ? std::nullopt : std::optional<Value>(graph_.handle(sum)));
    }
    if (!any) return;
    for (ValueId v : op.inputs) ctx.in.push_back(graph_.handle(v));
    if (op.def->grad == ir::not_differentiable) refuse(id);
    if (op.def->grad == nullptr) {
      throw InternalError(std::string("differentiate: ") + op.def->name + " has no gradient rule and was not expanded");
    }
    const ir::GradResult grads = op.def->grad(ctx);
    if (grads.size() != op.inputs.size()) {
      throw InternalError(std::string("differentiate: the rule of ") + op.def->name + " returned " +
                          std::to_string(grads.size()) + " gradients for " + std::to_string(op.inputs.size()) +
                          " operands");
    }
    for (size_t i = 0; i < grads.size(); ++i) {
      const ValueId operand = op.inputs[i];
      if (!grads[i] || !needed_[operand]) continue;
      if (grads[i]->type() != graph_.type(operand)) {
        throw InternalError(std::string("differentiate: the rule of ") + op.def->name + " gave " +
                            to_string(grads[i]->type()) + " for an operand " + to_string(graph_.type(operand)));
      }
      parts_[operand].push_back(grads[i]->id());
    }
  }

  // "%fc1.weight → %h → %y": one chain of values from something wanted to the op and on to the loss.
  [[noreturn]] void refuse(OpId id) {
    const ir::Op& op = graph_.op(id);
    std::vector<ValueId> path;
    for (ValueId v : op.inputs) {
      if (!needed_[v]) continue;
      for (ValueId at = v;;) {
        path.insert(path.begin(), at);
        const std::vector<ValueId> from = sources(graph_, at);
        const auto next = std::find_if(from.begin(), from.end(), [&](ValueId s) { return needed_[s] != 0; });
        if (next == from.end()) break;
        at = *next;
      }
      break;
    }
    append_path_to_loss(op.outputs, path);
    std::string text;
    for (ValueId v : path) text += (text.empty() ? "" : " → ") + ir::value_name(graph_, v);
    throw Error(
        std::string(op.def->name) + " is not differentiable, and the loss depends on a parameter through it: " + text,
        "cut the path with stop_gradient, or give a rule with with_gradient");
  }

  void append_path_to_loss(const std::vector<ValueId>& from, std::vector<ValueId>& path) {
    std::vector<ValueId> next(needed_.size(), kNoValue);  // towards the loss
    for (size_t i = cone_.size(); i-- > 0;) {
      const ValueId v = cone_[i];
      if (v != loss_ && next[v] == kNoValue) continue;
      for (ValueId s : sources(graph_, v)) next[s] = v;
    }
    for (ValueId v : from) {
      if (v != loss_ && next[v] == kNoValue) continue;
      for (ValueId at = v; at != kNoValue; at = at == loss_ ? kNoValue : next[at]) path.push_back(at);
      return;
    }
  }

  Graph& graph_;
  const ValueId loss_;
  const std::vector<ValueId> cone_;
  std::vector<char> needed_;                 // computed from something in `wrt`
  std::vector<std::vector<ValueId>> parts_;  // contributions to each value's cotangent
  std::vector<size_t> place_;                // index in cone_, cone_.size() outside
};

}  // namespace

std::vector<std::optional<ValueId>> differentiate(Graph& graph, ValueId loss, ValueId cotangent,
                                                  const std::vector<ValueId>& wrt) {
  if (graph.type(loss) != graph.type(cotangent)) {
    throw Error("differentiate: the cotangent of " + ir::value_name(graph, loss) + " has type " +
                to_string(graph.type(cotangent)) + ", expected " + to_string(graph.type(loss)));
  }
  if (!is_float(graph.type(loss).dtype)) {
    throw Error("differentiate: the loss " + ir::value_name(graph, loss) + " has type " + to_string(graph.type(loss)) +
                ", expected a float");
  }
  Walk walk(graph, loss, wrt);
  walk.run(cotangent);
  std::vector<std::optional<ValueId>> grads;
  for (ValueId v : wrt) {
    const ValueId grad = walk.total(v);
    if (grad == kNoValue) {
      grads.emplace_back();
      continue;
    }
    // One value may be the gradient of several (of both operands of an add): the first name stays.
    if (graph.is_external(v) && graph.value(grad).name.empty()) graph.set_label(grad, graph.value(v).name + ".grad");
    grads.emplace_back(grad);
  }
  return grads;
}

}  // namespace aicf::autodiff
