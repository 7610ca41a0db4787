#include "passes/micro_batches.h"

#include <fmt/format.h>

#include <algorithm>
#include <optional>

#include "aicf/error.h"
#include "aicf/ops.h"
#include "ir/op.h"
#include "ops/defs.h"
#include "ops/rng_bits.h"
#include "ops/structural.h"

namespace aicf::passes {
namespace {

using ir::kNoOp;
using ir::kNoValue;
using ir::OpId;
using ir::Role;
using ir::ValueId;

std::optional<double> scalar_constant(const ir::Graph& graph, ValueId v) {
  const ir::ValueInfo& info = graph.value(v);
  if (info.role != Role::constant || info.type.shape.elements() != 1) return {};
  return info.data->item();
}

int64_t elements_of(const ir::Graph& graph, ValueId v) { return std::max<int64_t>(graph.type(v).shape.elements(), 1); }

[[noreturn]] void refuse(const ir::Graph& graph, ValueId loss) {
  const OpId producer = graph.value(loss).producer;
  throw Error(fmt::format("micro_batches: expected a loss that shows what it is the mean or sum of, got {}",
                          producer == kNoOp ? ir::value_name(graph, loss) : std::string(graph.op(producer).def->name)),
              "cross_entropy, mse, mean() or sum() over the batch, or a multiple of one");
}

// What a chain of sums adds up.
ValueId summed_value(const ir::Graph& graph, ValueId v) {
  const OpId producer = graph.value(v).producer;
  const bool sum = producer != kNoOp && graph.op(producer).def == &ops::reduce_sum_def;
  return sum ? summed_value(graph, graph.op(producer).inputs[0]) : v;
}

// What the examples of a micro-batch are in: axis 0 of its inputs.
class Examples {
 public:
  Examples(const ir::Graph& graph, const std::vector<std::string>& shared) : graph_(graph) {
    for (ValueId v = 0; v < graph.num_values(); ++v) {
      const ir::ValueInfo& info = graph.value(v);
      const bool split = info.role == Role::input && std::find(shared.begin(), shared.end(), info.name) == shared.end();
      depends_.push_back(split);
      leads_.push_back(split && info.type.shape.rank() > 0);
    }
    for (const ir::Op& op : graph.ops()) {
      for (size_t i = 0; i < op.inputs.size(); ++i) {
        for (const ValueId out : op.outputs) {
          depends_[at(out)] = depends_[at(out)] || depends_[at(op.inputs[i])];
          leads_[at(out)] = leads_[at(out)] || keeps_leading(op, i, out);
        }
      }
    }
  }

  bool depends(ValueId v) const { return depends_[at(v)]; }
  // Axis 0 goes through the examples, for all that its op shows. Not of values appended since.
  bool leads(ValueId v) const { return at(v) < leads_.size() && leads_[at(v)]; }

 private:
  static size_t at(ValueId v) { return static_cast<size_t>(v); }

  bool keeps_leading(const ir::Op& op, size_t i, ValueId out) const {
    const ValueId in = op.inputs[i];
    const Shape from = graph_.type(in).shape, to = graph_.type(out).shape;
    if (!leads_[at(in)] || to.rank() == 0 || from[0] != to[0]) return false;
    if (op.def == &ops::reshape_def) return true;
    if (op.def == &ops::transpose_def) return op.attrs.get_ints("perm")[0] == 0;
    if (op.def == &ops::gather_def) return i == 1;
    if (op.def == &ops::argmax_def) return op.attrs.get_int("axis") != 0;
    if (op.def->is(ir::kReduction)) {
      const std::vector<int64_t> axes = op.attrs.get_ints("axes");
      return std::find(axes.begin(), axes.end(), 0) == axes.end();
    }
    if (from.rank() != to.rank()) return false;
    if (op.def == &ops::matmul_def) return to.rank() > 2 || (i == 0 && !op.attrs.get_bool("ta"));
    return op.def->is(ir::kPointwise) || (op.def->is(ir::kComposite) && i == 0);
  }

