// The graph stages of compile(): from the model to the step's graph, before the passes.
#include "api/stages.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "aicf/error.h"
#include "aicf/ops.h"
#include "aicf/suggest.h"
#include "autodiff/differentiate.h"
#include "base/pattern.h"
#include "ir/rewriter.h"
#include "ops/numeric.h"
#include "ops/rng_bits.h"
#include "optim/averages.h"
#include "optim/gradients.h"
#include "optim/states.h"
#include "passes/input_checks.h"
#include "passes/micro_batches.h"
#include "passes/pass.h"

namespace aicf::api {
namespace {

using ir::Graph;
using ir::kNoValue;
using ir::Role;
using ir::ValueId;

constexpr const char* kLoss = "loss";
constexpr const char* kGradInitial = "grad_initial";
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

}  // namespace

ValueId Gradients::find(const std::string& name) const {
  const auto it = std::find_if(all.begin(), all.end(),
                               [&](const Gradient& g) { return g.name + std::string(kGradSuffix) == name; });
  return it == all.end() ? kNoValue : it->value;
}

std::vector<optim::Trained> Gradients::trained(Graph& graph) const {
  std::vector<optim::Trained> list;
  for (const Gradient& g : all) {
    if (g.trained) list.push_back({graph.handle(graph.find_external(g.name)), graph.handle(g.value)});
  }
  return list;
}

bool runs_updates(const CompileOptions& options) {
  return options.updates.value_or(options.loss.valid() || options.outputs.empty());
}

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

namespace {

bool scales_loss(const CompileOptions& options) {
  return !options.optimizer.empty() && options.scale_loss.value_or(options.precision == "f16");
}

bool skips_steps(const CompileOptions& options) {
  return !options.optimizer.empty() &&
         options.skip_nonfinite.value_or(scales_loss(options) || options.clip_norm.has_value());
}

}  // namespace

void check_options(const CompileOptions& options) {
  const bool trains = !options.optimizer.empty();
  if (!options.loss.valid() && (trains || options.grad_initial_input)) {
    throw Error("compile: an optimizer or grad_initial_input without a loss");
  }
  const std::pair<const char*, bool> of_training[] = {{"scale_loss", options.scale_loss.value_or(false)},
                                                      {"skip_nonfinite", options.skip_nonfinite.value_or(false)},
                                                      {"clip_norm", options.clip_norm.has_value()},
                                                      {"clip_value", options.clip_value.has_value()},
                                                      {"ema_decay", options.ema_decay.has_value()}};
  for (const auto& [name, given] : of_training) {
    if (given && !trains) throw Error(std::string("compile: ") + name + " without an optimizer");
  }
  if (options.reconfigure && (!trains || !options.share.valid())) {
    throw Error("compile: reconfigure is for a program that trains and shares a store",
                "give `share` and an optimizer, or neither");
  }
  if (scales_loss(options) && !skips_steps(options)) {
    throw Error("compile: a scaled loss needs skip_nonfinite: the scale is found by steps that are skipped",
                "set scale_loss to false too");
  }
  for (const auto& [name, limit] : {std::pair("clip_norm", options.clip_norm), {"clip_value", options.clip_value}}) {
    if (limit && !(*limit >= 0)) {
      throw Error(fmt::format("compile: expected {} 0 or more, got {}", name, *limit));
    }
  }
  if (options.micro_batches < 1 || (options.micro_batches > 1 && !options.loss.valid())) {
    throw Error(
        fmt::format("compile: expected micro_batches 1 or more, and 1 without a loss, got {}", options.micro_batches));
  }
  if (options.use_ema && (options.loss.valid() || runs_updates(options) || !options.share.valid())) {
    throw Error("compile: use_ema is for a program that trains nothing and shares a store",
                "give `outputs` and `share`, and no loss");
  }
}

void advance_rng(Graph& graph) {
  const auto draws = [](const ir::Op& op) { return op.def->is(ir::kRandom); };
  if (std::none_of(graph.ops().begin(), graph.ops().end(), draws)) return;
  const Value offset = ops::rng_states(graph).offset;
  if (graph.find_update(offset.id()) < 0) graph.add_update(offset.id(), (offset + 1).id());
}

namespace {

// Appends the backward of the loss, multiplied by `factor` where there is one: of every trainable parameter, and of
// what `fetch` asks the gradient of.
Gradients add_gradients(Graph& graph, const CompileOptions& options, ValueId loss, Value factor) {
  const TensorType type = graph.type(loss);
  ValueId cotangent = kNoValue;
  if (options.grad_initial_input) {
    cotangent = graph.add_external(Role::input, kGradInitial, type);
  } else if (type.shape.elements() == 1) {
    Tensor one(type);
    set_element(type.dtype, one.data(), 0, 1.0);
    cotangent = graph.add_constant(std::move(one));
  } else {
    throw Error("the loss has type " + to_string(type) + ": expected one element",
                "reduce it with mean() or sum(), or set grad_initial_input");
  }
  if (factor.valid()) cotangent = (graph.handle(cotangent) * cast(factor, type.dtype)).id();

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
    const bool trained = v.role == Role::param && !is_frozen(v, options.freeze);
    if (grads[i]) {
      result.all.push_back({v.name, *grads[i], trained});
    } else if (trained) {
      result.untrained.push_back(v.name);
    } else {
      throw Error("fetch: '" + v.name + "' has no gradient: nothing leads from it to the loss");
    }
  }
  return result;
}

void divide(Graph& graph, Gradients& gradients, Value divisor) {
  std::map<DType, Value> reciprocals;
  std::map<ValueId, ValueId> quotients;
  for (Gradient& g : gradients.all) {
    const auto [it, fresh] = quotients.try_emplace(g.value, kNoValue);
    if (fresh) {
      const Value x = ops::widen(graph.handle(g.value));
      Value& reciprocal = reciprocals[x.dtype()];
      if (!reciprocal.valid()) reciprocal = 1.0 / cast(divisor, x.dtype());
      it->second = (x * reciprocal).named(graph.value(g.value).name).id();
    }
    g.value = it->second;
  }
}

// A float with the dtype the model declares for this name: a precision policy may compute it in another.
ValueId as_declared(Graph& graph, const Model& model, const std::string& name, ValueId value) {
  const ValueId declared = model.graph().find(name);
  if (value == kNoValue || declared == kNoValue) return value;
  const DType is = graph.type(value).dtype, was = model.graph().type(declared).dtype;
  return is_float(is) && is_float(was) ? cast(graph.handle(value), was).id() : value;
}

}  // namespace

