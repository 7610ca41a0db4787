// Model: names, parameters and layers over one ir::Graph.
#include "aicf/model.h"

#include <fmt/format.h>

#include <map>
#include <set>
#include <span>

#include "aicf/error.h"
#include "aicf/suggest.h"
#include "ir/graph.h"
#include "ir/init.h"
#include "ir/text.h"

namespace aicf {
namespace {

std::string init_text(const Init& init) {
  switch (init.kind) {
    case Init::Kind::zeros:
      return ir::format_init({ir::InitKind::zeros, {}});
    case Init::Kind::ones:
      return ir::format_init({ir::InitKind::ones, {}});
    case Init::Kind::value:
      return ir::format_init({ir::InitKind::value, {init.a}});
    case Init::Kind::uniform:
      return ir::format_init({ir::InitKind::uniform, {init.a, init.b}});
    case Init::Kind::normal:
      return ir::format_init({ir::InitKind::normal, {init.a, init.b}});
  }
  throw InternalError("an init kind without a text");
}

std::vector<std::string> external_names(const ir::Graph& graph, ir::Role role) {
  std::vector<std::string> names;
  for (const ir::ValueInfo& v : graph.values()) {
    if (v.role == role) names.push_back(v.name);
  }
  return names;
}

}  // namespace

struct Model::Impl {
  ir::Graph graph;
  uint64_t seed = 0;
  // Each layer added, by name. The handle is held: an address of a layer that died could return as another layer's.
  std::map<std::string, std::shared_ptr<const nn::Layer::Impl>> layers;
  std::map<const nn::Layer::Impl*, std::string> layer_names;
  std::map<std::string, int> kind_counts;

