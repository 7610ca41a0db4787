// The graph stages of compile(): from the model to the step's graph, before the passes. Values are found by name: each
// stage may renumber.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "aicf/program.h"
#include "ir/graph.h"
#include "optim/optimizer.h"
#include "runtime/executable.h"

namespace aicf::api {

// Throws Error on options that say nothing without another, or are out of their domain.
void check_options(const CompileOptions& options);

bool runs_updates(const CompileOptions& options);

// The model's graph with this program's outputs named and updates chosen.
ir::Graph program_graph(const Model& model, const CompileOptions& options);

// What draws draws anew in the next step, whether this one is skipped or not.
void advance_rng(ir::Graph& graph);

// Of an external: NAME.grad.
struct Gradient {
  std::string name;
  ir::ValueId value = ir::kNoValue;  // one value may be the gradient of several
  bool trained = false;              // a parameter's, and not only fetched
};

struct Gradients {
  std::vector<Gradient> all;
  std::vector<std::string> untrained;

  ir::ValueId find(const std::string& name) const;  // "fc1.weight.grad"
  std::vector<optim::Trained> trained(ir::Graph& graph) const;
};

// The values that `fetch` names, by name; those that are not there yet are missing.
using Fetched = std::map<std::string, ir::ValueId>;
Fetched find_fetched(ir::Graph& graph, const Model& model, const CompileOptions& options, const Gradients& gradients);

// Backward, and forward and backward of every micro-batch; the gradients divided by what the loss is scaled by and by
// what counts. Finds what is fetched on the way.
Gradients add_backward(ir::Graph& graph, const Model& model, const CompileOptions& options, Fetched& fetched);

// Check, clip, update, average; and what a skipped step leaves.
void add_optimizer(ir::Graph& graph, const CompileOptions& options, std::vector<optim::Trained> trained);

// Names what is fetched as outputs. Throws Error on what is not there.
void add_fetched(ir::Graph& graph, const CompileOptions& options, const Gradients& gradients, const Fetched& fetched);

std::vector<runtime::TrainedGroup> groups_of(const ir::Graph& graph, const optim::Optimizer& optimizer,
                                             const std::vector<optim::Trained>& trained);

}  // namespace aicf::api
