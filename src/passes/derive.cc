// derive: a step that updates an external also updates the states derived from it, from the new values.
#include <map>

#include "aicf/ops.h"
#include "ir/op.h"
#include "passes/pass.h"

namespace aicf::passes {
namespace {

// Re-emits an expression over externals with each updated external read as its next value: where all of them have this
// guard, as the value when it holds, to be assigned under it too.
class NextValues {
 public:
  NextValues(ir::Graph& graph, ir::ValueId guard) : graph_(graph), guard_(guard) {}

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
      if (update.guard == ir::kNoValue || update.guard == guard_) return update.value;
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
  const ir::ValueId guard_;
  std::map<ir::ValueId, ir::ValueId> memo_;
};

// The guard that every update of what the expression depends on has; kNoValue where they differ.
ir::ValueId common_guard(const ir::Graph& graph, ir::ValueId value) {
  ir::ValueId guard = ir::kNoValue;
  bool first = true;
  for (ir::ValueId source : ir::externals_of(graph, value)) {
    const int u = graph.find_update(source);
    if (u < 0) continue;
    const ir::ValueId theirs = graph.updates()[static_cast<size_t>(u)].guard;
    if (!first && theirs != guard) return ir::kNoValue;
    guard = theirs;
    first = false;
  }
  return guard;
}

}  // namespace

ir::ValueId next_value(ir::Graph& graph, ir::ValueId value) { return NextValues(graph, ir::kNoValue).next(value); }

bool derive(ir::Graph& graph) {
  bool changed = false;
  // In order of declaration: a state derived from a derived state sees the update just added.
  const std::vector<ir::Derivation> derivations(graph.derivations().begin(), graph.derivations().end());
  for (const ir::Derivation& d : derivations) {
    if (graph.find_update(d.state) >= 0) continue;
    const ir::ValueId guard = common_guard(graph, d.value);
    const ir::ValueId next = NextValues(graph, guard).next(d.value);
    if (next == d.value) continue;
    graph.set_label(next, graph.value(d.state).name + ".next");
    graph.add_update(d.state, next, guard);
    changed = true;
  }
  return changed;
}

}  // namespace aicf::passes
