// layout: no transpose or reshape that another one undoes. One that stands below pointwise ops or a reduction is moved
// up through them where the graph gets smaller by it. Elements only change places, and each result is computed of the
// same elements in the same order: exact.
#include <algorithm>

#include "ir/op.h"
#include "ir/rewriter.h"
#include "ops/defs.h"
#include "passes/mover.h"
#include "passes/pass.h"

namespace aicf::passes {
namespace {

// What the op wants of its operand; false where it is no transpose or reshape.
bool wants(const ir::Op& op, Wanted& wanted) {
  if (op.def == &ops::transpose_def) wanted = {Wanted::Kind::permuted, op.attrs.get_ints("perm")};
  if (op.def == &ops::reshape_def) wanted = {Wanted::Kind::reshaped, op.attrs.get_ints("shape")};
  return op.def == &ops::transpose_def || op.def == &ops::reshape_def;
}

std::ptrdiff_t count_live(const ir::Graph& graph) {
  const std::vector<char> live = live_ops(graph);
  return std::count(live.begin(), live.end(), 1);
}

// One sweep; returns false when nothing was moved.
bool sweep(const ir::Graph& graph, ir::Graph& result) {
  Mover mover(graph);
  ir::Rewriter rewriter(graph);
  bool changed = false;
  for (ir::OpId id = 0; id < graph.num_ops(); ++id) {
    const ir::Op& op = graph.op(id);
    Wanted wanted;
    if (wants(op, wanted) && mover.growth(op.inputs[0], wanted, mover.readers(op.inputs[0]) == 1) < 1) {
      rewriter.replace(op.outputs[0], mover.emit(rewriter));
      changed = true;
    } else {
      rewriter.copy(id);
    }
  }
  if (!changed) return false;
  result = rewriter.finish();
  dce(result);
  return true;
}

}  // namespace

// Each op that goes may bring others together; a sweep that makes the graph no smaller is not taken, so this ends.
bool layout(ir::Graph& graph) {
  bool changed = false;
  for (ir::Graph next; sweep(graph, next) && count_live(next) < count_live(graph);) {
    graph = std::move(next);
    changed = true;
  }
  return changed;
}

}  // namespace aicf::passes
