#include "passes/peephole.h"

#include <utility>

#include "aicf/error.h"
#include "ops/defs.h"
#include "ops/structural.h"
#include "passes/pass.h"

namespace aicf::passes {

using ir::kNoOp;
using ir::kNoValue;
using ir::ValueId;

bool Peephole::run(ir::Graph& graph, Rules rules) {
  Peephole peephole(graph, rules);
  if (!peephole.sweep()) return false;
  graph = peephole.rewriter_.finish();
  dce(graph);
  return true;
}

bool Peephole::sweep() {
  bool changed = false;
  const ir::Graph& source = rewriter_.source();
  for (ir::OpId id = 0; id < source.num_ops(); ++id) {
    const ir::Op& op = source.op(id);
    ValueId value = kNoValue;
    if (op.outputs.size() == 1) {
      Node node{op.def, {}, op.attrs, op.region};
      for (ValueId v : op.inputs) node.in.push_back(rewriter_.map(v));
      value = rules_(*this, node);
    }
    if (value == kNoValue) {
      rewriter_.copy(id);
      continue;
    }
    if (type(value) != source.type(op.outputs[0])) {
      throw InternalError(std::string("a rule for ") + op.def->name + " gives " + to_string(type(value)) + " for " +
                          to_string(source.type(op.outputs[0])));
    }
    rewriter_.replace(op.outputs[0], value);
    changed = true;
  }
  return changed;
}

TensorType Peephole::result_type(const Node& node) {
  std::vector<TensorType> in;
  for (ValueId v : node.in) in.push_back(type(v));
  return node.def->infer({*node.def, in, node.attrs, node.region.get()})[0];
}

const ir::Op* Peephole::producer(ValueId v, const ir::OpDef& def) {
  const ir::OpId id = graph().value(v).producer;
  return id != kNoOp && graph().op(id).def == &def ? &graph().op(id) : nullptr;
}

const Tensor* Peephole::constant(ValueId v) {
  const ir::ValueInfo& info = graph().value(v);
  return info.role == ir::Role::constant ? info.data.get() : nullptr;
}

ValueId Peephole::emit(Node node) {
  if (const ValueId value = rules_(*this, node); value != kNoValue) return value;
  ir::Graph& target = rewriter_.target();
  return target.op(target.add_op(*node.def, std::move(node.in), std::move(node.attrs), std::move(node.region)))
      .outputs[0];
}

ValueId Peephole::reshaped(ValueId v, const Shape& shape) {
  if (type(v).shape == shape) return v;
  return emit({&ops::reshape_def, {v}, {{"shape", ops::to_vector(shape)}}});
}

ValueId Peephole::broadcast_to(ValueId v, const Shape& shape) {
  if (type(v).shape == shape) return v;
  return emit({&ops::broadcast_def, {v}, {{"shape", ops::to_vector(shape)}}});
}

}  // namespace aicf::passes
