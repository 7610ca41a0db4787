// drop_roundtrip_casts: a value rounded to a narrower float and widened again, with no other reader of the narrow one,
// is read as it was. That leaves out one rounding: at most half an ulp of the narrow dtype for each element within its
// range (a relative 2^-9 for bf16, 2^-12 for f16).
#include "ir/op.h"
#include "ir/rewriter.h"
#include "ops/defs.h"
#include "passes/mover.h"
#include "passes/pass.h"

namespace aicf::passes {
namespace {

// Rounds from `wide` to `narrow`: fewer digits, whatever the range.
bool rounds(DType wide, DType narrow) { return is_float(wide) && is_float(narrow) && size_of(narrow) < size_of(wide); }

}  // namespace

bool drop_roundtrip_casts(ir::Graph& graph) {
  const Mover counts(graph);
  bool changed = false;
  ir::Rewriter rewriter(graph);
  for (ir::OpId id = 0; id < graph.num_ops(); ++id) {
    const ir::Op& op = graph.op(id);
    rewriter.copy(id);
    if (op.def != &ops::cast_def) continue;
    const ir::ValueId narrow = op.inputs[0];
    const ir::OpId producer = graph.value(narrow).producer;
    if (producer == ir::kNoOp || graph.op(producer).def != &ops::cast_def || counts.readers(narrow) != 1) continue;
    const ir::ValueId wide = graph.op(producer).inputs[0];
    if (graph.type(wide) != graph.type(op.outputs[0]) || !rounds(graph.type(wide).dtype, graph.type(narrow).dtype)) {
      continue;
    }
    rewriter.replace(op.outputs[0], rewriter.map(wide));
    changed = true;
  }
  if (!changed) return false;
  graph = rewriter.finish();
  dce(graph);
  return true;
}

}  // namespace aicf::passes
