// The invariants of a graph, checked after every pass. Messages: "SUBJECT: expected …, got …", the subject being
// "op NAME of %value", "update of %value", "output "name"" or "ROLE %value".
#include <fmt/format.h>

#include <set>
#include <string>

#include "aicf/suggest.h"
#include "ir/op.h"
#include "ir/text.h"

namespace aicf::ir {
namespace {

[[noreturn]] void fail(const std::string& subject, const std::string& expected, const std::string& got,
                       const std::string& hint = {}) {
  throw Error(fmt::format("{}: expected {}, got {}", subject, expected, got), hint);
}

class Verifier {
 public:
  Verifier(const Graph& graph, int depth) : graph_(graph), depth_(depth) {}

  void run() {
    for (ValueId v = 0; v < graph_.num_values(); ++v) value(v);
    for (OpId i = 0; i < graph_.num_ops(); ++i) op(i);
    if (depth_ == 0) {
      for (const Update& u : graph_.updates()) update(u);
      for (const Derivation& d : graph_.derivations()) derivation(d);
    } else if (!graph_.updates().empty() || !graph_.derivations().empty()) {
      fail("body", "inputs, constants and ops", "an update or a derivation");
    }
    outputs();
  }

 private:
  std::string name(ValueId v) const { return value_name(graph_, v); }
  bool in_graph(ValueId v) const { return v >= 0 && v < graph_.num_values(); }

  void need(const std::string& subject, const char* what, ValueId v) const {
    if (!in_graph(v)) fail(subject, fmt::format("{} of this graph", what), "none");
  }

  std::string subject_of(OpId i) const {
    const Op& op = graph_.op(i);
    const char* kind = op.def == nullptr ? "(none)" : op.def->name;
    const bool named = !op.outputs.empty() && in_graph(op.outputs[0]);
    return named ? fmt::format("op {} of {}", kind, name(op.outputs[0])) : fmt::format("op {}", kind);
  }

  void value(ValueId v) const {
    const ValueInfo& info = graph_.value(v);
    const std::string subject = fmt::format("{} {}", name_of(info.role), name(v));
    if (info.role == Role::tmp) {
      const bool produced = info.producer >= 0 && info.producer < graph_.num_ops();
      if (!produced) fail(subject, "an op that produces it", "none");
      const std::vector<ValueId>& outputs = graph_.op(info.producer).outputs;
      const bool result = info.result >= 0 && info.result < static_cast<int>(outputs.size());
      if (!result || outputs[info.result] != v) fail(subject, "to be a result of its op", "another value there");
    } else if (info.producer != kNoOp) {
      fail(subject, "no op that produces it", info.producer < graph_.num_ops() ? subject_of(info.producer) : "one");
    }
    if ((info.role == Role::constant) != (info.data != nullptr)) {
      fail(subject, info.data ? "no elements" : "elements", info.data ? "some" : "none");
    }
    if (info.data != nullptr && info.data->type() != info.type) {
      fail(subject, "elements of " + to_string(info.type), to_string(info.data->type()));
    }
    if (depth_ > 0 && (info.role == Role::param || info.role == Role::state)) {
      fail("body", "inputs, constants and ops", subject);
    }
    key(v, subject);
  }

  void key(ValueId v, const std::string& subject) const {
    const ValueInfo& info = graph_.value(v);
    if (info.role == Role::tmp || (info.role == Role::constant && info.name.empty())) return;
    if (info.name.empty()) fail(subject, "a name", "an empty one");
    if (graph_.find_external(info.name) != v) fail(subject, "a name of its own", "one that another value has");
  }

  void op(OpId i) const {
    const Op& op = graph_.op(i);
    const std::string subject = subject_of(i);
    if (op.def == nullptr) fail(subject, "a record", "none");
    if (op.outputs.empty()) fail(subject, "a result", "none");
    for (size_t k = 0; k < op.outputs.size(); ++k) {
      const ValueId v = op.outputs[k];
      need(subject, "results", v);
      if (graph_.value(v).producer != i || graph_.value(v).result != static_cast<int>(k)) {
        fail(subject, fmt::format("{} to be its result {}", name(v), k), "a result of another op or place");
      }
    }
    std::vector<TensorType> in;
    for (const ValueId v : op.inputs) {
      need(subject, "operands", v);
      if (v >= op.outputs[0]) fail(subject, fmt::format("operand {} defined before its use", name(v)), "it after");
      in.push_back(graph_.type(v));
    }
    const int count = op.def->num_inputs;
    if (count == kVariadic ? in.empty() : static_cast<int>(in.size()) != count) {
      fail(subject, count == kVariadic ? "one operand or more" : fmt::format("{} operands", count),
           std::to_string(in.size()));
    }
    check_attrs(*op.def, op.attrs, subject);
    if (op.region != nullptr) region(subject, *op.region);
    types(op, subject, in);
  }

  void types(const Op& op, const std::string& subject, const std::vector<TensorType>& in) const {
    const std::vector<TensorType> out = op.def->infer(InferCtx{*op.def, in, op.attrs, op.region.get()});
    if (out.size() != op.outputs.size()) {
      fail(subject, fmt::format("{} results", out.size()), std::to_string(op.outputs.size()));
    }
    for (size_t k = 0; k < out.size(); ++k) {
      const ValueId v = op.outputs[k];
      if (graph_.type(v) != out[k]) {
        fail(subject, fmt::format("{} : {}", name(v), to_string(out[k])), to_string(graph_.type(v)));
      }
    }
  }

