// Graph to text, and the hash over it. parse.cc is its inverse; docs/ir.md has the grammar.
#include <fmt/format.h>

#include <iterator>
#include <unordered_map>

#include "base/hash.h"
#include "ir/lexer.h"
#include "ir/literal.h"
#include "ir/op.h"
#include "ir/text.h"

namespace aicf::ir {
namespace {

using Names = std::vector<std::string>;  // spelled, by value id
using Order = std::vector<ValueId>;      // the order of the statements: each value once, an op at its first result

Order natural_order(const Graph& graph) {
  Order order(static_cast<size_t>(graph.num_values()));
  for (size_t i = 0; i < order.size(); ++i) order[i] = static_cast<ValueId>(i);
  return order;
}

// Where externals and constants were declared between the ops does not matter.
Order canonical_order(const Graph& graph) {
  Order order;
  for (ValueId v = 0; v < graph.num_values(); ++v) {
    if (graph.is_external(v)) order.push_back(v);
  }
  for (ValueId v = 0; v < graph.num_values(); ++v) {
    if (graph.value(v).role == Role::constant) order.push_back(v);
  }
  for (const Op& op : graph.ops()) order.insert(order.end(), op.outputs.begin(), op.outputs.end());
  return order;
}

// Keys keep their names (but the inputs of a body are positional); tmps are numbered in order.
Names canonical_names(const Graph& graph, const Order& order, bool body) {
  Names names(static_cast<size_t>(graph.num_values()));
  int numbers = 0, constants = 0;
  for (ValueId v : order) {
    const ValueInfo& info = graph.value(v);
    if (info.role == Role::tmp || (body && info.role != Role::constant)) {
      names[v] = fmt::format("%{}", numbers++);
    } else if (info.name.empty()) {
      names[v] = fmt::format("%c{}", constants++);
    } else {
      names[v] = "%" + word_text(info.name);
    }
  }
  return names;
}

// A tmp whose label is its own is called by it; others get their id, which parsing gives back.
Names natural_names(const Graph& graph, bool body) {
  std::unordered_map<std::string, int> uses;
  for (const ValueInfo& info : graph.values()) {
    if (!info.name.empty()) ++uses[info.name];
  }
  Names names(static_cast<size_t>(graph.num_values()));
  int constants = 0;
  for (ValueId v = 0; v < graph.num_values(); ++v) {
    const ValueInfo& info = graph.value(v);
    const std::string id = std::to_string(v);
    std::string name;
    if (info.name.empty()) {
      name = info.role == Role::constant ? fmt::format("c{}", constants++) : id;
    } else if (info.role == Role::tmp && uses[info.name] > 1) {
      name = word_text(info.name) + "#" + id;
    } else {
      name = body && info.role == Role::input && info.name == id ? id : word_text(info.name);
    }
    names[v] = "%" + name;
  }
  return names;
}

class Printer {
 public:
  explicit Printer(bool canonical) : canonical_(canonical) {}

  std::string text(const Graph& graph) {
    out_ = "graph {\n";
    graph_body(graph, false, "  ");
    return std::move(out_) + "}\n";
  }

 private:
  void graph_body(const Graph& graph, bool body, const std::string& indent) {
    const Order order = canonical_ ? canonical_order(graph) : natural_order(graph);
    const Names names = canonical_ ? canonical_names(graph, order, body) : natural_names(graph, body);
    for (ValueId v : order) {
      const ValueInfo& info = graph.value(v);
      if (info.role == Role::tmp) {
        if (info.result == 0) op(graph, names, graph.op(info.producer), indent);
      } else {
        declaration(info, names[v], indent);
      }
    }
    if (body) {
      yield(graph, names, indent);
    } else {
      effects(graph, names, indent);
    }
  }

  void declaration(const ValueInfo& info, const std::string& name, const std::string& indent) {
    add("{}{} {} : {}", indent, name_of(info.role), name, to_string(info.type));
    if (info.role == Role::constant) {
      out_ += " = ";
      elements(*info.data);
    }
    attrs(info.attrs);
    out_ += '\n';
  }

  void elements(const Tensor& data) {
    const bool scalar = data.shape().rank() == 0;
    if (!scalar) out_ += '[';
    for (int64_t i = 0; i < data.elements(); ++i) {
      if (i > 0) out_ += ", ";
      out_ += element_text(data.dtype(), data.data(), i);
    }
    if (!scalar) out_ += ']';
  }

  void op(const Graph& graph, const Names& names, const Op& op, const std::string& indent) {
    out_ += indent;
    list(names, op.outputs);
    add(" = {}(", op.def->name);
    list(names, op.inputs);
    out_ += ')';
    attrs(op.attrs);
    out_ += " : ";
    for (size_t i = 0; i < op.outputs.size(); ++i) add("{}{}", i > 0 ? ", " : "", to_string(graph.type(op.outputs[i])));
    if (op.region != nullptr) {
      out_ += " body {\n";
      graph_body(*op.region, true, indent + "  ");
      add("{}}}", indent);
    }
    out_ += '\n';
  }

  // Results are called 0, 1, … unless the op gives their names a meaning.
  void yield(const Graph& graph, const Names& names, const std::string& indent) {
    add("{}yield ", indent);
    for (size_t i = 0; i < graph.outputs().size(); ++i) {
      const Output& o = graph.outputs()[i];
      if (i > 0) out_ += ", ";
      if (o.name != std::to_string(i)) add("{} = ", to_string(AttrValue(o.name)));
      out_ += names[o.value];
    }
    out_ += '\n';
  }

  void effects(const Graph& graph, const Names& names, const std::string& indent) {
    for (const Derivation& d : graph.derivations()) add("{}derive {} := {}\n", indent, names[d.state], names[d.value]);
    for (const Update& u : graph.updates()) {
      add("{}update {} := {}", indent, names[u.target], names[u.value]);
      if (u.guard != kNoValue) add(" when {}", names[u.guard]);
      out_ += '\n';
    }
    for (const Output& o : graph.outputs()) {
      add("{}output {} = {}\n", indent, to_string(AttrValue(o.name)), names[o.value]);
    }
  }

  void list(const Names& names, const std::vector<ValueId>& values) {
    for (size_t i = 0; i < values.size(); ++i) add("{}{}", i > 0 ? ", " : "", names[values[i]]);
  }

  void attrs(const Attrs& attrs) {
    if (!attrs.empty()) add(" {}", to_string(attrs));
  }

  template <class... Args>
  void add(fmt::format_string<Args...> format, Args&&... args) {
    fmt::format_to(std::back_inserter(out_), format, std::forward<Args>(args)...);
  }

  bool canonical_;
  std::string out_;
};

}  // namespace

std::string print(const Graph& graph) { return Printer(false).text(graph); }
std::string canonical_text(const Graph& graph) { return Printer(true).text(graph); }
uint64_t structural_hash(const Graph& graph) { return base::hash_text(canonical_text(graph)); }

}  // namespace aicf::ir
