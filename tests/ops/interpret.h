// A graph interpreter for tests: ops in order, every value in memory of its own. It shares nothing with the planner and
// the runtime, and so is a reference for both.
#pragma once

#include <map>
#include <stdexcept>
#include <string>
#include <vector>

#include "ops/kernel_run.h"
#include "passes/pass.h"

namespace aicf::test {

using TensorMap = std::map<std::string, Tensor>;

// The values of all of the graph's outputs, by name. `feeds` holds every external that is read. REQUIRES: no
// composites.
inline TensorMap interpret(const ir::Graph& graph, const TensorMap& feeds, const RunMode& mode = {}) {
  const backend::cpu::KernelTable& kernels = backend::cpu::kernel_table();
  std::vector<Tensor> values(static_cast<size_t>(graph.num_values()));
  for (ir::ValueId v = 0; v < graph.num_values(); ++v) {
    const ir::ValueInfo& info = graph.value(v);
    if (info.role == ir::Role::constant) values[v] = *info.data;
    if (!graph.is_external(v)) continue;
    const auto feed = feeds.find(info.name);
    if (feed == feeds.end()) continue;
    if (feed->second.type() != info.type) throw InternalError("interpret: feed " + info.name + " of another type");
    values[v] = feed->second;
  }
  for (const ir::Op& op : graph.ops()) {
    const BoundOp bound = bind(graph, op);
    const backend::Kernel* kernel = backend::choose(kernels, bound.query());
    if (kernel == nullptr) throw InternalError("interpret: no kernel for " + bound.text());
    std::vector<const Tensor*> operands;
    for (ir::ValueId v : op.inputs) {
      if (values[v].type() != graph.type(v)) throw InternalError("interpret: no value for " + value_name(graph, v));
      operands.push_back(&values[v]);
    }
    std::vector<Tensor> results = run_kernel(bound, *kernel, operands, mode);
    for (size_t o = 0; o < results.size(); ++o) values[op.outputs[o]] = std::move(results[o]);
  }
  TensorMap outputs;
  for (const ir::Output& output : graph.outputs()) outputs[output.name] = values[output.value];
  return outputs;
}

// The same for a graph that may hold composites.
inline TensorMap expand_and_interpret(ir::Graph graph, const TensorMap& feeds, const RunMode& mode = {}) {
  passes::expand(graph);
  return interpret(graph, feeds, mode);
}

}  // namespace aicf::test
