// apply_precision: a precision policy as explicit casts in the forward graph, from each op's class in its record.
#include <algorithm>
#include <cmath>
#include <map>
#include <utility>

#include "aicf/error.h"
#include "aicf/ops.h"
#include "aicf/suggest.h"
#include "ir/op.h"
#include "ir/rewriter.h"
#include "ops/compute.h"
#include "ops/defs.h"
#include "passes/pass.h"

namespace aicf::passes {
namespace {

using ir::kNoOp;
using ir::kNoValue;
using ir::OpId;
using ir::PrecisionClass;
using ir::ValueId;

// Only what the model has in f32 is subject to a policy: a dtype chosen in the model stays.
bool is_all_f32(const ir::Graph& graph, const ir::Op& op) {
  const auto fits = [&](ValueId v) { return !is_float(graph.type(v).dtype) || graph.type(v).dtype == f32; };
  return std::all_of(op.inputs.begin(), op.inputs.end(), fits) &&
         std::all_of(op.outputs.begin(), op.outputs.end(), fits);
}

class Policy {
 public:
  Policy(const ir::Graph& graph, std::string precision)
      : graph_(graph), precision_(std::move(precision)), rewriter_(graph), readers_(graph.readers()) {
    is_narrow_ = parse_dtype(precision_, narrow_) && narrow_ != f32;
    find_fixed();
    kept_.assign(static_cast<size_t>(graph.num_values()), 0);
    leaves_.assign(static_cast<size_t>(graph.num_values()), 0);
    for (const ir::Output& o : graph.outputs()) leaves_[o.value] = 1;
    for (const ir::Update& u : graph.updates()) leaves_[u.value] = 1;
    for (const ir::Derivation& d : graph.derivations()) leaves_[d.value] = 1;
  }

  ir::Graph run() {
    for (OpId id = 0; id < graph_.num_ops(); ++id) {
      const ir::Op& op = graph_.op(id);
      if (is_fixed(op) || !is_all_f32(graph_, op)) {
        emit_as_declared(op);
      } else if (op.def->precision == PrecisionClass::compute && !op.attrs.has(ops::kCompute)) {
        emit_product(op);
      } else if (op.def->precision == PrecisionClass::follow && is_narrow_) {
        emit_following(op);
      } else {
        emit_as_declared(op);
      }
    }
    // What leaves the graph keeps the type it was declared with.
    for (ValueId v = 0; v < graph_.num_values(); ++v) {
      if (leaves_[v]) rewriter_.replace(v, as(v, graph_.type(v).dtype));
    }
    return rewriter_.finish();
  }

 private:
  // Fixed values depend on no input: params, states, constants and what is computed from them alone. They stay f32,
  // and so a derived state is the same whatever the precision of the programs that share it.
  void find_fixed() {
    fixed_.resize(static_cast<size_t>(graph_.num_values()));
    for (ValueId v = 0; v < graph_.num_values(); ++v) {
      const ir::ValueInfo& info = graph_.value(v);
      fixed_[v] = info.producer == kNoOp ? info.role != ir::Role::input : is_fixed(graph_.op(info.producer));
    }
  }
  bool is_fixed(const ir::Op& op) const {
    return std::all_of(op.inputs.begin(), op.inputs.end(), [&](ValueId v) { return fixed_[v] != 0; });
  }

  bool is_float_value(ValueId v) const { return is_float(graph_.type(v).dtype); }
  DType dtype_of(ValueId old_value) { return rewriter_.target().type(rewriter_.map(old_value)).dtype; }

  // A scalar constant takes the dtype of what it is combined with.
  bool is_literal(ValueId v) const {
    return graph_.value(v).role == ir::Role::constant && graph_.type(v).shape.rank() == 0 && is_float_value(v);
  }
  Tensor narrow_literal(ValueId v) const {
    Tensor narrow(TensorType{narrow_, {}});
    set_element(narrow_, narrow.data(), 0, graph_.value(v).data->item());
    return narrow;
  }
  // False where a finite number would become infinite, or something nothing.
  bool literal_fits(ValueId v) const {
    const double from = graph_.value(v).data->item(), to = narrow_literal(v).item();
    return std::isfinite(from) == std::isfinite(to) && (from == 0) == (to == 0);
  }

  // The new value of an old one in this dtype: one cast for all who ask.
  ValueId as(ValueId old_value, DType dtype) {
    const ValueId now = rewriter_.map(old_value);
    if (!is_float_value(old_value) || rewriter_.target().type(now).dtype == dtype) return now;
    if (is_literal(old_value)) return rewriter_.target().add_constant(narrow_literal(old_value));
    const auto [it, fresh] = casts_.try_emplace({now, dtype}, kNoValue);
    if (fresh) it->second = cast(rewriter_.target().handle(now), dtype).id();
    return it->second;
  }

