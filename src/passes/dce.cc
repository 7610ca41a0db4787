// dce: drops ops that no output and no update needs. Updates are effects: they are roots, whoever reads their target.
#include <algorithm>

#include "ir/op.h"
#include "ir/rewriter.h"
#include "passes/pass.h"

namespace aicf::passes {

std::vector<char> live_ops(const ir::Graph& graph) {
  std::vector<char> live(static_cast<size_t>(graph.num_values()), 0);
  for (const ir::Output& o : graph.outputs()) live[o.value] = 1;
  for (const ir::Update& u : graph.updates()) {
    live[u.value] = 1;
    if (u.guard != ir::kNoValue) live[u.guard] = 1;
  }
  std::vector<char> keep(static_cast<size_t>(graph.num_ops()), 0);
  for (ir::OpId id = graph.num_ops() - 1; id >= 0; --id) {
    const ir::Op& op = graph.op(id);
    for (ir::ValueId v : op.outputs) keep[id] |= live[v];
    if (!keep[id]) continue;
    for (ir::ValueId v : op.inputs) live[v] = 1;
  }
  return keep;
}

bool dce(ir::Graph& graph) {
  const std::vector<char> keep = live_ops(graph);
  if (std::find(keep.begin(), keep.end(), 0) == keep.end()) return false;
  ir::Rewriter rewriter(graph);
  for (ir::OpId id = 0; id < graph.num_ops(); ++id) {
    if (keep[id]) rewriter.copy(id);
  }
  graph = rewriter.finish();
  return true;
}

}  // namespace aicf::passes