  ir::ValueId own(Value value, const std::string& what) const {
    if (!value.valid()) throw Error(what + ": an empty Value");
    if (value.graph() != &graph) throw Error(what + ": a value of another model");
    return value.id();
  }
  std::string name_for(const nn::Layer& layer, const std::string& wanted);
};

std::string Model::Impl::name_for(const nn::Layer& layer, const std::string& wanted) {
  const auto known = layer_names.find(layer.impl().get());
  if (known != layer_names.end()) {
    if (!wanted.empty() && wanted != known->second) {
      throw Error(fmt::format("layer {}: expected its own name, got \"{}\"", known->second, wanted),
                  "one layer has one name: leave it empty to share the parameters, or make a new layer");
    }
    return known->second;
  }
  if (wanted.empty()) {
    const std::string kind = layer.impl()->kind();
    std::string name;
    do {
      name = kind + std::to_string(++kind_counts[kind]);
    } while (layers.count(name) != 0);
    return name;
  }
  if (const auto other = layers.find(wanted); other != layers.end()) {
    throw Error(fmt::format("layer {}: the name is taken by another {}", wanted, other->second->kind()),
                "to share parameters add the same layer handle again; otherwise choose another name");
  }
  return wanted;
}

Model::Model(uint64_t seed) : impl_(std::make_unique<Impl>()) { impl_->seed = seed; }
Model::~Model() = default;
Model::Model(Model&&) noexcept = default;
Model& Model::operator=(Model&&) noexcept = default;

Value Model::input(const std::string& name, TensorType type) {
  return impl_->graph.handle(impl_->graph.add_external(ir::Role::input, name, type));
}

Value Model::param(const std::string& name, TensorType type, Init init, const std::string& group) {
  ir::Attrs attrs{{"init", init_text(init)}};
  if (!group.empty()) attrs.set("group", group);
  return impl_->graph.handle(impl_->graph.add_external(ir::Role::param, name, type, std::move(attrs)));
}

Value Model::state(const std::string& name, TensorType type, Init init) {
  return impl_->graph.handle(
      impl_->graph.add_external(ir::Role::state, name, type, ir::Attrs{{"init", init_text(init)}}));
}

Value Model::derived(const std::string& name, Value expression) {
  const ir::ValueId value = impl_->own(expression, "derived " + name);
  const ir::ValueId state = impl_->graph.add_external(ir::Role::state, name, expression.type());
  impl_->graph.add_derivation(state, value);
  return impl_->graph.handle(state);
}

Value Model::constant(const Tensor& data) { return impl_->graph.handle(impl_->graph.add_constant(data)); }

Value Model::add(const nn::Layer& layer, Value input, const std::string& name) {
  return add(layer, std::vector<Value>{input}, name);
}

Value Model::add(const nn::Layer& layer, const std::vector<Value>& inputs, const std::string& name) {
  if (layer.impl() == nullptr) throw Error("Model::add: an empty layer");
  const std::string chosen = impl_->name_for(layer, name);
  for (const Value& v : inputs) impl_->own(v, fmt::format("{} {}", layer.impl()->kind(), chosen));
  const bool first = impl_->layers.emplace(chosen, layer.impl()).second;
  impl_->layer_names.emplace(layer.impl().get(), chosen);
  try {
    const Value out = layer.impl()->emit(nn::LayerContext{*this, chosen}, inputs);
    // A layer that returns its input names nothing.
    for (const Value& v : inputs) {
      if (v == out) return out;
    }
    return out.named(chosen);
  } catch (...) {
    if (first) {
      impl_->layers.erase(chosen);
      impl_->layer_names.erase(layer.impl().get());
    }
    throw;
  }
}

std::string Model::name_of(const nn::Layer& layer) const {
  const auto known = impl_->layer_names.find(layer.impl().get());
  return known == impl_->layer_names.end() ? "" : known->second;
}

void Model::update(Value state, Value value) {
  const ir::ValueId target = impl_->own(state, "update");
  const ir::ValueInfo& info = impl_->graph.value(target);
  if (info.role != ir::Role::state) {
    throw Error(fmt::format("update of {}: expected a state, got a {}", ir::value_name(impl_->graph, target),
                            ir::name_of(info.role)));
  }
  if (impl_->graph.find_derivation(target) != nullptr) {
    throw Error(fmt::format("update of %{}: it is derived from others, and follows them by itself", info.name));
  }
  impl_->graph.add_update(target, impl_->own(value, "update of " + info.name));
}

void Model::output(const std::string& name, Value value) {
  if (name.empty()) throw Error("output with an empty name");
  impl_->graph.add_output(name, impl_->own(value, "output \"" + name + "\""));
}

Value Model::output(const std::string& name) const {
  const ir::ValueId id = impl_->graph.find_output(name);
  if (id == ir::kNoValue) {
    std::vector<std::string> names;
    for (const ir::Output& o : impl_->graph.outputs()) names.push_back(o.name);
    throw Error(fmt::format("no output \"{}\"", name), base::did_you_mean(name, names));
  }
  return impl_->graph.handle(id);
}

Value Model::value(const std::string& name) {
  const ir::ValueId id = impl_->graph.find(name);
  if (id == ir::kNoValue) {
    std::set<std::string> names;
    for (const ir::ValueInfo& v : impl_->graph.values()) names.insert(v.name);
    for (const ir::Output& o : impl_->graph.outputs()) names.insert(o.name);
    names.erase("");
    throw Error(fmt::format("no value named \"{}\"", name),
                base::did_you_mean(name, std::vector<std::string>(names.begin(), names.end())));
  }
  return impl_->graph.handle(id);
}

void Model::freeze(const std::string& param) {
  const ir::ValueId id = impl_->graph.find_external(param);
  if (id == ir::kNoValue || impl_->graph.value(id).role != ir::Role::param) {
    throw Error(fmt::format("freeze: no parameter \"{}\"", param),
                base::did_you_mean(param, external_names(impl_->graph, ir::Role::param)));
  }
  impl_->graph.set_attr(id, "trainable", false);
}

uint64_t Model::seed() const { return impl_->seed; }
std::string Model::text() const { return ir::print(impl_->graph); }
ir::Graph& Model::graph() { return impl_->graph; }
const ir::Graph& Model::graph() const { return impl_->graph; }

Value nn::LayerContext::param(const std::string& suffix, TensorType type, const Init& init) const {
  const std::string key = name + "." + suffix;
  ir::Graph& graph = model.graph();
  const ir::ValueId known = graph.find_external(key);
  if (known == ir::kNoValue) return model.param(key, type, init);
  const ir::ValueInfo& info = graph.value(known);
  if (info.role != ir::Role::param || info.type != type) {
    throw Error(fmt::format("layer {}: expected {} to be the param {}, got the {} {}", name, key, to_string(type),
                            ir::name_of(info.role), to_string(info.type)));
  }
  return graph.handle(known);
}

}  // namespace aicf
