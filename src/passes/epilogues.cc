// epilogues: a matmul and the pointwise region that alone reads it become one region: its ops run on the sums before
// they are in memory, where the kernel can. Exact: the product is computed as it would be alone.
#include <algorithm>
#include <map>

#include "ir/op.h"
#include "ir/rewriter.h"
#include "ops/defs.h"
#include "ops/inline_region.h"
#include "ops/loops.h"
#include "passes/pass.h"

namespace aicf::passes {
namespace {

using ir::OpId;
using ir::ValueId;

// A region of a product, ready to be emitted.
struct Epilogue {
  std::shared_ptr<ir::Graph> body = std::make_shared<ir::Graph>();
  std::vector<ValueId> operands;
};

class Epilogues {
 public:
  explicit Epilogues(const ir::Graph& graph) : graph_(graph), readers_(graph.readers()) {
    for (const ir::Output& o : graph.outputs()) kept_.push_back(o.value);
    for (const ir::Update& u : graph.updates()) kept_.insert(kept_.end(), {u.value, u.guard});
  }

  bool run(ir::Graph& result) {
    std::map<OpId, Epilogue> of_reader;
    std::vector<char> taken(static_cast<size_t>(graph_.num_ops()), 0);
    for (OpId id = 0; id < graph_.num_ops(); ++id) {
      const OpId product = product_of(id);
      if (product == ir::kNoOp) continue;
      Epilogue epilogue = merged(product, id);
      const auto loops = ops::loops_of(*epilogue.body);
      if (!loops || loops->kind != ops::Loops::Kind::epilogue) continue;
      taken[static_cast<size_t>(product)] = 1;
      of_reader.emplace(id, std::move(epilogue));
    }
    if (of_reader.empty()) return false;
    ir::Rewriter rewriter(graph_);
    for (OpId id = 0; id < graph_.num_ops(); ++id) {
      if (taken[static_cast<size_t>(id)] != 0) continue;
      const auto it = of_reader.find(id);
      if (it == of_reader.end()) {
        rewriter.copy(id);
        continue;
      }
      std::vector<ValueId> operands;
      for (ValueId v : it->second.operands) operands.push_back(rewriter.map(v));
      const OpId op = rewriter.target().add_op(ops::fused_def, std::move(operands), {}, it->second.body);
      const std::vector<ValueId> outputs = rewriter.target().op(op).outputs;
      for (size_t i = 0; i < outputs.size(); ++i) rewriter.replace(graph_.op(id).outputs[i], outputs[i]);
    }
    result = rewriter.finish();
    return true;
  }

 private:
  bool is_kept(ValueId v) const { return std::find(kept_.begin(), kept_.end(), v) != kept_.end(); }

  // The matmul that the op alone reads; the last one, where there are several: the others are there before it. None for
  // an op that computes updates: those are one launch together.
  OpId product_of(OpId id) const {
    const ir::Op& op = graph_.op(id);
    if (op.def != &ops::fused_def && !op.def->is(ir::kPointwise)) return ir::kNoOp;
    const auto is_update = [&](ValueId v) {
      return graph_.type(v).shape.elements() > 1 && std::any_of(graph_.updates().begin(), graph_.updates().end(),
                                                                [&](const ir::Update& u) { return u.value == v; });
    };
    if (std::any_of(op.outputs.begin(), op.outputs.end(), is_update)) return ir::kNoOp;
    OpId found = ir::kNoOp;
    for (ValueId v : op.inputs) {
      const OpId producer = graph_.value(v).producer;
      if (producer == ir::kNoOp || graph_.op(producer).def != &ops::matmul_def || is_kept(v)) continue;
      if (readers_[static_cast<size_t>(v)].size() == 1) found = std::max(found, producer);
    }
    return found;
  }

  Epilogue merged(OpId product, OpId reader) const {
    Epilogue e;
    ir::Graph& body = *e.body;
    std::map<ValueId, Value> inside;
    const auto operand = [&](ValueId v) {
      if (const auto it = inside.find(v); it != inside.end()) return it->second;
      const ValueId own = body.add_external(ir::Role::input, std::to_string(e.operands.size()), graph_.type(v));
      e.operands.push_back(v);
      return inside.emplace(v, body.handle(own)).first->second;
    };
    const auto add = [&](const ir::Op& op) {
      std::vector<ValueId> inputs;
      for (ValueId v : op.inputs) inputs.push_back(operand(v).id());
      const OpId copy = body.add_op(*op.def, std::move(inputs), op.attrs, op.region);
      return body.op(copy).outputs;
    };
    inside.emplace(graph_.op(product).outputs[0], body.handle(add(graph_.op(product))[0]));
    const ir::Op& op = graph_.op(reader);
    std::vector<Value> results;
    if (op.region != nullptr) {
      std::vector<Value> inputs;
      for (ValueId v : op.inputs) inputs.push_back(operand(v));
      results = ops::inline_region(*op.region, body, inputs);
    } else {
      for (ValueId v : add(op)) results.push_back(body.handle(v));
    }
    for (size_t i = 0; i < results.size(); ++i) body.add_output(std::to_string(i), results[i].id());
    return e;
  }

  const ir::Graph& graph_;
  std::vector<std::vector<OpId>> readers_;
  std::vector<ValueId> kept_;
};

}  // namespace

bool epilogues(ir::Graph& graph) {
  ir::Graph result;
  if (!Epilogues(graph).run(result)) return false;
  graph = std::move(result);
  return true;
}

}  // namespace aicf::passes
