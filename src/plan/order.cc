// The steps of a plan, what must run before what, and the order.
#include <algorithm>
#include <map>

#include "aicf/error.h"
#include "ir/op.h"
#include "plan/draft.h"

namespace aicf::plan {
namespace {

void link(Draft& draft, StepId from, StepId to) {
  draft.steps[from].after.push_back(to);
  draft.steps[to].before.push_back(from);
}

// Registers the step as reader of what it reads and orders it after the producers.
StepId append(Draft& draft, Step step) {
  const auto id = static_cast<StepId>(draft.steps.size());
  draft.steps.push_back(std::move(step));
  std::vector<CellId> reads = draft.steps[id].reads;
  if (draft.steps[id].guard != kNoCell) reads.push_back(draft.steps[id].guard);
  for (CellId c : reads) {
    draft.cells[c].readers.push_back(id);
    if (draft.cells[c].producer != kNoStep) link(draft, draft.cells[c].producer, id);
  }
  for (CellId c : draft.steps[id].writes) {
    if (draft.cells[c].kind != Cell::Kind::external) draft.cells[c].producer = id;
  }
  return id;
}

CellId add_cell(Draft& draft, Cell::Kind kind, ir::ValueId value) {
  Cell cell;
  cell.kind = kind;
  cell.value = value;
  cell.parent = static_cast<CellId>(draft.cells.size());
  draft.cells.push_back(std::move(cell));
  return draft.cells.back().parent;
}

void add_cells(Draft& draft) {
  const ir::Graph& graph = draft.graph;
  for (ir::ValueId v = 0; v < graph.num_values(); ++v) {
    const bool constant = graph.value(v).role == ir::Role::constant;
    add_cell(draft,
             constant               ? Cell::Kind::constant
             : graph.is_external(v) ? Cell::Kind::external
                                    : Cell::Kind::result,
             v);
  }
  for (size_t u = 0; u < graph.updates().size(); ++u) {
    const ir::Update& update = graph.updates()[u];
    draft.cells[draft.root[update.value]].updates.push_back(static_cast<int>(u));
    if (update.guard != ir::kNoValue) draft.cells[draft.root[update.guard]].guards = true;
  }
  for (size_t i = 0; i < graph.outputs().size(); ++i) {
    draft.cells[draft.root[graph.outputs()[i].value]].outputs.push_back(static_cast<int>(i));
  }
}

void add_ops(Draft& draft) {
  const ir::Graph& graph = draft.graph;
  for (ir::OpId i = 0; i < graph.num_ops(); ++i) {
    const ir::Op& op = graph.op(i);
    if (draft.is_view(op)) continue;
    Step step;
    step.op = i;
    step.name = op.def->name;
    if (!op.outputs.empty()) step.name += " " + draft.name(op.outputs[0]);
    for (ir::ValueId v : op.inputs) step.reads.push_back(draft.root[v]);
    step.writes.assign(op.outputs.begin(), op.outputs.end());
    append(draft, std::move(step));
  }
}

// An update's copy before it becomes a step.
struct Pending {
  int update = 0;
  CellId from = kNoCell;
  CellId to = kNoCell;
  CellId guard = kNoCell;
};

// The copies are one parallel assignment: one that reads an external must run before the one that writes it. Where that
// goes round in a circle (a swap), the old value is saved first and read from there.
void save_cycles(Draft& draft, std::vector<Pending>& copies) {
  std::map<CellId, std::vector<size_t>> waiting;  // external → copies that read it and have not been settled
  std::map<CellId, size_t> writer;
  for (size_t i = 0; i < copies.size(); ++i) writer[copies[i].to] = i;
  for (size_t i = 0; i < copies.size(); ++i) {
    for (CellId c : {copies[i].from, copies[i].guard}) {
      if (c != kNoCell && writer.count(c) != 0) waiting[c].push_back(i);
    }
  }
  std::vector<char> settled(copies.size(), 0);
  std::vector<size_t> ready;
  auto settle = [&](size_t i) {
    settled[i] = 1;
    for (CellId c : {copies[i].from, copies[i].guard}) {
      auto it = waiting.find(c);
      if (it == waiting.end()) continue;
      std::erase(it->second, i);
      if (!it->second.empty()) continue;
      waiting.erase(it);
      if (!settled[writer[c]]) ready.push_back(writer[c]);
    }
  };
  for (size_t i = 0; i < copies.size(); ++i) {
    if (waiting.count(copies[i].to) == 0) ready.push_back(i);
  }
  for (size_t next = 0;;) {
    while (!ready.empty()) {
      const size_t i = ready.back();
      ready.pop_back();
      if (!settled[i]) settle(i);
    }
    while (next < copies.size() && settled[next]) ++next;
    if (next == copies.size()) return;
    // Every copy left is part of a circle or behind one: walk into the circle, and save the value overwritten there.
    size_t in_circle = next;
    for (std::vector<char> seen(copies.size(), 0); !seen[in_circle];
         in_circle = waiting[copies[in_circle].to].front()) {
      seen[in_circle] = 1;
    }
    const CellId target = copies[in_circle].to;
    const CellId saved = add_cell(draft, Cell::Kind::saved, target);
    Step step;
    step.kind = LaunchKind::copy;
    step.name = "save " + draft.name(target);
    step.reads = {target};
    step.writes = {saved};
    append(draft, std::move(step));
    for (size_t i : waiting[target]) {
      if (copies[i].from == target) copies[i].from = saved;
      if (copies[i].guard == target) copies[i].guard = saved;
    }
    waiting.erase(target);
    settle(in_circle);
  }
}

void add_update_copies(Draft& draft) {
  const ir::Graph& graph = draft.graph;
  std::vector<Pending> copies;
  draft.copy_of_update.assign(graph.updates().size(), kNoStep);
  for (size_t u = 0; u < graph.updates().size(); ++u) {
    const ir::Update& update = graph.updates()[u];
    if (draft.root[update.value] == update.target) continue;
    copies.push_back({static_cast<int>(u), draft.root[update.value], update.target,
                      update.guard == ir::kNoValue ? kNoCell : draft.root[update.guard]});
  }
  save_cycles(draft, copies);
  for (const Pending& copy : copies) {
    Step step;
    step.kind = LaunchKind::copy;
    step.name = "update " + draft.name(copy.to);
    step.reads = {copy.from};
    step.writes = {copy.to};
    step.guard = copy.guard;
    draft.copy_of_update[copy.update] = append(draft, std::move(step));
    draft.cells[copy.to].writer = draft.copy_of_update[copy.update];
  }
  for (const Pending& copy : copies) {
    for (StepId reader : draft.cells[copy.to].readers) link(draft, reader, draft.cells[copy.to].writer);
  }
}

// Depth first from `start` along what must come after; true when a step is met that is still open.
bool has_cycle(const Draft& draft, StepId start) {
  enum : char { kNew, kOpen, kDone };
  std::map<StepId, char> state;
  std::vector<std::pair<StepId, size_t>> stack{{start, 0}};
  state[start] = kOpen;
  while (!stack.empty()) {
    auto& [step, next] = stack.back();
    const std::vector<StepId>& after = draft.steps[step].after;
    if (next == after.size()) {
      state[step] = kDone;
      stack.pop_back();
      continue;
    }
    const StepId to = after[next++];
    if (draft.steps[to].dropped) continue;
    char& seen = state[to];
    if (seen == kOpen) return true;
    if (seen == kNew) {
      seen = kOpen;
      stack.push_back({to, 0});
    }
  }
  return false;
}

}  // namespace

bool Draft::is_view(const ir::Op& op) const { return options.alias && op.def->is(ir::kView); }

CellId Draft::storage(CellId cell) const {
  while (cells[cell].parent != cell) cell = cells[cell].parent;
  return cell;
}

std::vector<StepId> Draft::live_readers(CellId cell) const {
  std::vector<StepId> result;
  for (StepId reader : cells[cell].readers) {
    if (!steps[reader].dropped) result.push_back(reader);
  }
  return result;
}

void add_steps(Draft& draft) {
  add_cells(draft);
  add_ops(draft);
  add_update_copies(draft);
}

bool constrain(Draft& draft, const std::vector<Constraint>& constraints, StepId start) {
  for (const auto& [from, to] : constraints) link(draft, from, to);
  if (!has_cycle(draft, start)) return true;
  for (auto it = constraints.rbegin(); it != constraints.rend(); ++it) {
    draft.steps[it->first].after.pop_back();
    draft.steps[it->second].before.pop_back();
  }
  return false;
}

bool follows(const Draft& draft, StepId from, StepId to) {
  std::vector<StepId> stack{from};
  std::vector<char> seen(draft.steps.size(), 0);
  while (!stack.empty()) {
    const StepId step = stack.back();
    stack.pop_back();
    if (step == to) return true;
    if (seen[step] || draft.steps[step].dropped) continue;
    seen[step] = 1;
    stack.insert(stack.end(), draft.steps[step].after.begin(), draft.steps[step].after.end());
  }
  return false;
}

// An output computed in storage that can be fetched needs no copy; one that is an external, a constant, or lives in an
// external, does: at the end of the step, or before the external is overwritten.
void add_fetches(Draft& draft) {
  std::map<CellId, CellId> copies;
  for (const ir::Output& output : draft.graph.outputs()) {
    const CellId from = draft.root[output.value];
    if (draft.cells[draft.storage(from)].kind == Cell::Kind::result) {
      draft.cell_of_output.push_back(from);
      continue;
    }
    auto [it, fresh] = copies.emplace(from, kNoCell);
    if (fresh) {
      it->second = add_cell(draft, Cell::Kind::fetched, from);
      Step step;
      step.kind = LaunchKind::copy;
      step.name = "fetch " + draft.name(from);
      step.reads = {from};
      step.writes = {it->second};
      const StepId id = append(draft, std::move(step));
      if (draft.cells[from].writer != kNoStep) link(draft, id, draft.cells[from].writer);
    }
    draft.cell_of_output.push_back(it->second);
  }
}

// The graph's order, except that a step pulls what must run before it to the front of itself.
void sort_steps(Draft& draft) {
  std::vector<char> done(draft.steps.size(), 0), open(draft.steps.size(), 0);
  std::vector<StepId> stack;
  for (size_t first = 0; first < draft.steps.size(); ++first) {
    stack.push_back(static_cast<StepId>(first));
    while (!stack.empty()) {
      const StepId step = stack.back();
      if (done[step] || draft.steps[step].dropped) {
        stack.pop_back();
        continue;
      }
      std::vector<StepId> missing;
      for (StepId b : draft.steps[step].before) {
        if (!done[b] && !draft.steps[b].dropped) missing.push_back(b);
      }
      if (missing.empty()) {
        done[step] = 1;
        draft.order.push_back(step);
        stack.pop_back();
        continue;
      }
      if (open[step]) throw InternalError("plan: \"" + draft.steps[step].name + "\" must run before itself");
      open[step] = 1;
      std::sort(missing.rbegin(), missing.rend());
      stack.insert(stack.end(), missing.begin(), missing.end());
    }
  }
}

}  // namespace aicf::plan