Fetched find_fetched(Graph& graph, const Model& model, const CompileOptions& options, const Gradients& gradients) {
  Fetched fetched;
  for (const std::string& name : options.fetch) {
    if (gradients.find(name) != kNoValue || graph.find_output(name) != kNoValue) continue;
    const ValueId value = as_declared(graph, model, name, graph.find(name));
    if (value != kNoValue) fetched[name] = value;
  }
  return fetched;
}

namespace {

// What the loss is divided by: the elements that count, or nothing's one.
Value at_least_one(Value count) { return maximum(count, literal(count, 1)); }

// The step of all micro-batches, from that of one. Returns the count of their loss's elements, if it has one.
Value repeat(Graph& graph, const CompileOptions& options, const passes::SummedLoss& loss, Gradients& gradients,
             Fetched& fetched) {
  using Kind = passes::Wanted::Kind;
  std::vector<std::string> inputs, shared = options.shared_inputs;
  for (const ir::ValueInfo& v : graph.values()) {
    if (v.role == Role::input) inputs.push_back(v.name);
  }
  for (const std::string& name : shared) {
    if (std::count(inputs.begin(), inputs.end(), name) == 0) {
      throw Error("shared_inputs: no input is named '" + name + "'", base::did_you_mean(name, inputs));
    }
  }
  shared.emplace_back(kGradInitial);
  const auto is_split = [&](const std::string& name) {
    return std::count(inputs.begin(), inputs.end(), name) > std::count(shared.begin(), shared.end(), name);
  };

  std::vector<passes::Wanted> wanted = {{kLoss, loss.sum}};
  const bool counts = loss.count != kNoValue;
  if (counts) wanted.push_back({"count", loss.count});
  for (const Gradient& g : gradients.all) {
    wanted.push_back({g.name + std::string(kGradSuffix), g.value, is_split(g.name) ? Kind::pieces : Kind::sum});
  }
  for (const auto& [name, value] : fetched) wanted.push_back({name, value, Kind::rows});
  const std::vector<ir::Output> outputs(graph.outputs().begin(), graph.outputs().end());
  for (const ir::Output& o : outputs) {
    if (o.name != kLoss) wanted.push_back({o.name, o.value, Kind::rows});
  }
  const DType dtype = graph.type(graph.find_output(kLoss)).dtype;
  graph = passes::micro_batches(graph, options.micro_batches, shared, wanted);

  auto next = wanted.begin();
  const auto take = [&] { return (next++)->value; };
  Value total = graph.handle(take()), count;
  if (counts) {
    count = graph.handle(take());
    total = total / cast(at_least_one(count), total.dtype());
  }
  for (Gradient& g : gradients.all) g.value = take();
  for (auto& [name, value] : fetched) value = take();
  for (const ir::Output& o : outputs) {
    graph.add_output(o.name, o.name == kLoss ? cast(total, dtype).id() : take());
  }
  return count;
}

}  // namespace