  const ir::Graph& graph_;
  std::vector<bool> depends_, leads_;  // by value
};

class LossReader {
 public:
  LossReader(ir::Graph& graph, ValueId loss, const std::vector<std::string>& shared)
      : graph_(graph), loss_(loss), examples_(graph, shared) {}

  SummedLoss read() {
    if (!examples_.depends(loss_)) {
      throw Error("micro_batches: the loss depends on no input that is split into micro-batches",
                  "each would count the whole of it once more");
    }
    return read(loss_);
  }

 private:
  SummedLoss read(ValueId v) {
    const OpId producer = graph_.value(v).producer;
    if (producer == kNoOp) refuse(graph_, loss_);
    const ir::Op op = graph_.op(producer);
    if (op.def == &ops::cross_entropy_def && v == op.outputs[0]) return of_labels(op);
    if (op.def == &ops::mse_def) return of_squares(op);
    if (op.def == &ops::reduce_sum_def && elements_of(graph_, v) == 1) return {v, kNoValue, 1};
    if (op.def == &ops::cast_def) return read(op.inputs[0]);
    if (op.def == &ops::div_def && scalar_constant(graph_, op.inputs[1])) return quotient(op);
    if (op.def == &ops::mul_def) {
      for (const size_t i : {0, 1}) {
        if (!scalar_constant(graph_, op.inputs[i])) continue;
        SummedLoss inner = read(op.inputs[1 - i]);
        inner.sum = (value(inner.sum) * *scalar_constant(graph_, op.inputs[i])).id();
        return inner;
      }
    }
    refuse(graph_, loss_);
  }

  Value value(ValueId v) { return graph_.handle(v); }

  std::vector<Value> as_sum(const ir::Op& op) {
    ir::Attrs attrs = op.attrs;
    attrs.set("reduction", std::string("sum"));
    return ir::emit_all(*op.def, {value(op.inputs[0]), value(op.inputs[1])}, attrs);
  }

  SummedLoss of_labels(const ir::Op& op) {
    const std::string reduction = op.attrs.get_string("reduction");
    if (reduction == "sum") return {op.outputs[0], kNoValue, 1};
    if (reduction != "mean") refuse(graph_, loss_);
    const std::vector<Value> both = as_sum(op);
    return {both[0].id(), both[1].id(), elements_of(graph_, op.inputs[1])};
  }

  SummedLoss of_squares(const ir::Op& op) {
    const std::string reduction = op.attrs.get_string("reduction");
    if (reduction == "sum") return {op.outputs[0], kNoValue, 1};
    if (reduction != "mean") refuse(graph_, loss_);
    const Value total = as_sum(op)[0];
    return counted(total, elements_of(graph_, op.inputs[0]));
  }

  SummedLoss counted(Value sum, int64_t elements) {
    return {sum.id(), literal(sum, static_cast<double>(elements), f32).id(), elements};
  }

  // A sum by the number of its elements or of its examples is a mean; what another divisor counts cannot be known.
  SummedLoss quotient(const ir::Op& op) {
    const double divisor = *scalar_constant(graph_, op.inputs[1]);
    SummedLoss inner = read(op.inputs[0]);
    if (inner.count != kNoValue) {
      inner.sum = (value(inner.sum) / divisor).id();
      return inner;
    }
    const ValueId summed = summed_value(graph_, inner.sum);
    const int64_t elements = elements_of(graph_, summed);
    if (divisor == static_cast<double>(elements)) return counted(value(inner.sum), elements);
    if (examples_.leads(summed) && divisor == static_cast<double>(graph_.type(summed).shape[0])) {
      return counted(value(inner.sum), graph_.type(summed).shape[0]);
    }
    refuse(graph_, loss_);
  }

  ir::Graph& graph_;
  const ValueId loss_;
  const Examples examples_;
};

class Unroller {
 public:
  Unroller(const ir::Graph& graph, int64_t count, const std::vector<std::string>& shared)
      : graph_(graph), count_(count), shared_(shared) {
    find_varying();
  }