  void region(const std::string& subject, const Graph& body) const {
    if (depth_ + 1 > kMaxBodyDepth)
      fail(subject, fmt::format("at most {} bodies in one another", kMaxBodyDepth), "more");
    try {
      Verifier(body, depth_ + 1).run();
    } catch (const Error& e) {
      throw Error(fmt::format("{}, in its body: {}", subject, e.what()), e.hint());
    }
  }

  void update(const Update& u) const {
    need("update", "a target", u.target);
    const std::string subject = "update of " + name(u.target);
    const ValueInfo& target = graph_.value(u.target);
    if (target.role != Role::param && target.role != Role::state) {
      fail(subject, "a param or a state", fmt::format("{} {}", name_of(target.role), name(u.target)));
    }
    need(subject, "a value", u.value);
    if (graph_.type(u.value) != target.type) {
      fail(subject, to_string(target.type), fmt::format("{} : {}", name(u.value), to_string(graph_.type(u.value))));
    }
    const Update& first = graph_.updates()[static_cast<size_t>(graph_.find_update(u.target))];
    if (&first != &u) fail(subject, "one", "two");
    if (u.guard == kNoValue) return;
    need(subject, "a guard", u.guard);
    const TensorType& guard = graph_.type(u.guard);
    if (guard != TensorType{DType::boolean, {}}) {
      fail(subject, "a guard of bool[]", fmt::format("{} : {}", name(u.guard), to_string(guard)));
    }
  }

  void derivation(const Derivation& d) const {
    need("derivation", "a state", d.state);
    const std::string subject = "derivation of " + name(d.state);
    const ValueInfo& state = graph_.value(d.state);
    if (state.role != Role::state) fail(subject, "a state", fmt::format("{} {}", name_of(state.role), name(d.state)));
    need(subject, "a value", d.value);
    if (graph_.type(d.value) != state.type) {
      fail(subject, to_string(state.type), fmt::format("{} : {}", name(d.value), to_string(graph_.type(d.value))));
    }
    if (graph_.find_derivation(d.state) != &d) fail(subject, "one", "two");
    check_derivation(graph_, d);
  }

  void outputs() const {
    std::set<std::string> names;
    for (const Output& o : graph_.outputs()) {
      const std::string subject = fmt::format("output \"{}\"", o.name);
      need(subject, "a value", o.value);
      if (!names.insert(o.name).second) fail(subject, "a name of its own", "one that another output has");
    }
    if (depth_ > 0 && names.empty()) fail("body", "a result", "none");
  }

  const Graph& graph_;
  int depth_;
};

const char* kind_text(AttrSpec::Kind kind) {
  constexpr const char* kNames[] = {"a bool", "an integer", "a float", "a string", "a list of integers", "a dtype"};
  return kNames[static_cast<int>(kind)];
}

bool holds(AttrSpec::Kind kind, const AttrValue& value) {
  switch (kind) {
    case AttrSpec::Kind::boolean:
      return std::holds_alternative<bool>(value);
    case AttrSpec::Kind::integer:
      return std::holds_alternative<int64_t>(value);
    case AttrSpec::Kind::real:
      return std::holds_alternative<double>(value);
    case AttrSpec::Kind::text:
      return std::holds_alternative<std::string>(value);
    case AttrSpec::Kind::ints:
      return std::holds_alternative<std::vector<int64_t>>(value);
    case AttrSpec::Kind::dtype:
      return std::holds_alternative<DType>(value);
  }
  return false;
}

}  // namespace

void check_attrs(const OpDef& def, const Attrs& attrs, const std::string& subject) {
  for (const auto& [name, value] : attrs) {
    const AttrSpec* spec = nullptr;
    std::vector<std::string> known;
    for (const AttrSpec& s : def.attrs) {
      known.push_back(s.name);
      if (s.name == name) spec = &s;
    }
    if (spec == nullptr) {
      const std::string list = known.empty() ? "no attributes" : fmt::format("one of {}", fmt::join(known, ", "));
      fail(subject, list, name, base::did_you_mean(name, known));
    }
    if (!holds(spec->kind, value)) {
      fail(subject, fmt::format("{} for {}", kind_text(spec->kind), name), to_string(value));
    }
  }
  for (const AttrSpec& s : def.attrs) {
    if (s.required && !attrs.has(s.name)) fail(subject, fmt::format("the attribute {}", s.name), "none");
  }
}

// One walk over the derivations in order refreshes them all: each reads params, states, and states derived before it.
void check_derivation(const Graph& graph, const Derivation& derivation) {
  const std::string subject = "derivation of " + value_name(graph, derivation.state);
  std::set<ValueId> seen;
  std::vector<ValueId> open = {derivation.value};
  while (!open.empty()) {
    const ValueId v = open.back();
    open.pop_back();
    if (!seen.insert(v).second) continue;
    const ValueInfo& info = graph.value(v);
    if (info.role == Role::input)
      fail(subject, "an expression of params and states", "the input " + value_name(graph, v));
    const Derivation* other = info.role == Role::state ? graph.find_derivation(v) : nullptr;
    if (other != nullptr && other >= &derivation) {
      fail(subject, "an expression of states that are derived before it", value_name(graph, v));
    }
    if (info.role != Role::tmp) continue;
    const Op& op = graph.op(info.producer);
    if (op.def->is(kRandom)) fail(subject, "an expression that draws nothing", fmt::format("op {}", op.def->name));
    open.insert(open.end(), op.inputs.begin(), op.inputs.end());
  }
}

void verify(const Graph& graph) { Verifier(graph, 0).run(); }

}  // namespace aicf::ir