Gradients add_backward(Graph& graph, const Model& model, const CompileOptions& options, Fetched& fetched) {
  passes::expand_undifferentiable(graph);
  const bool several = options.micro_batches > 1;
  const ValueId loss = graph.find_output(kLoss);
  passes::SummedLoss summed{loss};
  if (several) summed = passes::summed_loss(graph, loss, options.shared_inputs);
  const optim::ScaleStates scale(graph);
  Value factor, divisor;
  if (scales_loss(options)) {
    optim::ScaleStates::declare(graph, options.loss_scale);
    factor = scale.value();
  }
  // The gradients of a sum are as many times as large as those of a mean, which an f16 might not hold: a power of two
  // takes that away, and rounds nothing.
  double share = 1;
  if (summed.count != kNoValue) {
    const double elements = static_cast<double>(summed.elements) * static_cast<double>(options.micro_batches);
    share = std::exp2(-std::ceil(std::log2(elements)));
    factor = factor.valid() ? factor * share : literal(graph.handle(loss), share);
  }
  Gradients gradients = add_gradients(graph, options, summed.sum, factor);
  fetched = find_fetched(graph, model, options, gradients);
  if (several && options.optimizer.empty()) {  // each would wait for gradients that nobody asked for
    std::erase_if(gradients.all, [&](const Gradient& g) {
      return std::count(options.fetch.begin(), options.fetch.end(), g.name + std::string(kGradSuffix)) == 0;
    });
  }
  Value count;
  if (several) count = repeat(graph, options, summed, gradients, fetched);
  if (scales_loss(options)) divisor = scale.value();
  if (count.valid()) {
    count = at_least_one(count) * share;
    divisor = divisor.valid() ? divisor * count : count;
  }
  if (divisor.valid()) divide(graph, gradients, divisor);
  return gradients;
}

void add_optimizer(Graph& graph, const CompileOptions& options, std::vector<optim::Trained> trained) {
  if (trained.empty()) {
    throw Error("no parameter to train: none leads to the loss, or all are frozen",
                "`untrained` parameters are skipped");
  }
  const DType scalar = optim::scalar_dtype(trained);
  Value norm, finite;
  if (options.clip_norm) {
    norm = optim::global_norm(trained);
    finite = isfinite(norm);
    optim::clip_by_norm(trained, norm, optim::scalar_state(graph, "clip_norm", scalar, *options.clip_norm));
  } else if (skips_steps(options)) {
    finite = optim::all_finite(trained);
  }
  if (options.clip_value) {
    optim::clip_by_value(trained, optim::scalar_state(graph, "clip_value", scalar, *options.clip_value));
  }
  options.optimizer.impl()->emit(graph, trained);
  const ir::InitSpec zero{ir::InitKind::zeros, {}};
  const Value applied = optim::state(graph, passes::kStepsApplied, {i64, {}}, zero);
  optim::update(graph, applied, applied + 1);
  if (options.ema_decay) optim::add_averages(graph, *options.ema_decay, trained);
  // What follows a skipped step changes too.
  if (skips_steps(options)) {
    optim::guard_updates(graph, finite.named("grads_finite"));
    const Value skipped = optim::state(graph, passes::kStepsSkipped, {i64, {}}, zero);
    optim::update(graph, skipped, select(finite, skipped, skipped + 1));
  }
  if (scales_loss(options)) optim::ScaleStates(graph).add_updates(finite);
  if (norm.valid()) {
    // Infinity stands for a NaN too, which could be any of several.
    const Value shown = select(finite, norm, literal(norm, HUGE_VAL));
    optim::update(graph, optim::state(graph, "grad_norm", {scalar, {}}, zero), shown);
  }
}

