// cse: ops that say the same of the same operands are one. The first stays, with its label. The same kernel on the same
// bits gives the same bits; an op that draws does not, and is never merged.
#include <string>
#include <unordered_map>

#include "ir/op.h"
#include "ir/rewriter.h"
#include "ir/text.h"
#include "passes/pass.h"

namespace aicf::passes {
namespace {

std::string text_of(const ir::Op& op, const std::vector<ir::ValueId>& in) {
  std::string text = std::string(op.def->name) + ir::to_string(op.attrs);
  for (ir::ValueId v : in) text += " " + std::to_string(v);
  if (op.region != nullptr) text += "\n" + ir::canonical_text(*op.region);
  return text;
}

}  // namespace

bool cse(ir::Graph& graph) {
  std::unordered_map<std::string, ir::OpId> known;  // in the new graph
  bool changed = false;
  ir::Rewriter rewriter(graph);
  for (ir::OpId id = 0; id < graph.num_ops(); ++id) {
    const ir::Op& op = graph.op(id);
    if (op.def->is(ir::kRandom)) {
      rewriter.copy(id);
      continue;
    }
    std::vector<ir::ValueId> in;
    for (ir::ValueId v : op.inputs) in.push_back(rewriter.map(v));
    const auto [it, fresh] = known.try_emplace(text_of(op, in), rewriter.target().num_ops());
    if (fresh) {
      rewriter.copy(id);
      continue;
    }
    const std::vector<ir::ValueId> first = rewriter.target().op(it->second).outputs;
    for (size_t i = 0; i < first.size(); ++i) rewriter.replace(op.outputs[i], first[i]);
    changed = true;
  }
  if (!changed) return false;
  graph = rewriter.finish();
  return true;
}

}  // namespace aicf::passes
