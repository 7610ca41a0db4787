// What the planner's files share while a plan is made: the steps to run, and the storage of everything they write.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "ir/op.h"
#include "plan/plan.h"

namespace aicf::plan {

using CellId = int32_t;
using StepId = int32_t;
inline constexpr CellId kNoCell = -1;
inline constexpr StepId kNoStep = -1;

// Something that needs bytes: a value that is no view (its cell id is its value id), the saved old value of an
// external, or the fetched copy of an output.
struct Cell {
  enum class Kind : uint8_t { external, constant, result, saved, fetched } kind = Kind::result;
  ir::ValueId value = ir::kNoValue;  // itself, or the value copied here
  StepId producer = kNoStep;         // of a result, saved or fetched cell
  std::vector<StepId> readers;       // operands, copies and guards; of an external: of its old value
  std::vector<int> updates;          // those whose value this is
  std::vector<int> outputs;          // those whose value this is
  bool guards = false;               // some update is guarded by this
  StepId writer = kNoStep;           // of an external: the step that gives it its new value
  StepId overwriter = kNoStep;       // of a result: the op that takes its storage
  CellId parent = kNoCell;           // union-find of storage
};

struct Step {
  LaunchKind kind = LaunchKind::kernel;
  ir::OpId op = ir::kNoOp;
  std::string name;
  std::vector<CellId> reads;
  std::vector<CellId> writes;
  CellId guard = kNoCell;
  bool dropped = false;        // an update's copy, when the value is computed in place
  std::vector<StepId> before;  // steps that must run earlier
  std::vector<StepId> after;   // the reverse
};

using Constraint = std::pair<StepId, StepId>;  // first runs before second

class Draft {
 public:
  Draft(const ir::Graph& g, const Options& o, std::vector<char> guardable_ops)
      : graph(g), options(o), guardable(std::move(guardable_ops)) {
    for (const ir::Op& op : g.ops()) alias_rules_.push_back(ir::alias_rules(op));
  }

  const ir::Graph& graph;
  const Options& options;
  const std::vector<char> guardable;  // by op: its kernel can be skipped on the device
  std::vector<ir::ValueId> root;      // by value: the value whose bytes it is, found through views
  std::vector<Cell> cells;
  std::vector<Step> steps;
  std::vector<StepId> copy_of_update;  // kNoStep when there is nothing to do
  std::vector<CellId> cell_of_output;
  std::vector<StepId> order;
  std::vector<AliasDecision> decisions;

  bool is_view(const ir::Op& op) const;  // an op whose result shares its operand's storage
  CellId storage(CellId cell) const;
  // `cell` takes the storage of `owner`.
  void share(CellId cell, CellId owner) { cells[storage(cell)].parent = storage(owner); }
  std::string name(ir::ValueId value) const { return ir::value_name(graph, value); }
  void decide(ir::ValueId value, ir::ValueId target, const std::string& refusal) {
    decisions.push_back({value, target, refusal.empty(), refusal});
  }
  // The alias rules of the step's op.
  const std::vector<ir::AliasRule>& rules(StepId step) const {
    return alias_rules_[static_cast<size_t>(steps[step].op)];
  }
  // Steps still to be run that read the cell.
  std::vector<StepId> live_readers(CellId cell) const;

 private:
  std::vector<std::vector<ir::AliasRule>> alias_rules_;  // by op
};

// order.cc
void add_steps(Draft& draft);
void add_fetches(Draft& draft);
void sort_steps(Draft& draft);
// Adds the constraints, or leaves the draft as it was and returns false when they would make a cycle. Each must enter
// or leave a step reachable from `start`.
bool constrain(Draft& draft, const std::vector<Constraint>& constraints, StepId start);
// True when `to` must run after `from`.
bool follows(const Draft& draft, StepId from, StepId to);

// alias.cc, in the order they run
void find_views(Draft& draft);
void place_updates(Draft& draft);
void place_required(Draft& draft);
void place_results(Draft& draft);  // needs the order

// arena.cc: offsets and totals of a plan whose launches and buffers are complete
void place_arena(ExecPlan& plan, const Options& options);
// edges.cc: the dependency edges of a plan whose offsets are final
void add_edges(ExecPlan& plan);

}  // namespace aicf::plan
