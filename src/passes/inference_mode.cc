// inference_mode: ops that are something else in a program that does not train. Runs on the forward graph.
#include <algorithm>

#include "ir/op.h"
#include "ir/rewriter.h"
#include "passes/pass.h"

namespace aicf::passes {

bool inference_mode(ir::Graph& graph) {
  const auto differs = [](const ir::Op& op) { return op.def->inference != nullptr; };
  if (std::none_of(graph.ops().begin(), graph.ops().end(), differs)) return false;
  ir::Rewriter rewriter(graph);
  for (ir::OpId id = 0; id < graph.num_ops(); ++id) {
    const ir::Op& op = graph.op(id);
    if (!differs(op)) {
      rewriter.copy(id);
      continue;
    }
    ir::ExpandCtx ctx{rewriter.target(), op, {}};
    for (ir::ValueId v : op.inputs) ctx.in.push_back(rewriter.target().handle(rewriter.map(v)));
    const std::vector<Value> results = op.def->inference(ctx);
    for (size_t i = 0; i < results.size(); ++i) rewriter.replace(op.outputs[i], results[i].id());
  }
  graph = rewriter.finish();
  return true;
}

}  // namespace aicf::passes
