#include "ir/graph.h"

#include <algorithm>
#include <utility>

#include "aicf/error.h"
#include "ir/op.h"

namespace aicf::ir {

std::string_view name_of(Role role) {
  constexpr std::string_view kNames[] = {"input", "param", "state", "constant", "tmp"};
  return kNames[static_cast<int>(role)];
}

std::string value_name(const Graph& graph, ValueId id) {
  const std::string& name = graph.value(id).name;
  return "%" + (name.empty() ? std::to_string(id) : name);
}

std::vector<ValueId> externals_of(const Graph& graph, ValueId id) {
  std::vector<char> seen(static_cast<size_t>(graph.num_values()), 0);
  std::vector<ValueId> open = {id}, externals;
  while (!open.empty()) {
    const ValueId v = open.back();
    open.pop_back();
    if (std::exchange(seen[v], 1)) continue;
    if (graph.is_external(v)) externals.push_back(v);
    if (const Derivation* d = graph.find_derivation(v)) open.push_back(d->value);
    if (const OpId producer = graph.value(v).producer; producer != kNoOp) {
      const std::vector<ValueId>& inputs = graph.op(producer).inputs;
      open.insert(open.end(), inputs.begin(), inputs.end());
    }
  }
  return externals;
}

ValueId Graph::add_external(Role role, const std::string& key, TensorType type, Attrs attrs) {
  if (key.empty()) throw Error(std::string(name_of(role)) + " with an empty name");
  const auto id = static_cast<ValueId>(values_.size());
  if (!keys_.emplace(key, id).second) {
    throw Error(std::string(name_of(role)) + " %" + key + ": the name is taken by another " +
                std::string(name_of(values_[keys_.find(key)->second].role)));
  }
  ValueInfo info;
  info.type = type;
  info.role = role;
  info.name = key;
  info.attrs = std::move(attrs);
  values_.push_back(std::move(info));
  return id;
}

ValueId Graph::add_constant(Tensor data, const std::string& key) {
  return add_constant(std::make_shared<const Tensor>(std::move(data)), key);
}

ValueId Graph::add_constant(std::shared_ptr<const Tensor> data, const std::string& key) {
  if (key.empty()) {
    for (size_t i = 0; i < values_.size(); ++i) {
      const ValueInfo& v = values_[i];
      if (v.role == Role::constant && v.name.empty() && *v.data == *data) return static_cast<ValueId>(i);
    }
  }
  const auto id = static_cast<ValueId>(values_.size());
  if (!key.empty() && !keys_.emplace(key, id).second) throw Error("constant %" + key + ": the name is taken");
  ValueInfo info;
  info.type = data->type();
  info.role = Role::constant;
  info.name = key;
  info.data = std::move(data);
  values_.push_back(std::move(info));
  return id;
}

OpId Graph::add_op(const OpDef& def, std::vector<ValueId> inputs, Attrs attrs, std::shared_ptr<const Graph> region) {
  std::vector<TensorType> in;
  in.reserve(inputs.size());
  for (ValueId v : inputs) {
    if (v < 0 || v >= num_values()) throw InternalError(std::string(def.name) + ": operand of another graph");
    in.push_back(values_[v].type);
  }
  const bool count_ok =
      def.num_inputs == kVariadic ? !inputs.empty() : static_cast<int>(inputs.size()) == def.num_inputs;
  if (!count_ok) {
    throw Error(call_text(def, in) + ": expected " +
                (def.num_inputs == kVariadic ? "one operand or more" : std::to_string(def.num_inputs) + " operands") +
                ", got " + std::to_string(inputs.size()));
  }
  const std::vector<TensorType> out = def.infer(InferCtx{def, in, attrs, region.get()});
  const auto op_id = static_cast<OpId>(ops_.size());
  Op op;
  op.def = &def;
  op.inputs = std::move(inputs);
  op.attrs = std::move(attrs);
  op.region = std::move(region);
  for (size_t i = 0; i < out.size(); ++i) {
    ValueInfo info;
    info.type = out[i];
    info.producer = op_id;
    info.result = static_cast<int>(i);
    op.outputs.push_back(static_cast<ValueId>(values_.size()));
    values_.push_back(std::move(info));
  }
  ops_.push_back(std::move(op));
  return op_id;
}

static void check_guard(const Graph& graph, ValueId guard) {
  if (guard != kNoValue && graph.type(guard) != TensorType{DType::boolean, {}}) {
    throw Error("guard " + value_name(graph, guard) + ": expected bool[], got " + to_string(graph.type(guard)));
  }
}

void Graph::add_update(ValueId target, ValueId value, ValueId guard) {
  const ValueInfo& x = values_[target];
  if (x.role != Role::param && x.role != Role::state) {
    throw Error("update of " + value_name(*this, target) + ": expected a param or a state, got a " +
                std::string(name_of(x.role)));
  }
  if (find_update(target) >= 0) throw Error("update of " + value_name(*this, target) + ": it has one already");
  if (x.type != values_[value].type) {
    throw Error("update of " + value_name(*this, target) + ": expected " + to_string(x.type) + ", got " +
                to_string(values_[value].type));
  }
  check_guard(*this, guard);
  updates_.push_back({target, value, guard});
}

void Graph::set_guard(size_t update_index, ValueId guard) {
  check_guard(*this, guard);
  updates_[update_index].guard = guard;
}

void Graph::add_derivation(ValueId state, ValueId value) {
  const ValueInfo& x = values_[state];
  if (x.role != Role::state) throw Error("derivation of " + value_name(*this, state) + ": expected a state");
  if (find_derivation(state) != nullptr) {
    throw Error("derivation of " + value_name(*this, state) + ": it has one already");
  }
  if (x.type != values_[value].type) {
    throw Error("derivation of " + value_name(*this, state) + ": expected " + to_string(x.type) + ", got " +
                to_string(values_[value].type));
  }
  derivations_.push_back({state, value});
}

void Graph::add_output(const std::string& name, ValueId value) {
  if (find_output(name) != kNoValue) throw Error("output \"" + name + "\": the name is taken");
  outputs_.push_back({name, value});
}

void Graph::set_label(ValueId tmp, const std::string& label) {
  if (values_[tmp].role == Role::tmp) values_[tmp].name = label;
}

void Graph::set_attr(ValueId external, std::string_view name, AttrValue value) {
  values_[external].attrs.set(name, std::move(value));
}

bool Graph::is_external(ValueId id) const {
  const Role role = values_[id].role;
  return role == Role::input || role == Role::param || role == Role::state;
}

ValueId Graph::find_external(std::string_view key) const {
  auto it = keys_.find(key);
  return it == keys_.end() ? kNoValue : it->second;
}

ValueId Graph::find_output(std::string_view name) const {
  for (const Output& output : outputs_) {
    if (output.name == name) return output.value;
  }
  return kNoValue;
}

ValueId Graph::find(std::string_view name) const {
  if (ValueId id = find_external(name); id != kNoValue) return id;
  if (ValueId id = find_output(name); id != kNoValue) return id;
  for (int id = num_values() - 1; id >= 0; --id) {
    if (values_[id].role == Role::tmp && !name.empty() && values_[id].name == name) return id;
  }
  return kNoValue;
}

int Graph::find_update(ValueId target) const {
  for (size_t i = 0; i < updates_.size(); ++i) {
    if (updates_[i].target == target) return static_cast<int>(i);
  }
  return -1;
}

const Derivation* Graph::find_derivation(ValueId state) const {
  for (const Derivation& d : derivations_) {
    if (d.state == state) return &d;
  }
  return nullptr;
}

std::vector<std::vector<OpId>> Graph::readers() const {
  std::vector<std::vector<OpId>> result(values_.size());
  for (OpId i = 0; i < num_ops(); ++i) {
    for (ValueId v : ops_[i].inputs) {
      if (result[v].empty() || result[v].back() != i) result[v].push_back(i);
    }
  }
  return result;
}

}  // namespace aicf::ir
