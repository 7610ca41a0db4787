// constant_folding: an op whose operands are all constants is computed at compile time, by the CPU's kernels: what they
// give is what every backend's give, bit for bit, but for products (whose sums have an order of their own) and for
// which NaN a NaN is. Neither is folded.
#include <algorithm>
#include <cmath>

#include "ir/op.h"
#include "ir/rewriter.h"
#include "ops/defs.h"
#include "passes/pass.h"

namespace aicf::passes {
namespace {

// Of a result: a constant is memory of every program and part of its text.
constexpr int64_t kMaxElements = 4096;

bool is_constant(const ir::Graph& graph, ir::ValueId v) { return graph.value(v).role == ir::Role::constant; }

// REQUIRES: operands of the new graph.
bool can_fold(const ir::Graph& graph, const ir::Op& op, const std::vector<ir::ValueId>& in) {
  const ir::OpDef& def = *op.def;
  if (def.is(ir::kRandom) || def.is(ir::kComposite) || op.region != nullptr) return false;
  if (def.precision == ir::PrecisionClass::compute) return false;
  // The numbers of an iota cost a fused region nothing.
  if (in.empty()) return false;
  if (!std::all_of(in.begin(), in.end(), [&](ir::ValueId v) { return is_constant(graph, v); })) return false;
  // A scalar that is repeated says more than its copies: ops broadcast it as they read it.
  return &def != &ops::broadcast_def || graph.type(in[0]).shape.elements() > 1;
}

bool small(const ir::Graph& graph, const ir::Op& op) {
  return std::all_of(op.outputs.begin(), op.outputs.end(),
                     [&](ir::ValueId v) { return graph.type(v).shape.elements() <= kMaxElements; });
}

bool holds_nan(const Tensor& data) {
  if (!is_float(data.dtype())) return false;
  for (int64_t i = 0; i < data.elements(); ++i) {
    if (std::isnan(data.at(i))) return true;
  }
  return false;
}

// Empty where the op is not folded. REQUIRES: can_fold().
std::vector<Tensor> folded(const ir::Graph& target, const ir::Op& op, const std::vector<ir::ValueId>& in,
                           Evaluate evaluate) {
  std::vector<const Tensor*> operands;
  for (ir::ValueId v : in) operands.push_back(target.value(v).data.get());
  std::vector<Tensor> results = evaluate(*op.def, op.attrs, operands);
  if (std::any_of(results.begin(), results.end(), holds_nan)) results.clear();
  return results;
}

}  // namespace

bool constant_folding(ir::Graph& graph, Evaluate evaluate) {
  if (evaluate == nullptr) return false;
  bool changed = false;
  ir::Rewriter rewriter(graph);
  for (ir::OpId id = 0; id < graph.num_ops(); ++id) {
    const ir::Op& op = graph.op(id);
    std::vector<ir::ValueId> in;
    for (ir::ValueId v : op.inputs) in.push_back(rewriter.map(v));
    std::vector<Tensor> results;
    if (small(graph, op) && can_fold(rewriter.target(), op, in)) {
      results = folded(rewriter.target(), op, in, evaluate);
    }
    if (results.empty()) {
      rewriter.copy(id);
      continue;
    }
    for (size_t i = 0; i < results.size(); ++i) {
      rewriter.replace(op.outputs[i], rewriter.target().add_constant(std::move(results[i])));
    }
    changed = true;
  }
  if (!changed) return false;
  graph = rewriter.finish();
  dce(graph);
  return true;
}

}  // namespace aicf::passes
