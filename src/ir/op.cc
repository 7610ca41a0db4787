#include "ir/op.h"

#include "aicf/error.h"

namespace aicf::ir {

GradResult not_differentiable(const GradCtx& ctx) {
  throw Error(std::string(ctx.op.def->name) + " is not differentiable");
}

GradResult zero_gradient(const GradCtx& ctx) { return GradResult(ctx.in.size()); }

Value GradCtx::cotangent(int i) const {
  if (cotangents[i]) return *cotangents[i];
  const TensorType type = out[i].type();
  const ValueId zero = graph.add_constant(Tensor(TensorType{type.dtype, {}}));
  if (type.shape.rank() == 0) return graph.handle(zero);
  const auto dims = type.shape.dims();
  const OpId op =
      graph.add_op(*find_op("broadcast"), {zero}, {{"shape", std::vector<int64_t>(dims.begin(), dims.end())}});
  return graph.handle(graph.op(op).outputs[0]);
}

std::vector<AliasRule> alias_rules(const Op& op) {
  return op.def->alias_of != nullptr ? op.def->alias_of(op) : op.def->alias;
}

Cost cost_of(const Graph& graph, const Op& op) {
  std::vector<TensorType> in, out;
  for (ValueId v : op.inputs) in.push_back(graph.type(v));
  for (ValueId v : op.outputs) out.push_back(graph.type(v));
  if (op.def->cost != nullptr) return op.def->cost(in, out, op.attrs);
  Cost cost;
  for (const TensorType& t : in) cost.bytes += static_cast<double>(t.bytes());
  for (const TensorType& t : out) {
    cost.bytes += static_cast<double>(t.bytes());
    if (op.def->is(kPointwise)) cost.flops += static_cast<double>(t.shape.elements());
  }
  // A body's values are in no memory.
  if (op.region != nullptr && !op.def->is(kComposite)) {
    for (const Op& inner : op.region->ops()) cost.flops += cost_of(*op.region, inner).flops;
  }
  return cost;
}

std::string call_text(const OpDef& def, std::span<const TensorType> in) {
  std::string text = std::string(def.name) + "(";
  for (size_t i = 0; i < in.size(); ++i) text += (i ? ", " : "") + to_string(in[i]);
  return text + ")";
}

std::vector<Value> emit_all(const OpDef& def, const std::vector<Value>& inputs, Attrs attrs,
                            std::shared_ptr<const Graph> region) {
  if (inputs.empty()) throw Error(std::string(def.name) + ": no operands");
  Graph* graph = inputs[0].graph();
  std::vector<ValueId> ids;
  for (const Value& v : inputs) {
    if (!v.valid()) throw Error(std::string(def.name) + ": an operand is an empty Value");
    if (v.graph() != graph) throw Error(std::string(def.name) + ": operands of different models");
    ids.push_back(v.id());
  }
  const OpId op = graph->add_op(def, std::move(ids), std::move(attrs), std::move(region));
  std::vector<Value> results;
  for (ValueId id : graph->op(op).outputs) results.push_back(graph->handle(id));
  return results;
}

Value emit(const OpDef& def, const std::vector<Value>& inputs, Attrs attrs, std::shared_ptr<const Graph> region) {
  return emit_all(def, inputs, std::move(attrs), std::move(region))[0];
}

}  // namespace aicf::ir
