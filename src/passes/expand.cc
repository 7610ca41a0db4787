// expand: replaces composites by primitives. Runs after differentiation, so that a composite's own gradient rule is
// used.
#include "aicf/error.h"
#include "ir/op.h"
#include "ir/rewriter.h"
#include "ops/defs.h"
#include "passes/pass.h"

namespace aicf::passes {
namespace {

// An expansion may contain composites: repeated until none is left to expand.
bool expand_where(ir::Graph& graph, bool (*wanted)(const ir::OpDef&)) {
  bool changed = false;
  for (int depth = 0;; ++depth) {
    bool found = false;
    for (const ir::Op& op : graph.ops()) found |= wanted(*op.def);
    if (!found) return changed;
    if (depth > 32) throw InternalError("expand: composites expand into themselves");
    changed = true;
    ir::Rewriter rewriter(graph);
    for (ir::OpId id = 0; id < graph.num_ops(); ++id) {
      const ir::Op& op = graph.op(id);
      if (!wanted(*op.def)) {
        rewriter.copy(id);
        continue;
      }
      ir::ExpandCtx ctx{rewriter.target(), op, {}};
      for (ir::ValueId v : op.inputs) ctx.in.push_back(rewriter.target().handle(rewriter.map(v)));
      const std::vector<Value> results = op.def->expand(ctx);
      if (results.size() != op.outputs.size()) throw InternalError(std::string("expand: results of ") + op.def->name);
      for (size_t i = 0; i < results.size(); ++i) {
        if (results[i].type() != graph.type(op.outputs[i])) {
          throw InternalError(std::string("expand: ") + op.def->name + " expands to " + to_string(results[i].type()) +
                              ", its record says " + to_string(graph.type(op.outputs[i])));
        }
        rewriter.replace(op.outputs[i], results[i].id());
      }
    }
    graph = rewriter.finish();
  }
}

}  // namespace

bool expand(ir::Graph& graph) {
  return expand_where(graph, [](const ir::OpDef& def) { return def.is(ir::kComposite); });
}

bool expand_values(ir::Graph& graph) {
  return expand_where(graph, [](const ir::OpDef& def) { return def.is(ir::kComposite) && &def != &ops::after_def; });
}

bool expand_undifferentiable(ir::Graph& graph) {
  return expand_where(graph, [](const ir::OpDef& def) { return def.is(ir::kComposite) && def.grad == nullptr; });
}

}  // namespace aicf::passes
