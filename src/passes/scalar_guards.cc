// scalar_guards: a guarded update of one element becomes an unguarded one that selects between the new value and the
// old. A guard skips a launch as a whole, so it would keep counters and rates out of launches that do other things too.
#include "aicf/ops.h"
#include "ir/rewriter.h"
#include "passes/pass.h"

namespace aicf::passes {

bool scalar_guards(ir::Graph& graph) {
  const auto applies = [&](const ir::Update& u) {
    return u.guard != ir::kNoValue && u.guard != u.target && graph.type(u.target).shape.elements() == 1;
  };
  bool any = false;
  for (const ir::Update& u : graph.updates()) any = any || applies(u);
  if (!any) return false;
  ir::Rewriter rewriter(graph);
  for (ir::OpId op = 0; op < graph.num_ops(); ++op) rewriter.copy(op);
  ir::Graph result = rewriter.finish({.updates = false, .outputs = true});
  const std::vector<ir::ValueId>& now = rewriter.mapping();
  for (const ir::Update& u : graph.updates()) {
    const ir::ValueId target = now[u.target], value = now[u.value];
    if (!applies(u)) {
      result.add_update(target, value, u.guard == ir::kNoValue ? ir::kNoValue : now[u.guard]);
      continue;
    }
    // The condition of a select has its own shape.
    const Value chosen = select(result.handle(now[u.guard]), result.handle(value), result.handle(target));
    result.add_update(target, chosen.id());
  }
  graph = std::move(result);
  return true;
}

}  // namespace aicf::passes