  ir::Graph run(std::vector<Wanted>& wanted) {
    declare();
    const int64_t ordinals = ops::next_ordinal(graph_);
    std::vector<std::vector<Value>> parts(wanted.size());
    for (int64_t part = 0; part < count_; ++part) {
      std::vector<ValueId> before;
      for (size_t i = 0; part > 0 && i < wanted.size(); ++i) {
        if (wanted[i].kind == Wanted::Kind::sum) before.push_back(parts[i][0].id());
      }
      read_inputs(part, before);
      for (OpId id = 0; id < graph_.num_ops(); ++id) {
        if (part == 0 || varies(graph_.op(id))) copy(id, part * ordinals);
      }
      for (size_t i = 0; i < wanted.size(); ++i) collect(wanted[i], parts[i]);
      carry_states();
    }
    for (size_t i = 0; i < wanted.size(); ++i) {
      wanted[i].value = (parts[i].size() == 1 ? parts[i][0] : concat(parts[i], 0)).id();
    }
    finish();
    return std::move(target_);
  }

 private:
  // --- what differs from one micro-batch to the next -------------------------------------------------------------

  bool varies(ValueId v) const { return varying_[static_cast<size_t>(v)] != 0; }
  bool varies(const ir::Op& op) const { return varies(op.outputs[0]); }

  void find_varying() {
    varying_.assign(static_cast<size_t>(graph_.num_values()), 0);
    for (ValueId v = 0; v < graph_.num_values(); ++v) {
      const ir::ValueInfo& info = graph_.value(v);
      if (info.role != Role::input || is_shared(info.name)) continue;
      if (info.type.shape.rank() == 0) {
        throw Error(
            fmt::format("micro_batches: input '{}' : {} has no leading axis to split", info.name, to_string(info.type)),
            "name it in shared_inputs if all micro-batches are to read it");
      }
      varying_[static_cast<size_t>(v)] = 1;
    }
    for (bool again = true; again;) {
      for (const ir::Op& op : graph_.ops()) {
        const bool any = op.def->is(ir::kRandom) ||
                         std::any_of(op.inputs.begin(), op.inputs.end(), [&](ValueId v) { return varies(v); });
        for (ValueId v : op.outputs) varying_[static_cast<size_t>(v)] |= any;
      }
      again = false;
      for (const ir::Update& u : graph_.updates()) {
        if (!varies(u.value) || varies(u.target)) continue;
        varying_[static_cast<size_t>(u.target)] = again = true;
      }
    }
    for (const ir::Derivation& d : graph_.derivations()) {
      if (!varies(d.value)) continue;
      throw Error(fmt::format("micro_batches: the derived state '{}' follows a state that each micro-batch updates",
                              graph_.value(d.state).name));
    }
  }

  bool is_shared(const std::string& name) const {
    return std::find(shared_.begin(), shared_.end(), name) != shared_.end();
  }

  // --- the graph of all -------------------------------------------------------------------------------------------

  void declare() {
    map_.assign(static_cast<size_t>(graph_.num_values()), kNoValue);
    for (ValueId v = 0; v < graph_.num_values(); ++v) {
      const ir::ValueInfo& info = graph_.value(v);
      TensorType type = info.type;
      if (info.role == Role::input && varies(v)) {
        type.shape = ops::with_dim(type.shape, 0, type.shape[0] * count_);
      }
      if (graph_.is_external(v)) {
        at(v) = target_.add_external(info.role, info.name, type, info.attrs);
      } else if (info.role == Role::constant) {
        at(v) = target_.add_constant(info.data, info.name);
      }
    }
    externals_ = map_;
  }

