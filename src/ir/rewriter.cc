#include "ir/rewriter.h"

#include "aicf/error.h"

namespace aicf::ir {

Rewriter::Rewriter(const Graph& source) : source_(source), map_(static_cast<size_t>(source.num_values()), kNoValue) {
  for (ValueId id = 0; id < source.num_values(); ++id) {
    const ValueInfo& v = source.value(id);
    if (source.is_external(id)) {
      map_[id] = target_.add_external(v.role, v.name, v.type, v.attrs);
    } else if (v.role == Role::constant) {
      map_[id] = target_.add_constant(v.data, v.name);
    }
  }
}

ValueId Rewriter::map(ValueId old_value) const {
  const ValueId id = map_[old_value];
  if (id == kNoValue) throw InternalError("rewriter: " + value_name(source_, old_value) + " has no new value");
  return id;
}

void Rewriter::copy(OpId old_op) {
  const Op& op = source_.op(old_op);
  std::vector<ValueId> inputs;
  for (ValueId v : op.inputs) inputs.push_back(map(v));
  const OpId copied = target_.add_op(*op.def, std::move(inputs), op.attrs, op.region);
  for (size_t i = 0; i < op.outputs.size(); ++i) replace(op.outputs[i], target_.op(copied).outputs[i]);
}

void Rewriter::replace(ValueId old_value, ValueId new_value) {
  map_[old_value] = new_value;
  const ValueInfo& to = target_.value(new_value);
  if (to.role == Role::tmp && to.name.empty()) target_.set_label(new_value, source_.value(old_value).name);
}

Graph Rewriter::finish(Keep keep) {
  for (const Update& u : source_.updates()) {
    if (!keep.updates) break;
    target_.add_update(map(u.target), map(u.value), u.guard == kNoValue ? kNoValue : map(u.guard));
  }
  for (const Derivation& d : source_.derivations()) {
    // An expression that is gone takes the relation with it: by then the updates carry it (passes/derive.cc).
    if (keep.derivations && has(d.value)) target_.add_derivation(map(d.state), map(d.value));
  }
  for (const Output& o : source_.outputs()) {
    if (!keep.outputs) break;
    target_.add_output(o.name, map(o.value));
  }
  return std::move(target_);
}

}  // namespace aicf::ir
