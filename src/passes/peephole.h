// What the passes of local rules share: one forward sweep that rebuilds a graph, offering each op, with the operands it
// has by then, to the rules.
#pragma once

#include <memory>
#include <optional>
#include <vector>

#include "ir/op.h"
#include "ir/rewriter.h"

namespace aicf::passes {

// An op with one result that is about to be added to the new graph.
struct Node {
  const ir::OpDef* def = nullptr;
  std::vector<ir::ValueId> in;
  ir::Attrs attrs = {};
  std::shared_ptr<const ir::Graph> region = {};

  bool is(const ir::OpDef& other) const { return def == &other; }
};

class Peephole {
 public:
  // The value of the new graph that stands for the node's result, made by emit() or there already; kNoValue: the node
  // stays as it is. The value must have the result's type and, whatever the operands hold, its bits.
  using Rules = ir::ValueId (*)(Peephole&, const Node&);

  // Ops that nothing reads any more are dropped. Returns true when a rule applied.
  static bool run(ir::Graph& graph, Rules rules);

  const ir::Graph& graph() { return rewriter_.target(); }
  const TensorType& type(ir::ValueId v) { return graph().type(v); }
  TensorType result_type(const Node& node);
  // The op that produces the value if it is of that kind, else null. Valid until the next emit().
  const ir::Op* producer(ir::ValueId v, const ir::OpDef& def);
  // The elements of a constant, else null.
  const Tensor* constant(ir::ValueId v);

  // Adds the op unless a rule gives its value: rules hold for what they emit too.
  ir::ValueId emit(Node node);
  ir::ValueId emit_constant(Tensor data) { return rewriter_.target().add_constant(std::move(data)); }
  ir::ValueId reshaped(ir::ValueId v, const Shape& shape);
  ir::ValueId broadcast_to(ir::ValueId v, const Shape& shape);

 private:
  Peephole(const ir::Graph& source, Rules rules) : rewriter_(source), rules_(rules) {}
  bool sweep();

  ir::Rewriter rewriter_;
  Rules rules_;
};

}  // namespace aicf::passes
