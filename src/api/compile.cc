// The line of stages, on one screen: see compile() at the end. Model → graph → gradients → update → passes → kernels →
// plan → program.
#include <algorithm>
#include <cstdlib>

#include "aicf/error.h"
#include "aicf/ops.h"
#include "aicf/program.h"
#include "aicf/suggest.h"
#include "api/plan_cache.h"
#include "autodiff/differentiate.h"
#include "base/pattern.h"
#include "ir/rewriter.h"
#include "ir/text.h"
#include "lower/evaluate.h"
#include "lower/lower.h"
#include "ops/rng_bits.h"
#include "optim/optimizer.h"
#include "passes/input_checks.h"
#include "passes/pass.h"
#include "plan/plan.h"
#include "runtime/program.h"

namespace aicf {
namespace {

using ir::Graph;
using ir::kNoValue;
using ir::Role;
using ir::ValueId;
using runtime::Compiled;

constexpr const char* kLoss = "loss";
constexpr std::string_view kGradSuffix = ".grad";

void check_owner(const Model& model, const Value& value, const std::string& what) {
  if (!value.valid()) throw Error(what + " is an empty Value");
  if (value.graph() != &model.graph()) throw Error(what + " is a value of another model");
}

bool is_frozen(const ir::ValueInfo& param, const std::vector<std::string>& patterns) {
  if (!param.attrs.get_bool("trainable", true)) return true;
  return std::any_of(patterns.begin(), patterns.end(),
                     [&](const std::string& p) { return base::matches(p, param.name); });
}

void check_freeze_patterns(const Graph& graph, const std::vector<std::string>& patterns) {
  std::vector<std::string> params;
  for (const ir::ValueInfo& v : graph.values()) {
    if (v.role == Role::param) params.push_back(v.name);
  }
  for (const std::string& p : patterns) {
    const bool any =
        std::any_of(params.begin(), params.end(), [&](const std::string& name) { return base::matches(p, name); });
    if (!any) throw Error("freeze: no parameter matches '" + p + "'", base::did_you_mean(p, params));
  }
}

bool runs_updates(const CompileOptions& options) {
  return options.updates.value_or(options.loss.valid() || options.outputs.empty());
}

// The model's graph with this program's outputs named and updates chosen. From here on values are found by name: passes
// renumber.
Graph program_graph(const Model& model, const CompileOptions& options) {
  const bool has_loss = options.loss.valid();
  ir::Rewriter rewriter(model.graph());
  for (ir::OpId id = 0; id < model.graph().num_ops(); ++id) rewriter.copy(id);
  Graph graph = rewriter.finish({.updates = runs_updates(options), .outputs = options.outputs.empty()});
  if (has_loss) {
    check_owner(model, options.loss, "the loss");
    const ValueId loss = rewriter.map(options.loss.id());
    if (const ValueId declared = graph.find_output(kLoss); declared == kNoValue) {
      graph.add_output(kLoss, loss);
    } else if (declared != loss) {
      throw Error("the model's output \"loss\" is not the loss", "give that output another name");
    }
  }
  for (const auto& [name, value] : options.outputs) {
    check_owner(model, value, "output '" + name + "'");
    if (name.empty()) throw Error("output with an empty name");
    const ValueId mapped = rewriter.map(value.id());
    if (name == kLoss && graph.find_output(name) == mapped) continue;
    graph.add_output(name, mapped);
  }
  return graph;
}

// What draws draws anew in the next step, whether this one is skipped or not.
void advance_rng(Graph& graph) {
  const auto draws = [](const ir::Op& op) { return op.def->is(ir::kRandom); };
  if (std::none_of(graph.ops().begin(), graph.ops().end(), draws)) return;
  const Value offset = ops::rng_states(graph).offset;
  if (graph.find_update(offset.id()) < 0) graph.add_update(offset.id(), (offset + 1).id());
}

struct Gradients {
  std::vector<optim::Trained> trained;
  std::vector<std::string> untrained;
  std::vector<std::pair<std::string, ValueId>> named;  // "fc1.weight.grad" → value: one value may have several names
};

// Appends the backward: of every trainable parameter, and of what `fetch` asks the gradient of.
Gradients add_gradients(Graph& graph, const CompileOptions& options) {
  passes::expand_undifferentiable(graph);
  const ValueId loss = graph.find_output(kLoss);
  const TensorType type = graph.type(loss);
  ValueId cotangent = kNoValue;
  if (options.grad_initial_input) {
    cotangent = graph.add_external(Role::input, "grad_initial", type);
  } else if (type.shape.elements() == 1) {
    Tensor one(type);
    set_element(type.dtype, one.data(), 0, 1.0);
    cotangent = graph.add_constant(std::move(one));
  } else {
    throw Error("the loss has type " + to_string(type) + ": expected one element",
                "reduce it with mean() or sum(), or set grad_initial_input");
  }

  check_freeze_patterns(graph, options.freeze);
  std::vector<ValueId> wrt;
  Gradients result;
  for (ValueId id = 0; id < graph.num_values(); ++id) {
    const ir::ValueInfo& v = graph.value(id);
    const auto wanted = [&](const std::string& f) { return f == v.name + std::string(kGradSuffix); };
    const bool fetched = graph.is_external(id) && std::any_of(options.fetch.begin(), options.fetch.end(), wanted);
    const bool frozen = v.role == Role::param && is_frozen(v, options.freeze);
    if (frozen) result.untrained.push_back(v.name);
    if ((v.role == Role::param && !frozen) || fetched) wrt.push_back(id);
  }
  const auto grads = autodiff::differentiate(graph, loss, cotangent, wrt);
  for (size_t i = 0; i < wrt.size(); ++i) {
    const ir::ValueInfo& v = graph.value(wrt[i]);
    if (grads[i]) result.named.emplace_back(v.name + std::string(kGradSuffix), *grads[i]);
    if (v.role != Role::param || is_frozen(v, options.freeze)) {
      if (!grads[i]) throw Error("fetch: '" + v.name + "' has no gradient: nothing leads from it to the loss");
      continue;
    }
    if (grads[i]) {
      result.trained.push_back({graph.handle(wrt[i]), graph.handle(*grads[i])});
    } else {
      result.untrained.push_back(v.name);
    }
  }
  return result;
}

void add_optimizer(Graph& graph, const CompileOptions& options, const std::vector<optim::Trained>& trained) {
  if (trained.empty()) {
    throw Error("no parameter to train: none leads to the loss, or all are frozen",
                "`untrained` parameters are skipped");
  }
  options.optimizer.impl()->emit(graph, trained);
  const Value applied =
      graph.handle(graph.add_external(Role::state, passes::kStepsApplied, {i64, {}}, {{"init", std::string("zeros")}}));
  graph.add_update(applied.id(), (applied + 1).id());
}

// A float with the dtype the model declares for this name: a precision policy may compute it in another.
ValueId as_declared(Graph& graph, const Model& model, const std::string& name, ValueId value) {
  const ValueId declared = model.graph().find(name);
  if (value == kNoValue || declared == kNoValue) return value;
  const DType is = graph.type(value).dtype, was = model.graph().type(declared).dtype;
  return is_float(is) && is_float(was) ? cast(graph.handle(value), was).id() : value;
}

void add_fetched(Graph& graph, const Model& model, const CompileOptions& options, const Gradients& gradients) {
  for (const std::string& name : options.fetch) {
    const auto named = std::find_if(gradients.named.begin(), gradients.named.end(),
                                    [&](const auto& entry) { return entry.first == name; });
    const ValueId value =
        named != gradients.named.end() ? named->second : as_declared(graph, model, name, graph.find(name));
    if (const ValueId output = graph.find_output(name); output != kNoValue) {
      if (output == value) continue;
      throw Error("fetch: '" + name + "' names an output and another value", "give the output another name");
    }
    if (value == kNoValue) {
      std::vector<std::string> known;
      for (const ir::ValueInfo& v : graph.values()) {
        if (!v.name.empty()) known.push_back(v.name);
      }
      for (const auto& entry : gradients.named) known.push_back(entry.first);
      throw Error("fetch: no value is named '" + name + "'", base::did_you_mean(name, known));
    }
    graph.add_output(name, value);
  }
}

// "adam with m, v": the optimizer's name, and the tensors it keeps of this parameter.
std::string rule_of(const Graph& graph, const std::string& optimizer, const std::string& param) {
  std::string rule = optimizer;
  const std::string_view prefix = "optimizer.";
  for (const ir::ValueInfo& v : graph.values()) {
    if (v.role != Role::state || !v.name.starts_with(prefix) || !v.name.ends_with("/" + param)) continue;
    const std::string kind = v.name.substr(prefix.size(), v.name.size() - prefix.size() - param.size() - 1);
    rule += (rule == optimizer ? " with " : ", ") + kind;
  }
  return rule;
}

std::vector<runtime::TrainedGroup> groups_of(const Graph& graph, const optim::Optimizer& optimizer,
                                             const std::vector<optim::Trained>& trained) {
  std::vector<runtime::TrainedGroup> groups;
  for (const optim::Trained& t : trained) {
    const ir::ValueInfo& param = graph.value(t.param.id());
    const std::string group = param.attrs.get_string("group");
    auto it = std::find_if(groups.begin(), groups.end(), [&](const auto& g) { return g.name == group; });
    if (it == groups.end()) it = groups.insert(groups.end(), {group, rule_of(graph, optimizer.name(), param.name), {}});
    it->params.push_back(param.name);
  }
  return groups;
}

// Passes, kernels, plan, proof.
void finish(Compiled& compiled, const CompileOptions& options, backend::Backend& backend) {
  compiled.graph = compiled.step;
  passes::run_pipeline(compiled.graph, options.disable_passes, lower::evaluate_on_cpu);
  double budget = options.tune_budget;
  std::vector<backend::PreparedKernel> kernels =
      lower::lower(compiled.graph, backend.kernels(), {options.tune, &budget});
  compiled.plan =
      plan::make_plan(compiled.graph, std::move(kernels), {options.alias, options.reuse, backend.concurrent()});
  plan::check_plan(compiled.graph, compiled.plan);
  lower::link(compiled.plan, backend);
}

// A program that recomputes the derived states of a step: the model's, and compute copies.
std::shared_ptr<const Compiled> compile_refresher(const Compiled& program, backend::Backend& backend) {
  const Graph& step = program.step;
  auto compiled = std::make_shared<Compiled>();
  compiled->model = step;
  ir::Rewriter rewriter(step);
  for (ir::OpId id = 0; id < step.num_ops(); ++id) rewriter.copy(id);
  compiled->step = rewriter.finish({.updates = false, .outputs = false});
  // Chains of derived states are computed from their roots: each expression reads the new value of those before it.
  const std::vector<ir::Derivation> derivations(compiled->step.derivations().begin(),
                                                compiled->step.derivations().end());
  for (const ir::Derivation& d : derivations) {
    compiled->step.add_update(d.state, passes::next_value(compiled->step, d.value));
  }
  finish(*compiled, {.disable_passes = program.disabled_passes}, backend);
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

std::string cache_key(const Compiled& c, const CompileOptions& options, backend::Backend& backend) {
  std::string key = ir::print(c.model) + ir::print(c.step) + std::string(backend.name()) + "\n" + backend.description();
  key += options.alias ? "\nalias" : "\nno alias";
  key += options.reuse ? "\nreuse" : "\nno reuse";
  key += options.tune ? "\ntuned" : "";
  for (const std::string& p : options.disable_passes) key += "\nwithout " + p;
  for (const std::string& u : c.untrained) key += "\nuntrained " + u;
  return key;
}

}  // namespace

Program compile(Model& model, const CompileOptions& options) {
  backend::Backend& backend = choose_backend(options);
  auto compiled = std::make_shared<Compiled>();
  compiled->model = model.graph();

  Graph graph = program_graph(model, options);
  if (options.training.value_or(runs_updates(options))) {
    advance_rng(graph);
  } else {
    passes::inference_mode(graph);
  }
  passes::apply_precision(graph, options.precision);
  Gradients gradients;
  if (options.loss.valid()) {
    gradients = add_gradients(graph, options);
  } else if (!options.optimizer.empty() || options.grad_initial_input) {
    throw Error("compile: an optimizer or grad_initial_input without a loss");
  }
  compiled->untrained = gradients.untrained;
  compiled->grad = graph;
  if (!options.optimizer.empty()) add_optimizer(graph, options, gradients.trained);
  add_fetched(graph, model, options, gradients);
  if (!options.optimizer.empty()) compiled->groups = groups_of(graph, options.optimizer, gradients.trained);
  if (graph.outputs().empty() && graph.updates().empty()) {
    throw Error("compile: nothing to compute", "give a loss, outputs, or declare outputs or updates in the model");
  }
  passes::compute_casts(graph);
  ir::verify(graph);
  compiled->step = std::move(graph);
  compiled->hash = ir::structural_hash(compiled->step);
  compiled->disabled_passes = options.disable_passes;

  const std::shared_ptr<const Compiled> ready = api::cached(cache_key(*compiled, options, backend), [&] {
    finish(*compiled, options, backend);
    return compiled;
  });

  const std::shared_ptr<runtime::Store> store =
      options.share.valid() ? options.share.impl()->store() : std::make_shared<runtime::Store>(backend, model.seed());
  const std::lock_guard<std::mutex> lock(store->mutex());
  runtime::Store::Trial trial(*store);
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
  trial.keep();
  return Program(std::move(impl));
}

}  // namespace aicf
