// Copies a region op by op, its inputs replaced by values of the graph it goes into.
#include "ops/inline_region.h"

#include "aicf/error.h"
#include "ir/op.h"

namespace aicf::ops {

std::vector<Value> inline_region(const ir::Graph& region, ir::Graph& graph, const std::vector<Value>& inputs) {
  std::vector<ir::ValueId> map(static_cast<size_t>(region.num_values()), ir::kNoValue);
  size_t next = 0;
  for (ir::ValueId v = 0; v < region.num_values(); ++v) {
    const ir::ValueInfo& info = region.value(v);
    if (info.role == ir::Role::constant) {
      map[static_cast<size_t>(v)] = graph.add_constant(info.data);
    } else if (info.role != ir::Role::tmp) {
      if (next == inputs.size() || inputs[next].type() != info.type) {
        throw InternalError("inline_region: no operand for %" + info.name);
      }
      map[static_cast<size_t>(v)] = inputs[next++].id();
    }
  }
  if (next != inputs.size()) throw InternalError("inline_region: more operands than inputs");
  for (const ir::Op& op : region.ops()) {
    std::vector<ir::ValueId> operands;
    for (ir::ValueId v : op.inputs) operands.push_back(map[static_cast<size_t>(v)]);
    const ir::OpId copy = graph.add_op(*op.def, std::move(operands), op.attrs, op.region);
    for (size_t i = 0; i < op.outputs.size(); ++i) {
      map[static_cast<size_t>(op.outputs[i])] = graph.op(copy).outputs[i];
    }
  }
  std::vector<Value> results;
  for (const ir::Output& o : region.outputs()) results.push_back(graph.handle(map[static_cast<size_t>(o.value)]));
  return results;
}

}  // namespace aicf::ops