void add_fetched(Graph& graph, const CompileOptions& options, const Gradients& gradients, const Fetched& fetched) {
  for (const std::string& name : options.fetch) {
    const auto known_value = fetched.find(name);
    ValueId value = known_value != fetched.end() ? known_value->second : gradients.find(name);
    if (value == kNoValue) value = graph.find(name);  // what the optimizer declared or computed
    if (const ValueId output = graph.find_output(name); output != kNoValue) {
      if (output == value) continue;
      throw Error("fetch: '" + name + "' names an output and another value", "give the output another name");
    }
    if (value == kNoValue) {
      std::vector<std::string> known;
      for (const ir::ValueInfo& v : graph.values()) {
        if (!v.name.empty()) known.push_back(v.name);
      }
      for (const Gradient& g : gradients.all) known.push_back(g.name + std::string(kGradSuffix));
      throw Error("fetch: no value is named '" + name + "'", base::did_you_mean(name, known));
    }
    graph.add_output(name, value);
  }
}

namespace {

constexpr std::string_view kOptimizer = "optimizer.";

// What the optimizer keeps of this parameter: optimizer.KIND/PARAM.
std::vector<std::string> tensors_of(const Graph& graph, const std::string& param) {
  std::vector<std::string> names;
  for (const ir::ValueInfo& v : graph.values()) {
    if (v.role == Role::state && v.name.starts_with(kOptimizer) && v.name.ends_with("/" + param)) {
      names.push_back(v.name);
    }
  }
  return names;
}

// "adam with m, v": the optimizer's name, and the tensors it keeps of this parameter.
std::string rule_of(const Graph& graph, const std::string& optimizer, const std::string& param) {
  std::string rule = optimizer;
  for (const std::string& name : tensors_of(graph, param)) {
    const std::string kind = name.substr(kOptimizer.size(), name.size() - kOptimizer.size() - param.size() - 1);
    rule += (rule == optimizer ? " with " : ", ") + kind;
  }
  return rule;
}

}  // namespace

std::vector<runtime::TrainedGroup> groups_of(const Graph& graph, const optim::Optimizer& optimizer,
                                             const std::vector<optim::Trained>& trained) {
  std::vector<runtime::TrainedGroup> groups;
  for (const optim::Trained& t : trained) {
    const ir::ValueInfo& param = graph.value(t.param.id());
    const std::string group = param.attrs.get_string("group");
    auto it = std::find_if(groups.begin(), groups.end(), [&](const auto& g) { return g.name == group; });
    if (it == groups.end()) {
      it = groups.insert(groups.end(), {group, rule_of(graph, optimizer.name(), param.name), {}, {}});
      const std::string prefix = optim::group_prefix(graph, t.param);
      it->counted = {{std::string(kOptimizer) + prefix + "step", {}},
                     {std::string(kOptimizer) + optim::averages_count(graph, t.param), {}}};
    }
    it->params.push_back(param.name);
    for (std::string& name : tensors_of(graph, param.name)) it->counted[0].tensors.push_back(std::move(name));
    if (std::string name = optim::average_name(param.name); graph.find_external(name) != kNoValue) {
      it->counted[1].tensors.push_back(std::move(name));
    }
  }
  return groups;
}

}  // namespace aicf::api