  // Only when the sums have what came before: else all micro-batches would run side by side, and their values be in
  // memory at once.
  void read_inputs(int64_t part, const std::vector<ValueId>& before) {
    for (ValueId v = 0; v < graph_.num_values(); ++v) {
      const ir::ValueInfo& info = graph_.value(v);
      if (info.role != Role::input || !varies(v)) continue;
      const Value all = target_.handle(externals_[static_cast<size_t>(v)]);
      std::vector<int64_t> start(static_cast<size_t>(info.type.shape.rank()), 0), limit = ops::to_vector(all.shape());
      start[0] = part * info.type.shape[0];
      limit[0] = start[0] + info.type.shape[0];
      std::vector<ValueId> rows = {slice(all, start, limit).named(info.name).id()};
      rows.insert(rows.end(), before.begin(), before.end());
      if (rows.size() > 1) {
        const OpId waiting = target_.add_op(ops::after_def, rows);
        rows = target_.op(waiting).outputs;
        target_.set_label(rows[0], info.name);
      }
      at(v) = rows[0];
    }
  }

  void copy(OpId id, int64_t more_ordinals) {
    const ir::Op& op = graph_.op(id);
    std::vector<ValueId> inputs;
    for (ValueId v : op.inputs) inputs.push_back(at(v));
    ir::Attrs attrs = op.attrs;
    if (op.def->is(ir::kRandom)) attrs.set("ordinal", attrs.get_int("ordinal") + more_ordinals);
    const OpId copied = target_.add_op(*op.def, std::move(inputs), std::move(attrs), op.region);
    const std::vector<ValueId> outputs = target_.op(copied).outputs;
    for (size_t i = 0; i < outputs.size(); ++i) {
      at(op.outputs[i]) = outputs[i];
      target_.set_label(outputs[i], graph_.value(op.outputs[i]).name);
    }
  }

  // Sums grow as the micro-batches end, so that one buffer holds each.
  void collect(const Wanted& wanted, std::vector<Value>& parts) {
    const ir::ValueInfo& info = graph_.value(wanted.value);
    const Value part = target_.handle(at(wanted.value));
    if (wanted.kind == Wanted::Kind::sum) {
      if (parts.empty()) return parts.push_back(part);
      parts[0] = (parts[0] + part).named(info.role == Role::tmp ? info.name : "");
      return;
    }
    if (wanted.kind == Wanted::Kind::rows && !varies(wanted.value)) return parts.assign(1, part);
    if (info.role == Role::input || info.role == Role::state) {
      return parts.assign(1, target_.handle(externals_[static_cast<size_t>(wanted.value)]));
    }
    if (info.type.shape.rank() == 0) {
      throw Error(
          fmt::format("micro_batches: '{}' : {} has no leading axis along which those of the micro-batches could "
                      "follow one another",
                      wanted.name, to_string(info.type)),
          "return an element an example instead");
    }
    parts.push_back(part);
  }

  void carry_states() {
    std::vector<std::pair<ValueId, ValueId>> next;  // all at once: updates are a parallel assignment
    for (const ir::Update& u : graph_.updates()) {
      if (varies(u.target)) next.emplace_back(u.target, at(u.value));
    }
    for (const auto& [target, value] : next) at(target) = value;
  }

  // By now a state that is carried stands for its last value.
  void finish() {
    for (const ir::Update& u : graph_.updates()) {
      if (u.guard != kNoValue) throw InternalError("micro_batches: an update with a guard");
      target_.add_update(externals_[static_cast<size_t>(u.target)], varies(u.target) ? at(u.target) : at(u.value));
    }
    for (const ir::Derivation& d : graph_.derivations()) target_.add_derivation(at(d.state), at(d.value));
  }

  ValueId& at(ValueId v) { return map_[static_cast<size_t>(v)]; }

  const ir::Graph& graph_;
  const int64_t count_;
  const std::vector<std::string>& shared_;
  std::vector<char> varying_;  // by value
  ir::Graph target_;
  std::vector<ValueId> map_;        // old value → that of the present micro-batch
  std::vector<ValueId> externals_;  // old external → new
};

}  // namespace

SummedLoss summed_loss(ir::Graph& graph, ValueId loss, const std::vector<std::string>& shared) {
  return LossReader(graph, loss, shared).read();
}

ir::Graph micro_batches(const ir::Graph& graph, int64_t count, const std::vector<std::string>& shared,
                        std::vector<Wanted>& wanted) {
  return Unroller(graph, count, shared).run(wanted);
}

}  // namespace aicf::passes
