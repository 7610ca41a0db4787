// derive: a step that updates an external also updates the states derived from it, from the new values.
#include <map>

#include "aicf/ops.h"
#include "ir/op.h"
#include "passes/pass.h"

namespace aicf::passes {
namespace {

// Re-emits an expression over externals with each updated external read as its next value.
class NextValues {
 public:
  explicit NextValues(ir::Graph& graph) : graph_(graph) {}

  // The value of `v` after the step; `v` itself when nothing it depends on is updated.
  ir::ValueId next(ir::ValueId v) {
    if (const auto it = memo_.find(v); it != memo_.end()) return it->second;
    const ir::ValueId result = compute(v);
    memo_[v] = result;
    return result;
  }

 private:
  ir::ValueId compute(ir::ValueId v) {
    if (graph_.is_external(v)) {
      const int u = graph_.find_update(v);
      if (u < 0) return v;
      const ir::Update update = graph_.updates()[static_cast<size_t>(u)];
      if (update.guard == ir::kNoValue) return update.value;
      return select(graph_.handle(update.guard), graph_.handle(update.value), graph_.handle(v)).id();
    }
    const ir::OpId producer = graph_.value(v).producer;
    if (producer == ir::kNoOp) return v;
    const ir::Op op = graph_.op(producer);
    std::vector<ir::ValueId> inputs;
    for (ir::ValueId in : op.inputs) inputs.push_back(next(in));
    if (inputs == op.inputs) return v;
    const ir::OpId copy = graph_.add_op(*op.def, std::move(inputs), op.attrs, op.region);
    return graph_.op(copy).outputs[static_cast<size_t>(graph_.value(v).result)];
  }

  ir::Graph& graph_;
  std::map<ir::ValueId, ir::ValueId> memo_;
};

}  // namespace

ir::ValueId next_value(ir::Graph& graph, ir::ValueId value) { return NextValues(graph).next(value); }

bool derive(ir::Graph& graph) {
  bool changed = false;
  // In order of declaration: a state derived from a derived state sees the update just added.
  const std::vector<ir::Derivation> derivations(graph.derivations().begin(), graph.derivations().end());
  for (const ir::Derivation& d : derivations) {
    if (graph.find_update(d.state) >= 0) continue;
    const ir::ValueId next = next_value(graph, d.value);
    if (next == d.value) continue;
    graph.set_label(next, graph.value(d.state).name + ".next");
    graph.add_update(d.state, next);
    changed = true;
  }
  return changed;
}

}  // namespace aicf::passes
