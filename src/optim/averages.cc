#include "optim/averages.h"

#include <map>
#include <utility>

#include "aicf/error.h"
#include "aicf/ops.h"
#include "optim/states.h"

namespace aicf::optim {
namespace {

constexpr const char* kPrefix = "ema/";

}  // namespace

std::string averages_count(const ir::Graph& graph, Value param) { return group_prefix(graph, param) + "ema_steps"; }
std::string average_name(const std::string& param) { return kPrefix + param; }

void add_averages(ir::Graph& graph, double decay, const std::vector<Trained>& trained) {
  check_fraction("ema", "decay", decay);
  const DType scalar = scalar_dtype(trained);
  const Value rate = scalar_state(graph, "ema_decay", scalar, decay);
  std::map<std::string, std::pair<Value, Value>> weights;  // of the average and of the new value, by count
  for (const Trained& t : trained) {
    const auto [it, fresh] = weights.try_emplace(averages_count(graph, t.param));
    if (fresh) {
      const Value count = zeros_state(graph, it->first, {i32, {}});
      const Value first = equal(count, literal(count, 0));
      it->second = {select(first, literal(rate, 0), rate), select(first, literal(rate, 1), 1.0 - rate)};
      update(graph, count, count + 1);
    }
    const auto& [keep, take] = it->second;
    const ir::ValueId next = graph.updates()[static_cast<size_t>(graph.find_update(t.param.id()))].value;
    const Value average =
        state(graph, average_name(t.param.name()), {scalar, t.param.shape()}, {ir::InitKind::zeros, {}});
    update(graph, average, average * keep + in_dtype(graph.handle(next), scalar) * take);
  }
}

ir::Graph use_averages(const ir::Graph& graph,
                       const std::function<std::optional<TensorType>(const std::string& state)>& find) {
  ir::Graph result;
  std::vector<ir::ValueId> now(static_cast<size_t>(graph.num_values()), ir::kNoValue);
  const auto at = [&](ir::ValueId v) -> ir::ValueId& { return now[static_cast<size_t>(v)]; };
  // A derived state in the store is of the parameters themselves: its expression is computed here instead.
  const auto replaced = [&](ir::ValueId value) {
    for (const ir::Derivation& d : graph.derivations()) {
      if (d.value == value) at(d.state) = at(value);
    }
  };
  for (ir::ValueId id = 0; id < graph.num_values(); ++id) {
    const ir::ValueInfo& info = graph.value(id);
    if (graph.is_external(id) && graph.find_derivation(id) == nullptr) {
      at(id) = result.add_external(info.role, info.name, info.type, info.attrs);
    } else if (info.role == ir::Role::constant) {
      at(id) = result.add_constant(info.data, info.name);
    }
  }
  std::map<std::string, Value> counts;
  for (ir::ValueId id = 0; id < graph.num_values(); ++id) {
    const ir::ValueInfo& info = graph.value(id);
    const std::optional<TensorType> type = info.role == ir::Role::param ? find(average_name(info.name)) : std::nullopt;
    if (type) {
      const Value param = result.handle(at(id));
      const auto [it, fresh] = counts.try_emplace(averages_count(result, param));
      if (fresh) it->second = zeros_state(result, it->first, {i32, {}});
      const Value average = state(result, average_name(info.name), *type, {ir::InitKind::zeros, {}});
      const Value none = equal(it->second, literal(it->second, 0));
      at(id) = select(none, param, in_dtype(average, param.dtype())).id();
    }
    if (info.producer == ir::kNoOp) replaced(id);
  }
  if (counts.empty()) {
    throw Error("use_ema: the shared store has no averages", "train with ema_decay, and pass that program as `share`");
  }
  for (const ir::Op& op : graph.ops()) {
    std::vector<ir::ValueId> inputs;
    for (ir::ValueId v : op.inputs) inputs.push_back(at(v));
    const std::vector<ir::ValueId> outputs =
        result.op(result.add_op(*op.def, std::move(inputs), op.attrs, op.region)).outputs;
    for (size_t i = 0; i < outputs.size(); ++i) {
      at(op.outputs[i]) = outputs[i];
      result.set_label(outputs[i], graph.value(op.outputs[i]).name);
      replaced(op.outputs[i]);
    }
  }
  for (const ir::Output& o : graph.outputs()) result.add_output(o.name, at(o.value));
  return result;
}

}  // namespace aicf::optim
