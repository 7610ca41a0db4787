// Hyper-parameters as states, groups, and the update of a tensor.
#include "optim/states.h"

#include <fmt/format.h>

#include <cmath>
#include <set>

#include "aicf/error.h"
#include "aicf/ops.h"
#include "aicf/suggest.h"
#include "optim/schedule.h"

namespace aicf::optim {
namespace {

std::string group_of(const ir::Graph& graph, ir::ValueId param) { return graph.value(param).attrs.get_string("group"); }

// A group whose parameters are all frozen is known, though nothing is updated under it.
void check_groups_exist(const ir::Graph& graph, const GroupDefaults& defaults) {
  std::set<std::string> known;
  for (ir::ValueId id = 0; id < graph.num_values(); ++id) {
    if (graph.value(id).role == ir::Role::param) known.insert(group_of(graph, id));
  }
  known.erase("");
  for (const Group& group : defaults.groups) {
    if (known.count(group.name) == 0) {
      throw Error(fmt::format("{}: no parameter has the group \"{}\"", defaults.optimizer, group.name),
                  base::did_you_mean(group.name, std::vector<std::string>(known.begin(), known.end())));
    }
  }
}

}  // namespace

Value state(ir::Graph& graph, const std::string& name, const TensorType& type, const ir::InitSpec& init) {
  return graph.handle(graph.add_external(ir::Role::state, name, type, ir::Attrs{{"init", ir::format_init(init)}}));
}

Value scalar_state(ir::Graph& graph, const std::string& name, DType dtype, double value) {
  return state(graph, "optimizer." + name, {dtype, {}}, {ir::InitKind::value, {value}});
}

Value values_state(ir::Graph& graph, const std::string& name, DType dtype, const std::vector<double>& values) {
  return state(graph, "optimizer." + name, {dtype, {static_cast<int64_t>(values.size())}},
               {ir::InitKind::values, values});
}

Value zeros_state(ir::Graph& graph, const std::string& name, const TensorType& type) {
  return state(graph, "optimizer." + name, type, {ir::InitKind::zeros, {}});
}

std::string group_prefix(const ir::Graph& graph, Value param) {
  const std::string name = group_of(graph, param.id());
  return name.empty() ? "" : name + ".";
}

Value in_dtype(Value x, DType dtype) { return x.dtype() == dtype ? x : cast(x, dtype); }

void update(ir::Graph& graph, Value target, Value value) {
  const Value next = in_dtype(value, target.dtype()).named(target.name() + ".next");
  graph.add_update(target.id(), next.id());
}

DType scalar_dtype(const std::vector<Trained>& trained) {
  for (const Trained& t : trained) {
    if (t.param.dtype() == f64) return f64;
  }
  return f32;
}

std::vector<GroupStep> begin_step(ir::Graph& graph, DType scalar, const GroupDefaults& defaults,
                                  const std::vector<Trained>& trained) {
  check_groups_exist(graph, defaults);
  std::vector<std::string> names;
  std::vector<GroupStep> steps;
  for (const Trained& t : trained) {
    const std::string name = group_of(graph, t.param.id());
    size_t i = 0;
    while (i < names.size() && names[i] != name) ++i;
    if (i == names.size()) {
      names.push_back(name);
      steps.emplace_back();
    }
    steps[i].members.push_back(t);
  }
  if (steps.empty()) return steps;

  const ScheduleStates schedule(graph, defaults.schedule, scalar);
  for (size_t i = 0; i < steps.size(); ++i) {
    double lr = defaults.lr, decay = defaults.weight_decay;
    for (const Group& group : defaults.groups) {
      if (group.name != names[i]) continue;
      lr = group.lr.value_or(lr);
      decay = group.weight_decay.value_or(decay);
    }
    const std::string prefix = group_prefix(graph, steps[i].members[0].param);
    const Value base = scalar_state(graph, prefix + "lr", scalar, lr);
    const Value effective = scalar_state(graph, prefix + "lr_effective", scalar, lr);
    GroupStep& s = steps[i];
    s.weight_decay = scalar_state(graph, prefix + "weight_decay", scalar, decay);
    s.step = zeros_state(graph, prefix + "step", {i32, {}});
    s.next_step = s.step + 1.0;
    s.lr = base * schedule.factor(s.step);
    update(graph, s.step, s.next_step);
    update(graph, effective, s.lr);
  }
  return steps;
}

void check_not_negative(const char* optimizer, const char* field, double value) {
  if (!(value >= 0) || std::isinf(value)) {
    throw Error(fmt::format("{}: expected {} finite and >= 0, got {}", optimizer, field, value));
  }
}

void check_fraction(const char* optimizer, const char* field, double value) {
  if (!(value >= 0 && value < 1))
    throw Error(fmt::format("{}: expected {} in [0, 1), got {}", optimizer, field, value));
}

void check_common(const GroupDefaults& defaults) {
  check_not_negative(defaults.optimizer, "lr", defaults.lr);
  check_not_negative(defaults.optimizer, "weight_decay", defaults.weight_decay);
  validate(defaults.schedule);
  std::set<std::string> names;
  for (const Group& group : defaults.groups) {
    if (group.name.empty()) {
      throw Error(fmt::format("{}: expected a group with a name, got \"\"", defaults.optimizer),
                  "the default group takes the optimizer's own lr and weight_decay");
    }
    if (!names.insert(group.name).second) {
      throw Error(fmt::format("{}: expected one entry for the group \"{}\", got two", defaults.optimizer, group.name));
    }
    const std::string of = " of group " + group.name;
    if (group.lr) check_not_negative(defaults.optimizer, ("lr" + of).c_str(), *group.lr);
    if (group.weight_decay) check_not_negative(defaults.optimizer, ("weight_decay" + of).c_str(), *group.weight_decay);
  }
}

}  // namespace aicf::optim
