// Program::dump: every stage as text, and as a picture for Graphviz.
#include <algorithm>

#include "aicf/error.h"
#include "aicf/suggest.h"
#include "ir/op.h"
#include "ir/text.h"
#include "lower/evaluate.h"
#include "passes/pass.h"
#include "plan/plan.h"
#include "runtime/program.h"

namespace aicf {
namespace {

std::string escaped(const std::string& text) {
  std::string out;
  for (char c : text) {
    if (c == '"' || c == '\\') out += '\\';
    out += c;
  }
  return out;
}

// Externals are boxes, ops ellipses, updates dashed arrows back to their target.
std::string graph_to_dot(const ir::Graph& graph) {
  std::string dot = "digraph aicf {\n  node [fontname=\"monospace\", fontsize=10];\n";
  const auto id = [](ir::ValueId v) { return "v" + std::to_string(v); };
  const auto from = [&](ir::ValueId v) {
    const ir::OpId producer = graph.value(v).producer;
    return producer == ir::kNoOp ? id(v) : "o" + std::to_string(producer);
  };
  const auto label = [&](ir::ValueId v) {
    return escaped(ir::value_name(graph, v) + " : " + to_string(graph.type(v)));
  };
  for (ir::ValueId v = 0; v < graph.num_values(); ++v) {
    if (graph.value(v).role == ir::Role::tmp) continue;
    dot += "  " + id(v) + " [shape=box, label=\"" + std::string(name_of(graph.value(v).role)) + "\\n" + label(v) +
           "\"];\n";
  }
  for (ir::OpId o = 0; o < graph.num_ops(); ++o) {
    const ir::Op& op = graph.op(o);
    std::string results;
    for (ir::ValueId v : op.outputs) results += "\\n" + label(v);
    dot += "  o" + std::to_string(o) + " [label=\"" + op.def->name + escaped(to_string(op.attrs)) + results + "\"];\n";
    for (ir::ValueId v : op.inputs) dot += "  " + from(v) + " -> o" + std::to_string(o) + ";\n";
  }
  for (const ir::Update& u : graph.updates()) {
    dot += "  " + from(u.value) + " -> " + id(u.target) + " [style=dashed, label=\"update\"];\n";
  }
  for (size_t i = 0; i < graph.outputs().size(); ++i) {
    const ir::Output& output = graph.outputs()[i];
    const std::string node = "out" + std::to_string(i);
    dot += "  " + node + " [shape=box, style=bold, label=\"output " + escaped(output.name) + "\"];\n";
    dot += "  " + from(output.value) + " -> " + node + ";\n";
  }
  return dot + "}\n";
}

std::string passes_text(const runtime::Compiled& compiled) {
  std::string text;
  ir::Graph graph = compiled.step;
  passes::run_pipeline(graph, compiled.disabled_passes, lower::evaluate_on_cpu,
                       [&](const std::string& pass, const ir::Graph& after, bool changed) {
                         text += "# " + pass + (changed || pass == "input" ? "\n" + ir::print(after) : ": no change\n");
                       });
  return text;
}

}  // namespace

std::string Program::dump(const std::string& stage, const std::string& format) const {
  if (impl_ == nullptr) throw Error("use of an empty Program", "compile() makes one");
  const std::vector<std::string> stages = {"model", "grad", "step", "passes", "opt", "plan", "memory", "graph"};
  if (std::find(stages.begin(), stages.end(), stage) == stages.end()) {
    const std::string near = base::did_you_mean(stage, stages);
    throw Error("no stage is named '" + stage + "'",
                near.empty() ? "stages: model, grad, step, passes, opt, plan, memory, graph" : near);
  }
  const runtime::Compiled& c = impl_->compiled();
  const auto refuse = [&](const std::string& known) -> std::string {
    throw Error("stage '" + stage + "' has no format '" + format + "'", "formats: " + known);
  };
  if (stage == "plan") {
    if (format == "text") return plan::print(c.graph, c.plan);
    if (format == "dot") return plan::to_dot(c.graph, c.plan);
    if (format == "json") return plan::to_json(c.graph, c.plan);
    return refuse("text, dot, json");
  }
  if (stage == "graph") {
    const backend::CapturedGraph shown = impl_->step_graph();
    if (format == "text") return plan::print(shown);
    if (format == "dot") return plan::to_dot(shown);
    return refuse("text, dot");
  }
  if (stage == "memory") return format == "text" ? plan::print_memory(c.graph, c.plan) : refuse("text");
  if (stage == "passes") return format == "text" ? passes_text(c) : refuse("text");
  const ir::Graph& graph = stage == "model" ? c.model : stage == "grad" ? c.grad : stage == "step" ? c.step : c.graph;
  if (format == "text") return ir::print(graph);
  if (format == "dot") return graph_to_dot(graph);
  return refuse("text, dot");
}

}  // namespace aicf
