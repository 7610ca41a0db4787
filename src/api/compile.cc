// The line of stages, on one screen: see compile() at the end. Model → graph → gradients → update → passes → kernels →
// plan → program.

#include <algorithm>
#include <cstdlib>

#include "aicf/error.h"
#include "aicf/program.h"
#include "api/machine.h"
#include "api/plan_cache.h"
#include "api/stages.h"
#include "ir/rewriter.h"
#include "ir/text.h"
#include "lower/evaluate.h"
#include "lower/lower.h"
#include "optim/averages.h"
#include "passes/pass.h"
#include "plan/plan.h"
#include "runtime/program.h"

namespace aicf {
namespace {

using ir::Graph;
using runtime::Compiled;

// Passes, kernels, plan, proof. Products that `known` names run as it says.
void finish(Compiled& compiled, const CompileOptions& options, backend::Backend& backend,
            const backend::Choices& known) {
  compiled.graph = compiled.step;
  passes::run_pipeline(compiled.graph, options.disable_passes, lower::evaluate_on_cpu);
  double budget = options.tune_budget;
  std::vector<backend::PreparedKernel> kernels =
      lower::lower(compiled.graph, backend.kernels(), {options.tune, &budget, &known, &compiled.kernels});
  compiled.plan =
      plan::make_plan(compiled.graph, std::move(kernels), {options.alias, options.reuse, backend.concurrent()});
  plan::check_plan(compiled.graph, compiled.plan);
  lower::link(compiled.plan, backend);
}

// A program that recomputes the derived states of a step: the model's, and compute copies.
std::shared_ptr<const Compiled> compile_refresher(const Compiled& program, backend::Backend& backend) {
  const Graph& step = program.step;
  auto compiled = std::make_shared<Compiled>();
  compiled->model = program.model;
  ir::Rewriter rewriter(step);
  for (ir::OpId id = 0; id < step.num_ops(); ++id) rewriter.copy(id);
  compiled->step = rewriter.finish({.updates = false, .outputs = false});
  // Chains of derived states are computed from their roots: each expression reads the new value of those before it.
  const std::vector<ir::Derivation> derivations(compiled->step.derivations().begin(),
                                                compiled->step.derivations().end());
  for (const ir::Derivation& d : derivations) {
    compiled->step.add_update(d.state, passes::next_value(compiled->step, d.value));
  }
  finish(*compiled, {.disable_passes = program.disabled_passes}, backend, program.kernels);
  return compiled;
}

backend::Backend& choose_backend(const CompileOptions& options) {
  if (options.share.valid()) {
    backend::Backend& shared = options.share.impl()->store()->backend();
    if (options.backend != "auto" && options.backend != shared.name()) {
      throw Error("backend '" + options.backend + "' asked for, and the shared store is on '" +
                  std::string(shared.name()) + "'");
    }
    return shared;
  }
  if (options.backend != "auto") return backend::find(options.backend);
  if (const char* named = std::getenv("AICF_BACKEND"); named != nullptr && *named != '\0') return backend::find(named);
  try {
    return backend::find("cuda");
  } catch (const Error&) {
    return backend::cpu_backend();  // `aicf info` says why
  }
}

std::string cache_key(const Compiled& c, const CompileOptions& options, backend::Backend& backend,
                      const backend::Choices& known) {
  std::string key = ir::print(c.model) + ir::print(c.step) + std::string(backend.name()) + "\n" + backend.description();
  key += options.alias ? "\nalias" : "\nno alias";
  key += options.reuse ? "\nreuse" : "\nno reuse";
  key += options.tune ? "\ntuned" : "";
  for (const std::string& p : options.disable_passes) key += "\nwithout " + p;
  for (const std::string& u : c.untrained) key += "\nuntrained " + u;
  for (const auto& [product, choice] : known) key += "\n" + product + " by " + choice;
  return key;
}

}  // namespace

Program compile(Model& model, const CompileOptions& options) {
  api::check_options(options);
  backend::Backend& backend = choose_backend(options);
  auto compiled = std::make_shared<Compiled>();
  compiled->model = model.graph();

  Graph graph = api::program_graph(model, options);
  if (options.use_ema) {
    runtime::Store& store = *options.share.impl()->store();
    graph = optim::use_averages(graph, [&](const std::string& name) -> std::optional<TensorType> {
      const std::lock_guard<std::mutex> lock(store.mutex());
      const runtime::External* known = store.find(name);
      return known != nullptr ? std::optional(known->type) : std::nullopt;
    });
  }
  if (options.training.value_or(api::runs_updates(options))) {
    api::advance_rng(graph);
  } else {
    passes::inference_mode(graph);
  }
  passes::apply_precision(graph, options.precision);
  api::Gradients gradients;
  api::Fetched fetched;
  if (options.loss.valid()) {
    gradients = api::add_backward(graph, model, options, fetched);
  } else {
    fetched = api::find_fetched(graph, model, options, gradients);
  }
  compiled->untrained = gradients.untrained;
  compiled->grad = graph;
  const std::vector<optim::Trained> trained = gradients.trained(graph);
  if (!options.optimizer.empty()) api::add_optimizer(graph, options, trained);
  api::add_fetched(graph, options, gradients, fetched);
  if (!options.optimizer.empty()) compiled->groups = api::groups_of(graph, options.optimizer, trained);
  if (graph.outputs().empty() && graph.updates().empty()) {
    throw Error("compile: nothing to compute", "give a loss, outputs, or declare outputs or updates in the model");
  }
  passes::compute_casts(graph);
  ir::verify(graph);
  compiled->step = std::move(graph);
  compiled->hash = ir::structural_hash(compiled->step);
  compiled->disabled_passes = options.disable_passes;

  const backend::Choices known = options.kernels_of == api::machine_of(backend) ? options.kernels : backend::Choices();
  const std::shared_ptr<const Compiled> ready = api::cached(cache_key(*compiled, options, backend, known), [&] {
    finish(*compiled, options, backend, known);
    return compiled;
  });

  const std::shared_ptr<runtime::Store> store =
      options.share.valid() ? options.share.impl()->store() : std::make_shared<runtime::Store>(backend, model.seed());
  const std::lock_guard<std::mutex> lock(store->mutex());
  runtime::Store::Trial trial(*store);
  if (options.reconfigure) trial.reconfigure(ready->step, ready->groups);
  for (const runtime::TrainedGroup& group : ready->groups) store->claim_group(group);
  const auto derivations = ready->step.derivations();
  const bool fresh = std::any_of(derivations.begin(), derivations.end(), [&](const ir::Derivation& d) {
    return store->find(ready->step.value(d.state).name) == nullptr;
  });
  auto impl = std::make_shared<Program::Impl>(ready, store, options.mode, options.threads);
  if (fresh) {
    store->add_refresher(
        std::make_unique<runtime::Executable>(compile_refresher(*ready, backend), *store, options.threads));
    store->refresh();
  }
  if (options.reconfigure) {
    trial.keep(impl->executable());
  } else {
    trial.keep();
  }
  impl->joined();
  return Program(std::move(impl));
}

}  // namespace aicf
