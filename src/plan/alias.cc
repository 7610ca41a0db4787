// Who shares storage with whom: views, updates computed in place, results written over an operand.
#include <algorithm>
#include <set>

#include "aicf/error.h"
#include "ir/op.h"
#include "plan/draft.h"

namespace aicf::plan {
namespace {

const ir::Op& op_of(const Draft& draft, StepId step) { return draft.graph.op(draft.steps[step].op); }

// "" when every read of `cell` by the step may be overwritten element by element by its result `out`.
std::string reads_only_in_place(const Draft& draft, StepId step, CellId cell, int out) {
  const ir::Op& op = op_of(draft, step);
  const std::vector<ir::AliasRule>& rules = draft.rules(step);
  const TensorType& type = draft.graph.type(op.outputs[out]);
  for (size_t i = 0; i < op.inputs.size(); ++i) {
    if (draft.root[op.inputs[i]] != cell) continue;
    const bool rule = std::any_of(rules.begin(), rules.end(),
                                  [&](const ir::AliasRule& r) { return r.out == out && r.in == static_cast<int>(i); });
    if (!rule) {
      return std::string(op.def->name) + " reads " + draft.name(op.inputs[i]) + " at other places than it writes " +
             draft.name(op.outputs[out]);
    }
    const TensorType& read = draft.graph.type(op.inputs[i]);
    if (read != type) {
      return draft.name(op.inputs[i]) + " is read as " + to_string(read) + ", " + draft.name(op.outputs[out]) + " is " +
             to_string(type);
    }
  }
  return {};
}

CellId guard_of(const Draft& draft, const ir::Update& update) {
  return update.guard == ir::kNoValue ? kNoCell : draft.root[update.guard];
}

// Why a result of the cone cannot be left unwritten when the guard is false; "" when it can.
std::string use_without_guard(const Draft& draft, CellId result, CellId guard) {
  const Cell& cell = draft.cells[result];
  const std::string with_false = " even when the guard " + draft.name(draft.cells[guard].value) + " is false";
  if (!cell.outputs.empty()) {
    return "the output \"" + draft.graph.outputs()[cell.outputs[0]].name + "\" needs " + draft.name(cell.value) +
           with_false;
  }
  if (cell.guards) return draft.name(cell.value) + " is a guard, needed" + with_false;
  for (int u : cell.updates) {
    const ir::Update& update = draft.graph.updates()[u];
    if (guard_of(draft, update) != guard) {
      return "the update of " + draft.name(update.target) + " needs " + draft.name(cell.value) + with_false;
    }
  }
  return {};
}

// An in-place update under a guard leaves the old value in place when the guard is false, so whoever reads the new
// value then would see the old one. Precisely: let the cone be the update's step and every op reached from its results.
// The update may be done in place iff every result of every op of the cone is used only by ops of the cone and by
// updates under this very guard. Then all the cone gets the guard: it is skipped as a whole, and nobody can tell,
// because what it would have written is read by skipped steps alone. Returns the reason against it, or "".
std::string guarded_cone(const Draft& draft, StepId start, CellId guard, std::vector<StepId>& cone) {
  std::set<StepId> seen{start};
  cone = {start};
  for (size_t next = 0; next < cone.size(); ++next) {
    const Step& step = draft.steps[cone[next]];
    if (step.guard != kNoCell && step.guard != guard) {
      return "\"" + step.name + "\" has the other guard " + draft.name(draft.cells[step.guard].value);
    }
    if (!draft.guardable[static_cast<size_t>(step.op)])
      return "\"" + step.name + "\" is a library call, which no guard skips";
    for (CellId c : step.writes) {
      if (c == guard) return "the guard " + draft.name(draft.cells[guard].value) + " is computed from it";
      if (std::string reason = use_without_guard(draft, c, guard); !reason.empty()) return reason;
      for (StepId reader : draft.cells[c].readers) {
        if (draft.steps[reader].kind == LaunchKind::kernel && seen.insert(reader).second) cone.push_back(reader);
      }
    }
  }
  return {};
}

// Why the constraints of an in-place write over `old` by `step` cannot be met.
std::string cycle_reason(const Draft& draft, StepId step, CellId old, CellId guard) {
  for (StepId reader : draft.live_readers(old)) {
    if (reader != step && follows(draft, step, reader)) {
      return "\"" + draft.steps[reader].name + "\" reads the old " + draft.name(draft.cells[old].value) +
             " and runs after the new value is known";
    }
  }
  if (guard == kNoCell) return "no order lets every reader of the old value go first";
  return "the guard " + draft.name(draft.cells[guard].value) + " is known too late, or changed too early";
}

// The record demands that the result `out` be written over `cell`.
bool demanded(const Draft& draft, StepId step, int out, CellId cell) {
  const ir::Op& op = op_of(draft, step);
  const std::vector<ir::AliasRule>& rules = draft.rules(step);
  return std::any_of(rules.begin(), rules.end(), [&](const ir::AliasRule& r) {
    return r.must && r.out == out && draft.root[op.inputs[r.in]] == cell;
  });
}

// "" unless a record demands other storage for the value than the update's target.
std::string demand_refusal(const Draft& draft, CellId value, ir::ValueId target) {
  auto refusal = [](const ir::Op& op, const std::string& what) {
    return std::string(op.def->name) + " must write " + what;
  };
  const StepId producer = draft.cells[value].producer;
  const ir::Op& op = op_of(draft, producer);
  for (const ir::AliasRule& rule : draft.rules(producer)) {
    const CellId operand = draft.root[op.inputs[rule.in]];
    if (rule.must && op.outputs[rule.out] == value && operand != target)
      return refusal(op, "it over " + draft.name(operand));
  }
  for (StepId reader : draft.live_readers(value)) {
    if (draft.steps[reader].kind != LaunchKind::kernel) continue;
    const ir::Op& next = op_of(draft, reader);
    for (const ir::AliasRule& rule : draft.rules(reader)) {
      if (rule.must && draft.root[next.inputs[rule.in]] == value) {
        return refusal(next, draft.name(next.outputs[rule.out]) + " over it");
      }
    }
  }
  return {};
}

// What forbids the update's value to be computed in the target's storage whatever the order; "" when nothing does.
std::string update_refusal(const Draft& draft, const ir::Update& update, CellId value, std::vector<StepId>& cone) {
  const Cell& cell = draft.cells[value];
  if (cell.kind == Cell::Kind::constant) return draft.name(value) + " is a constant";
  if (cell.kind == Cell::Kind::external)
    return "the value is the old " + draft.name(value) + ", which has its own storage";
  const int out = draft.graph.value(value).result;
  if (!draft.options.alias && !demanded(draft, cell.producer, out, update.target)) return "aliasing is off";
  if (std::string reason = demand_refusal(draft, value, update.target); !reason.empty()) return reason;
  if (cell.updates.size() > 1) return draft.name(value) + " is the value of several updates";
  if (std::string reason = reads_only_in_place(draft, cell.producer, update.target, out); !reason.empty())
    return reason;
  const CellId guard = guard_of(draft, update);
  cone.clear();
  if (guard == kNoCell) return {};
  if (guard == update.target) return draft.name(update.target) + " is its own guard";
  return guarded_cone(draft, cell.producer, guard, cone);
}

void place_update(Draft& draft, int index) {
  const ir::Update& update = draft.graph.updates()[index];
  const CellId value = draft.root[update.value];
  if (value == update.target) return;
  std::vector<StepId> cone;
  std::string reason = update_refusal(draft, update, value, cone);
  if (!reason.empty()) return draft.decide(update.value, update.target, reason);

  const StepId step = draft.cells[value].producer;
  const StepId copy = draft.copy_of_update[index];
  const CellId guard = guard_of(draft, update);
  std::vector<Constraint> constraints;
  for (StepId reader : draft.live_readers(update.target)) {
    if (reader != step && reader != copy) constraints.push_back({reader, step});
  }
  for (StepId skipped : cone) {
    const Cell& g = draft.cells[guard];
    if (g.writer == skipped) {
      return draft.decide(update.value, update.target,
                          "\"" + draft.steps[skipped].name + "\" would overwrite its guard");
    }
    if (draft.steps[skipped].guard == guard) continue;
    if (g.producer != kNoStep) constraints.push_back({g.producer, skipped});
    if (g.writer != kNoStep) constraints.push_back({skipped, g.writer});
  }
  draft.steps[copy].dropped = true;
  if (!constrain(draft, constraints, step)) {
    draft.steps[copy].dropped = false;
    return draft.decide(update.value, update.target, cycle_reason(draft, step, update.target, guard));
  }
  for (StepId skipped : cone) {
    if (draft.steps[skipped].guard == guard) continue;
    draft.steps[skipped].guard = guard;
    draft.cells[guard].readers.push_back(skipped);
  }
  draft.cells[update.target].writer = step;
  draft.share(value, update.target);
  draft.decide(update.value, update.target, {});
}

// What forbids the step's result `out` to take the storage of `cell` whatever the order; "" when nothing does.
std::string operand_refusal(const Draft& draft, StepId step, int out, CellId cell) {
  const Cell& operand = draft.cells[cell];
  const std::string name = draft.name(operand.value);
  if (operand.kind == Cell::Kind::constant) return name + " is a constant";
  if (operand.kind == Cell::Kind::external) {
    return name + " is " + (draft.graph.value(cell).role == ir::Role::input ? "an input" : "kept from step to step");
  }
  const Cell& home = draft.cells[draft.storage(cell)];
  if (home.kind == Cell::Kind::external) return name + " is the new " + draft.name(home.value);
  if (!operand.outputs.empty()) {
    return name + " is the output \"" + draft.graph.outputs()[operand.outputs[0]].name + "\"";
  }
  if (operand.overwriter != kNoStep) return "\"" + draft.steps[operand.overwriter].name + "\" takes its storage";
  if (draft.steps[step].guard == cell) return name + " is the guard of the op itself";
  return reads_only_in_place(draft, step, cell, out);
}

}  // namespace

void find_views(Draft& draft) {
  const ir::Graph& graph = draft.graph;
  for (ir::ValueId v = 0; v < graph.num_values(); ++v) {
    draft.root.push_back(v);
    const ir::OpId producer = graph.value(v).producer;
    if (producer == ir::kNoOp || !draft.is_view(graph.op(producer))) continue;
    const ir::ValueId base = graph.op(producer).inputs[0];
    if (graph.type(base).bytes() != graph.type(v).bytes()) {
      throw InternalError("plan: the view " + draft.name(v) + " of " + draft.name(base) + " has another size");
    }
    draft.root.back() = draft.root[base];
    draft.decide(v, base, {});
  }
}

// Those that a record demands go first, so that no other choice can stand in their way.
void place_updates(Draft& draft) {
  std::vector<int> others;
  for (int u = 0; u < static_cast<int>(draft.graph.updates().size()); ++u) {
    const ir::Update& update = draft.graph.updates()[u];
    const CellId value = draft.root[update.value];
    const Cell& cell = draft.cells[value];
    const bool first = cell.kind == Cell::Kind::result &&
                       demanded(draft, cell.producer, draft.graph.value(value).result, update.target);
    if (first) {
      place_update(draft, u);
    } else {
      others.push_back(u);
    }
  }
  for (int u : others) place_update(draft, u);
}

void place_required(Draft& draft) {
  for (StepId s = 0; s < static_cast<StepId>(draft.steps.size()); ++s) {
    if (draft.steps[s].kind != LaunchKind::kernel) continue;
    const ir::Op& op = op_of(draft, s);
    if (op.def->is(ir::kView)) continue;
    for (const ir::AliasRule& rule : draft.rules(s)) {
      if (!rule.must) continue;
      const ir::ValueId result = op.outputs[rule.out], operand = op.inputs[rule.in];
      const CellId cell = draft.root[operand];
      if (draft.storage(result) == draft.storage(cell)) continue;
      std::string reason = draft.storage(result) != result ? draft.name(result) + " has the storage of " +
                                                                 draft.name(draft.cells[draft.storage(result)].value)
                                                           : operand_refusal(draft, s, rule.out, cell);
      if (reason.empty()) {
        std::vector<Constraint> constraints;
        for (StepId reader : draft.live_readers(cell)) {
          if (reader != s) constraints.push_back({reader, s});
        }
        if (!constrain(draft, constraints, s)) reason = cycle_reason(draft, s, cell, kNoCell);
      }
      if (!reason.empty()) {
        throw InternalError("plan: " + std::string(op.def->name) + " must write " + draft.name(result) +
                            " over its operand " + draft.name(operand) + ", but " + reason);
      }
      draft.cells[cell].overwriter = s;
      draft.share(result, cell);
      draft.decide(result, operand, {});
    }
  }
}

void place_results(Draft& draft) {
  std::vector<size_t> position(draft.steps.size(), 0);
  for (size_t i = 0; i < draft.order.size(); ++i) position[draft.order[i]] = i;
  for (StepId s : draft.order) {
    if (draft.steps[s].kind != LaunchKind::kernel || op_of(draft, s).def->is(ir::kView)) continue;
    const ir::Op& op = op_of(draft, s);
    for (const ir::AliasRule& rule : draft.rules(s)) {
      const ir::ValueId result = op.outputs[rule.out], operand = op.inputs[rule.in];
      if (draft.storage(result) != result) continue;
      const CellId cell = draft.root[operand];
      std::string reason = operand_refusal(draft, s, rule.out, cell);
      for (StepId reader : draft.live_readers(cell)) {
        if (!reason.empty()) break;
        if (position[reader] > position[s]) reason = "\"" + draft.steps[reader].name + "\" reads it later";
        if (draft.options.concurrent && reader != s && reason.empty() && !follows(draft, reader, s)) {
          reason = "\"" + draft.steps[reader].name + "\" reads it, and need not wait";
        }
      }
      draft.decide(result, operand, reason);
      if (!reason.empty()) continue;
      draft.cells[cell].overwriter = s;
      draft.share(result, cell);
    }
  }
}

}  // namespace aicf::plan
