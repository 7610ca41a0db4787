// compute_casts: makes explicit what `compute` asks of an op's operands in 16-bit programs. tf32 stays an attribute: it
// is no dtype.
#include <map>
#include <utility>
#include <vector>

#include "aicf/error.h"
#include "aicf/ops.h"
#include "ir/op.h"
#include "ir/rewriter.h"
#include "ops/compute.h"
#include "ops/defs.h"
#include "passes/pass.h"

namespace aicf::passes {
namespace {

using ir::kNoValue;
using ir::Role;
using ir::ValueId;

// The dtype that the op's factors are rounded to while its operands may have another; f32 where there is none.
DType asked_for(const ir::Op& op) {
  DType dtype = f32;
  if (op.def->precision == ir::PrecisionClass::compute) parse_dtype(op.attrs.get_string(ops::kCompute), dtype);
  return dtype;
}

// What a cast is of; kNoValue where the value is no cast.
ValueId operand_of_cast(const ir::Graph& graph, ValueId v) {
  const ir::OpId producer = graph.value(v).producer;
  if (producer == ir::kNoOp || graph.op(producer).def != &ops::cast_def) return kNoValue;
  return graph.op(producer).inputs[0];
}

class Casts {
 public:
  explicit Casts(const ir::Graph& graph) : graph_(graph), rewriter_(graph) {}

  ir::Graph run() {
    for (ir::OpId id = 0; id < graph_.num_ops(); ++id) {
      const ir::Op& op = graph_.op(id);
      const DType dtype = asked_for(op);
      if (dtype == f32) {
        rewriter_.copy(id);
      } else {
        emit(op, dtype);
      }
    }
    ir::Graph result = rewriter_.finish();
    for (const auto& [state, value] : copies_) {
      if (result.find_derivation(state) == nullptr) result.add_derivation(state, value);
    }
    return result;
  }

 private:
  void emit(const ir::Op& op, DType dtype) {
    std::vector<ValueId> inputs;
    for (ValueId v : op.inputs) inputs.push_back(is_float(graph_.type(v).dtype) ? as(v, dtype) : rewriter_.map(v));
    ir::Attrs attrs = op.attrs;
    ops::set_compute(attrs, dtype, dtype, std::string(name_of(dtype)), graph_.type(op.outputs[0]).dtype);
    ir::Graph& target = rewriter_.target();
    const std::vector<ValueId> results =
        target.op(target.add_op(*op.def, std::move(inputs), std::move(attrs), op.region)).outputs;
    for (size_t i = 0; i < results.size(); ++i) rewriter_.replace(op.outputs[i], results[i]);
  }

  ValueId as(ValueId v, DType dtype) {
    if (graph_.type(v).dtype == dtype) return rewriter_.map(v);
    const auto [it, fresh] = known_.try_emplace({v, dtype}, kNoValue);
    if (fresh) it->second = make(v, dtype);
    return it->second;
  }

  ValueId make(ValueId v, DType dtype) {
    const ir::ValueInfo& info = graph_.value(v);
    if (info.role == Role::param) return compute_copy(v, dtype);
    if (info.role == Role::constant) {
      Tensor data(TensorType{dtype, info.type.shape});
      for (int64_t i = 0; i < data.elements(); ++i) set_element(dtype, data.data(), i, info.data->at(i));
      return rewriter_.target().add_constant(std::move(data));
    }
    // Widening loses nothing: rounding what was widened gives it back.
    const ValueId narrow = operand_of_cast(graph_, v);
    if (narrow != kNoValue && graph_.type(narrow).dtype == dtype) return rewriter_.map(narrow);
    return cast(rewriter_.target().handle(rewriter_.map(v)), dtype).id();
  }

  ValueId compute_copy(ValueId param, DType dtype) {
    const ir::ValueInfo& info = graph_.value(param);
    const std::string name = info.name + "." + std::string(name_of(dtype));
    if (const ValueId known = graph_.find_external(name); known != kNoValue) {
      const ir::Derivation* d = graph_.find_derivation(known);
      const bool same = d != nullptr && graph_.type(known).dtype == dtype && operand_of_cast(graph_, d->value) == param;
      if (same) return rewriter_.map(known);
      throw Error("'" + name + "' is the name of the compute copy of the parameter '" + info.name +
                      "', and the model has another value of this name",
                  "rename it, or compile with precision f32 or tf32");
    }
    ir::Graph& target = rewriter_.target();
    const TensorType type = {dtype, info.type.shape};
    const ValueId state = target.add_external(Role::state, name, type, {{"init", std::string("zeros")}});
    copies_.emplace_back(state, cast(target.handle(rewriter_.map(param)), dtype).id());
    return state;
  }

  const ir::Graph& graph_;
  ir::Rewriter rewriter_;
  std::map<std::pair<ValueId, DType>, ValueId> known_;  // by old value
  std::vector<std::pair<ValueId, ValueId>> copies_;     // states and their expressions
};

}  // namespace

bool compute_casts(ir::Graph& graph) {
  bool any = false;
  for (const ir::Op& op : graph.ops()) any |= asked_for(op) != f32;
  if (any) graph = Casts(graph).run();
  return any;
}

}  // namespace aicf::passes
