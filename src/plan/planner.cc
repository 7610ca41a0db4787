// make_plan: from the graph to launches, buffers and edges.
#include <algorithm>

#include "aicf/error.h"
#include "ir/op.h"
#include "plan/draft.h"

namespace aicf::plan {
namespace {

void check_ops(const ir::Graph& graph, size_t kernels) {
  if (kernels != static_cast<size_t>(graph.num_ops())) {
    throw InternalError("plan: " + std::to_string(graph.num_ops()) + " ops, " + std::to_string(kernels) + " kernels");
  }
  for (const ir::Op& op : graph.ops()) {
    if (op.def->is(ir::kComposite)) throw InternalError("plan: " + std::string(op.def->name) + " is not expanded");
  }
}

class Assembler {
 public:
  Assembler(const Draft& draft, std::vector<backend::PreparedKernel>& kernels) : draft_(draft), kernels_(kernels) {
    of_storage_.assign(draft.cells.size(), kNoBuffer);
  }

  ExecPlan run() {
    add_fixed();
    add_fetched();
    for (StepId step : draft_.order) add_launch(draft_.steps[step]);
    map_values();
    return std::move(plan_);
  }

 private:
  BufferId add_buffer(Home home, ir::ValueId owner, size_t bytes) {
    plan_.buffers.push_back({home, owner, bytes, 0});
    size_t* total = home == Home::external   ? &plan_.external_bytes
                    : home == Home::constant ? &plan_.constant_bytes
                    : home == Home::fetched  ? &plan_.fetched_bytes
                                             : nullptr;
    if (total != nullptr) *total += bytes;
    return static_cast<BufferId>(plan_.buffers.size()) - 1;
  }

  BufferId& slot(CellId cell) { return of_storage_[draft_.storage(cell)]; }

  size_t bytes_of(CellId cell) const { return draft_.graph.type(draft_.cells[cell].value).bytes(); }

  // All externals; of the constants, those that something uses.
  void add_fixed() {
    for (ir::ValueId v = 0; v < draft_.graph.num_values(); ++v) {
      const Cell& cell = draft_.cells[v];
      if (cell.kind == Cell::Kind::external) slot(v) = add_buffer(Home::external, v, bytes_of(v));
      const bool used = !cell.readers.empty() || !cell.outputs.empty();
      if (cell.kind == Cell::Kind::constant && used) slot(v) = add_buffer(Home::constant, v, bytes_of(v));
    }
  }

  void add_fetched() {
    for (CellId cell : draft_.cell_of_output) {
      if (slot(cell) == kNoBuffer) slot(cell) = add_buffer(Home::fetched, draft_.cells[cell].value, bytes_of(cell));
      plan_.outputs.push_back(slot(cell));
    }
  }

  void add_launch(const Step& step) {
    Launch launch;
    launch.kind = step.kind;
    launch.op = step.op;
    launch.name = step.name;
    if (step.kind == LaunchKind::kernel) launch.kernel = std::move(kernels_[step.op]);
    for (CellId cell : step.reads) launch.reads.push_back(slot(cell));
    for (CellId cell : step.writes) {
      BufferId& buffer = slot(cell);
      if (buffer == kNoBuffer) buffer = add_buffer(Home::arena, draft_.cells[cell].value, bytes_of(cell));
      launch.writes.push_back(buffer);
    }
    if (launch.kernel.workspace_bytes > 0) {
      launch.workspace = add_buffer(Home::arena, ir::kNoValue, launch.kernel.workspace_bytes);
    }
    if (step.guard != kNoCell) launch.guard = slot(step.guard);
    plan_.launches.push_back(std::move(launch));
  }

  void map_values() {
    for (ir::ValueId v = 0; v < draft_.graph.num_values(); ++v) plan_.buffer_of.push_back(slot(draft_.root[v]));
  }

  const Draft& draft_;
  std::vector<backend::PreparedKernel>& kernels_;
  std::vector<BufferId> of_storage_;  // by the cell that stands for the storage
  ExecPlan plan_;
};

}  // namespace

ExecPlan make_plan(const ir::Graph& graph, std::vector<backend::PreparedKernel> kernels, const Options& options) {
  check_ops(graph, kernels.size());
  std::vector<char> guardable;
  for (const backend::PreparedKernel& kernel : kernels) guardable.push_back(kernel.guardable ? 1 : 0);
  Draft draft(graph, options, std::move(guardable));
  find_views(draft);
  add_steps(draft);
  place_updates(draft);
  place_required(draft);
  add_fetches(draft);
  sort_steps(draft);
  if (options.alias) place_results(draft);
  ExecPlan plan = Assembler(draft, kernels).run();
  plan.aliases = std::move(draft.decisions);
  place_arena(plan, options);
  add_edges(plan);
  return plan;
}

}  // namespace aicf::plan
