// fold_transposes: matmul reads a matrix either way (its flags ta, tb), and gives one either way, for (A·B)ᵀ = Bᵀ·Aᵀ.
// The products and the order of their sums are a kernel's own, which the flags may change: reorders.
#include <utility>

#include "ir/op.h"
#include "ir/rewriter.h"
#include "ops/defs.h"
#include "ops/structural.h"
#include "passes/mover.h"
#include "passes/pass.h"

namespace aicf::passes {
namespace {

using ir::ValueId;

void flip(ir::Attrs& attrs, const char* flag) {
  if (attrs.get_bool(flag)) {
    attrs.erase(flag);
  } else {
    attrs.set(flag, true);
  }
}

class Folding {
 public:
  explicit Folding(const ir::Graph& graph) : graph_(graph), mover_(graph), rewriter_(graph) {}

  bool run(ir::Graph& result) {
    for (ir::OpId id = 0; id < graph_.num_ops(); ++id) {
      const ir::Op& op = graph_.op(id);
      const bool folded = op.def == &ops::matmul_def ? operands(op) : op.def == &ops::transpose_def && product(op);
      if (!folded) rewriter_.copy(id);
      changed_ |= folded;
    }
    if (!changed_) return false;
    result = rewriter_.finish();
    dce(result);
    return true;
  }

 private:
  const ir::Op* producer(ValueId v, const ir::OpDef& def) const {
    const ir::OpId id = graph_.value(v).producer;
    return id != ir::kNoOp && graph_.op(id).def == &def ? &graph_.op(id) : nullptr;
  }
  bool swaps(const ir::Op& op) const {
    const int rank = graph_.type(op.inputs[0]).shape.rank();
    return rank >= 2 && op.attrs.get_ints("perm") == swapped_last(rank).of;
  }

  // Whether the product had better read this operand swapped: it is a transpose, whoever else reads that, or the graph
  // gets smaller.
  bool better_swapped(const ir::Op& op, size_t k) {
    const ValueId v = op.inputs[k];
    const Wanted swapped = swapped_last(graph_.type(v).shape.rank());
    const bool last = mover_.readers(v) == 1 && op.inputs[0] != op.inputs[1];
    const int growth = mover_.growth(v, swapped, last);
    const ir::Op* transpose = producer(v, ops::transpose_def);
    if (const ir::Op* reshape = producer(v, ops::reshape_def); reshape != nullptr && last) {
      transpose = producer(reshape->inputs[0], ops::transpose_def);
    }
    return growth < 0 || (growth == 0 && transpose != nullptr && swaps(*transpose));
  }

  bool operands(const ir::Op& op) {
    std::vector<ValueId> in;
    ir::Attrs attrs = op.attrs;
    for (size_t k = 0; k < 2; ++k) {
      if (better_swapped(op, k)) {
        in.push_back(mover_.emit(rewriter_));
        flip(attrs, k == 0 ? "ta" : "tb");
      } else {
        in.push_back(rewriter_.map(op.inputs[k]));
      }
    }
    if (attrs == op.attrs) return false;
    emit(op, in, std::move(attrs));
    return true;
  }

  bool product(const ir::Op& op) {
    const ValueId v = op.inputs[0];
    const ir::Op* matmul = producer(v, ops::matmul_def);
    if (matmul == nullptr || mover_.readers(v) != 1 || !swaps(op)) return false;
    ir::Attrs attrs = matmul->attrs;
    attrs.erase("ta");
    attrs.erase("tb");
    if (!matmul->attrs.get_bool("tb")) attrs.set("ta", true);
    if (!matmul->attrs.get_bool("ta")) attrs.set("tb", true);
    emit(op, {rewriter_.map(matmul->inputs[1]), rewriter_.map(matmul->inputs[0])}, std::move(attrs));
    return true;
  }

  void emit(const ir::Op& old, std::vector<ValueId> in, ir::Attrs attrs) {
    ir::Graph& target = rewriter_.target();
    const ir::OpId id = target.add_op(ops::matmul_def, std::move(in), std::move(attrs));
    rewriter_.replace(old.outputs[0], target.op(id).outputs[0]);
  }

  const ir::Graph& graph_;
  Mover mover_;
  ir::Rewriter rewriter_;
  bool changed_ = false;
};

}  // namespace

// Each time the graph has fewer ops, or fewer products that read a transpose.
bool fold_transposes(ir::Graph& graph) {
  bool changed = false;
  for (ir::Graph next; Folding(graph).run(next);) {
    graph = std::move(next);
    changed = true;
  }
  return changed;
}

}  // namespace aicf::passes
