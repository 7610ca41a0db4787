// input_checks: every label and index that the step reads is checked on the device, and the result (`inputs_ok`) gates
// every update. Runs on live ops, while composites still name the index operands the user knows.
#include "passes/input_checks.h"

#include <algorithm>
#include <limits>
#include <map>
#include <optional>

#include "aicf/ops.h"
#include "ir/op.h"
#include "ops/defs.h"
#include "passes/pass.h"

namespace aicf::passes {
namespace {

struct InputCheck {
  std::string op;      // "cross_entropy"
  std::string tensor;  // the index operand's name
  int64_t extent = 0;
  int64_t ignore = 0;
  bool has_ignore = false;
};

struct Found {
  ir::ValueId index;
  InputCheck check;
};

struct Bounds {
  double low = -std::numeric_limits<double>::infinity();
  double high = std::numeric_limits<double>::infinity();
};

// Between which values the elements lie by construction.
Bounds bounds_of(const ir::Graph& graph, ir::ValueId id) {
  const ir::ValueInfo& v = graph.value(id);
  Bounds bounds;
  if (v.role == ir::Role::constant) {
    std::swap(bounds.low, bounds.high);
    for (double x : v.data->to_doubles()) {
      bounds.low = std::min(bounds.low, x);
      bounds.high = std::max(bounds.high, x);
    }
    return bounds;
  }
  if (v.producer == ir::kNoOp) return bounds;
  const ir::Op& op = graph.op(v.producer);
  const std::string_view name = op.def->name;
  const auto extent = [&](const TensorType& type) {
    const auto axis = static_cast<int>(op.attrs.get_int("axis"));
    return static_cast<double>(type.shape[axis < 0 ? axis + type.shape.rank() : axis]);
  };
  if (name == "iota") return {0, extent(v.type) - 1};
  if (name == "argmax") return {0, extent(graph.type(op.inputs[0])) - 1};
  if (name == "minimum" || name == "maximum") {
    const Bounds a = bounds_of(graph, op.inputs[0]), b = bounds_of(graph, op.inputs[1]);
    if (name == "minimum") return {std::min(a.low, b.low), std::min(a.high, b.high)};
    return {std::max(a.low, b.low), std::max(a.high, b.high)};
  }
  return bounds;
}

bool proven(const ir::Graph& graph, ir::ValueId index, const InputCheck& check) {
  const Bounds bounds = bounds_of(graph, index);
  return bounds.low >= 0 && bounds.high < static_cast<double>(check.extent);
}

bool same(const Found& a, const Found& b) {
  return a.index == b.index && a.check.extent == b.check.extent && a.check.has_ignore == b.check.has_ignore &&
         a.check.ignore == b.check.ignore;
}

// The backward's scatter repeats its forward's gather: one check serves both, named after the first.
std::vector<Found> find(const ir::Graph& graph) {
  std::vector<Found> found;
  for (const ir::Op& op : graph.ops()) {
    std::vector<TensorType> in;
    for (ir::ValueId v : op.inputs) in.push_back(graph.type(v));
    for (const ir::IndexOperand& row : op.def->index_operands) {
      Found f;
      f.index = op.inputs[static_cast<size_t>(row.operand)];
      f.check.op = op.def->name;
      const std::string name = ir::value_name(graph, f.index);
      f.check.tensor = name.substr(1);
      f.check.extent = row.extent(in, op.attrs);
      f.check.has_ignore = op.attrs.has("ignore_index");
      if (f.check.has_ignore) f.check.ignore = op.attrs.get_int("ignore_index");
      if (proven(graph, f.index, f.check)) continue;
      if (std::none_of(found.begin(), found.end(), [&](const Found& other) { return same(f, other); })) {
        found.push_back(f);
      }
    }
  }
  return found;
}

std::string message(const InputCheck& c) {
  return c.op + ": '" + c.tensor + "' holds a value outside [0," + std::to_string(c.extent) + ")" +
         (c.has_ignore ? " other than the ignored " + std::to_string(c.ignore) : "");
}

}  // namespace

bool input_checks(ir::Graph& graph) {
  const ir::ValueId known = graph.find_external(kInputError);
  if (known != ir::kNoValue && graph.value(known).attrs.get_bool("private")) return false;
  const std::vector<Found> found = find(graph);
  if (found.empty()) return false;
  const TensorType counter{i64, {}};
  ir::Attrs attrs{{"private", true}, {"init", std::string("zeros")}};
  std::string checks;
  for (const Found& f : found) checks += (checks.empty() ? "" : "\n") + message(f.check);
  attrs.set("checks", checks);
  const Value error = graph.handle(graph.add_external(ir::Role::state, kInputError, counter, attrs));
  attrs.erase("checks");
  const Value error_step = graph.handle(graph.add_external(ir::Role::state, kInputErrorStep, counter, attrs));

  Value code = literal(error, 0);
  for (size_t i = found.size(); i-- > 0;) {  // the first failing check wins
    const InputCheck& check = found[i].check;
    const Value ok = ops::in_range(graph.handle(found[i].index), check.extent,
                                   check.has_ignore ? std::optional<int64_t>(check.ignore) : std::nullopt);
    code = select(ok, code, literal(error, static_cast<double>(i + 1)));
  }
  const Value clean = equal(error, literal(error, 0));
  const Value next_error = select(clean, code, error).named(std::string(kInputError) + ".next");
  const Value ok = equal(next_error, literal(error, 0)).named("inputs_ok");

  std::map<ir::ValueId, ir::ValueId> both = {{ir::kNoValue, ok.id()}};  // one for all updates under one guard
  for (size_t i = 0; i < graph.updates().size(); ++i) {
    const auto [it, fresh] = both.try_emplace(graph.updates()[i].guard, ir::kNoValue);
    if (fresh) it->second = logical_and(graph.handle(it->first), ok).id();
    graph.set_guard(i, it->second);
  }
  graph.add_update(error.id(), next_error.id());
  const auto counted = [&](const char* name) {
    const ir::ValueId known = graph.find_external(name);
    return known != ir::kNoValue && graph.type(known) == counter ? graph.handle(known) : Value();
  };
  if (Value step = counted(kStepsApplied); step.valid()) {
    if (const Value skipped = counted(kStepsSkipped); skipped.valid()) step = step + skipped;
    graph.add_update(error_step.id(), select(clean, step + 1, error_step).id());
  }
  return true;
}

}  // namespace aicf::passes
