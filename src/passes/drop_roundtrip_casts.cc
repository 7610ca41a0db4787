// drop_roundtrip_casts: a value rounded to a narrower float and widened again, with no other reader of the narrow one,
// is read as it was. That leaves out one rounding: at most half an ulp of the narrow dtype for each element within its
// range (a relative 2^-9 for bf16, 2^-12 for f16).
#include <map>
#include <utility>

#include "ir/op.h"
#include "ir/rewriter.h"
#include "ops/defs.h"
#include "passes/mover.h"
#include "passes/pass.h"

namespace aicf::passes {
namespace {

// Rounds from `wide` to `narrow`: fewer digits, whatever the range.
bool rounds(DType wide, DType narrow) { return is_float(wide) && is_float(narrow) && size_of(narrow) < size_of(wide); }

// What a cast is of, and to what: casts that say the same make one narrow value.
using Narrow = std::pair<ir::ValueId, DType>;

std::map<Narrow, int> readers_of_casts(const ir::Graph& graph) {
  const Mover counts(graph);
  std::map<Narrow, int> readers;
  for (const ir::Op& op : graph.ops()) {
    if (op.def != &ops::cast_def) continue;
    readers[{op.inputs[0], graph.type(op.outputs[0]).dtype}] += counts.readers(op.outputs[0]);
  }
  return readers;
}

// The value before the round trip that the op completes, or kNoValue.
ir::ValueId before_roundtrip(const ir::Graph& graph, const ir::Op& op, const std::map<Narrow, int>& readers) {
  if (op.def != &ops::cast_def) return ir::kNoValue;
  const ir::ValueId narrow = op.inputs[0];
  const ir::OpId producer = graph.value(narrow).producer;
  if (producer == ir::kNoOp || graph.op(producer).def != &ops::cast_def) return ir::kNoValue;
  const ir::ValueId wide = graph.op(producer).inputs[0];
  const DType to = graph.type(narrow).dtype;
  const bool roundtrip = graph.type(wide) == graph.type(op.outputs[0]) && rounds(graph.type(wide).dtype, to);
  return roundtrip && readers.at({wide, to}) == 1 ? wide : ir::kNoValue;
}

}  // namespace

bool drop_roundtrip_casts(ir::Graph& graph) {
  const std::map<Narrow, int> readers = readers_of_casts(graph);
  bool changed = false;
  ir::Rewriter rewriter(graph);
  for (ir::OpId id = 0; id < graph.num_ops(); ++id) {
    const ir::Op& op = graph.op(id);
    rewriter.copy(id);
    const ir::ValueId wide = before_roundtrip(graph, op, readers);
    if (wide == ir::kNoValue) continue;
    rewriter.replace(op.outputs[0], rewriter.map(wide));
    changed = true;
  }
  if (!changed) return false;
  graph = rewriter.finish();
  dce(graph);
  return true;
}

}  // namespace aicf::passes