  const ir::Op& emit(const ir::Op& op, std::vector<ValueId> inputs, ir::Attrs attrs) {
    return rewriter_.target().op(rewriter_.target().add_op(*op.def, std::move(inputs), std::move(attrs), op.region));
  }

  void emit_as_declared(const ir::Op& op) {
    // A cast to the dtype that its operand has by now is that operand.
    if (op.def == &ops::cast_def && dtype_of(op.inputs[0]) == graph_.type(op.outputs[0]).dtype) {
      rewriter_.replace(op.outputs[0], rewriter_.map(op.inputs[0]));
      return;
    }
    std::vector<ValueId> inputs;
    for (ValueId v : op.inputs) inputs.push_back(as(v, graph_.type(v).dtype));
    const std::vector<ValueId> results = emit(op, std::move(inputs), op.attrs).outputs;
    for (size_t i = 0; i < results.size(); ++i) rewriter_.replace(op.outputs[i], results[i]);
  }

  void emit_product(const ir::Op& op) {
    std::vector<ValueId> inputs;
    std::vector<DType> dtypes;
    for (ValueId v : op.inputs) {
      inputs.push_back(rewriter_.map(v));
      if (is_float_value(v)) dtypes.push_back(dtype_of(v));
    }
    const ValueId result = op.outputs[0];
    const bool keep = !is_narrow_ || keeps_sums(result);
    ir::Attrs attrs = op.attrs;
    ops::set_compute(attrs, dtypes, precision_, keep ? f32 : narrow_);
    kept_[result] = keep;
    rewriter_.replace(result, emit(op, std::move(inputs), std::move(attrs)).outputs[0]);
  }

  // Sums that are read only to combine them with a param (a bias, a scale) meet it in f32 and are rounded after it.
  bool keeps_sums(ValueId result) const {
    if (leaves_[result] || readers_[result].size() != 1) return false;
    const ir::Op& reader = graph_.op(readers_[result][0]);
    if (reader.def->precision != PrecisionClass::follow || !is_all_f32(graph_, reader)) return false;
    return std::any_of(reader.inputs.begin(), reader.inputs.end(), [&](ValueId v) { return is_fixed_float(v); });
  }
  bool is_fixed_float(ValueId v) const { return is_float_value(v) && fixed_[v] && !is_literal(v); }

  void emit_following(const ir::Op& op) {
    bool narrow = false, wide = false, kept = false, fixed = false, literals_fit = true;
    for (ValueId v : op.inputs) {
      if (!is_float_value(v)) continue;
      if (is_literal(v)) {
        literals_fit &= literal_fits(v);
      } else if (fixed_[v]) {
        fixed = true;
      } else if (kept_[v]) {
        kept = true;
      } else {
        (dtype_of(v) == narrow_ ? narrow : wide) = true;
      }
    }
    // Beside an f32 value that came from the inputs the result is f32; a param does not make it so.
    const DType target = !wide && (narrow || kept || fixed) ? narrow_ : f32;
    const bool in_f32 = target == f32 || fixed || kept || !literals_fit || op.region != nullptr;
    std::vector<ValueId> inputs;
    for (ValueId v : op.inputs) inputs.push_back(as(v, in_f32 ? f32 : narrow_));
    const std::vector<ValueId> results = emit(op, std::move(inputs), op.attrs).outputs;
    for (size_t i = 0; i < results.size(); ++i) {
      Value result = rewriter_.target().handle(results[i]);
      if (is_float(result.dtype())) result = cast(result, target);
      rewriter_.replace(op.outputs[i], result.id());
    }
  }

  const ir::Graph& graph_;
  const std::string precision_;
  DType narrow_ = f32;      // of values between products, with is_narrow_
  bool is_narrow_ = false;  // a 16-bit policy
  ir::Rewriter rewriter_;
  const std::vector<std::vector<OpId>> readers_;
  // By old value.
  std::vector<char> fixed_;
  std::vector<char> kept_;    // the f32 sums of a product
  std::vector<char> leaves_;  // read by an output, an update or a derivation
  std::map<std::pair<ValueId, DType>, ValueId> casts_;
};

}  // namespace

void apply_precision(ir::Graph& graph, const std::string& precision) {
  const std::vector<std::string> known = {"f32", "tf32", "bf16", "f16"};
  if (std::find(known.begin(), known.end(), precision) == known.end()) {
    const std::string near = base::did_you_mean(precision, known);
    throw Error("precision: expected f32, tf32, bf16 or f16, got \"" + precision + "\"", near);
  }
  if (precision != known[0]) graph = Policy(graph, precision).run();
}

}  // namespace aicf::passes
