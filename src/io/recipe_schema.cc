#include "io/recipe_schema.h"

#include <algorithm>

namespace aicf::io {
namespace {

using Names = std::vector<std::string>;

constexpr RecipeRange kAny = {};
constexpr double kMaxSteps = 2147483647;  // the step counter is i32
constexpr double kMaxSize = 1 << 24;      // of one axis of a model
constexpr RecipeRange kScale = {0x1p-24, 0x1p100, false};

RecipeRange at_least(double low) { return {low, std::numeric_limits<double>::infinity(), false}; }
RecipeRange between(double low, double high) { return {low, high, false}; }
RecipeRange fraction() { return {0, 1, true}; }

Names data_kinds() { return {"fashion-mnist", "synthetic", "synthetic-tokens", "text", "bible-kjv"}; }

Names layer_kinds() {
  Names kinds = {"linear", "layer_norm", "rms_norm", "dropout", "flatten"};
  const Names functions = nn::Activation::functions();
  kinds.insert(kinds.end(), functions.begin(), functions.end());
  return kinds;
}

Names activations() {
  Names names = nn::Activation::functions();
  names.emplace_back();
  return names;
}

#define SLOT(member) [](Recipe& r, RecipeLayer&) -> RecipeSlot { return &r.member; }
#define LAYER(member) [](Recipe&, RecipeLayer& l) -> RecipeSlot { return &l.member; }

const std::vector<RecipeKey>& table() {
  static const std::vector<RecipeKey> rows = {
      {"", "name", SLOT(name)},
      {"", "precision", SLOT(precision), kAny, {"f32", "tf32", "bf16", "f16"}},
      {"", "model", SLOT(model)},

      {"data", "kind", SLOT(data.kind), kAny, data_kinds()},
      {"data", "shape", SLOT(data.shape), at_least(1), {}, {"fashion-mnist", "synthetic"}},
      {"data", "path", SLOT(data.path), kAny, {}, {"fashion-mnist", "text"}},
      {"data", "mean", SLOT(data.mean), kAny, {}, {"fashion-mnist"}},
      {"data", "deviation", SLOT(data.deviation), at_least(1e-6), {}, {"fashion-mnist"}},
      {"data", "examples", SLOT(data.examples), between(1, 1e9), {}, {"synthetic", "synthetic-tokens"}},
      {"data", "classes", SLOT(data.classes), between(1, 2147483647), {}, {"synthetic"}},
      {"data", "target", SLOT(data.target), at_least(1), {}, {"synthetic"}},
      {"data", "vocabulary", SLOT(data.vocabulary), between(1, kMaxSize), {}, {"synthetic-tokens"}},
      {"data", "context", SLOT(data.context), between(1, kMaxSize), {}, {"synthetic-tokens", "text", "bible-kjv"}},
      {"data", "held_out", SLOT(data.held_out), between(0, 1), {}, {"text", "bible-kjv"}},

      {"model", "layer", LAYER(layer), kAny, layer_kinds()},
      {"model", "name", LAYER(name)},
      {"model", "residual", LAYER(residual), kAny, {}, {""}},
      {"model", "out", LAYER(out), at_least(0), {}, {"linear"}},
      {"model", "bias", LAYER(bias), kAny, {}, {"linear"}},
      {"model", "activation", LAYER(activation), kAny, activations(), {"linear"}},
      {"model", "eps", LAYER(eps), at_least(0), {}, {"layer_norm", "rms_norm"}},
      {"model", "p", LAYER(p), fraction(), {}, {"dropout"}},

      {"gpt", "vocabulary", SLOT(gpt.vocabulary), between(0, kMaxSize), {}, {"gpt"}},
      {"gpt", "context", SLOT(gpt.context), between(0, kMaxSize), {}, {"gpt"}},
      {"gpt", "layers", SLOT(gpt.layers), between(1, 1000), {}, {"gpt"}},
      {"gpt", "width", SLOT(gpt.width), between(1, kMaxSize), {}, {"gpt"}},
      {"gpt", "heads", SLOT(gpt.heads), between(1, kMaxSize), {}, {"gpt"}},
      {"gpt", "dropout", SLOT(gpt.dropout), fraction(), {}, {"gpt"}},

      {"loss", "kind", SLOT(loss.kind), kAny, {"cross_entropy", "mse"}},

      {"optimizer", "kind", SLOT(optimizer.kind), kAny, {"adamw", "adam", "sgd"}},
      {"optimizer", "lr", SLOT(optimizer.lr), at_least(0)},
      {"optimizer", "weight_decay", SLOT(optimizer.weight_decay), at_least(0)},
      {"optimizer", "beta1", SLOT(optimizer.beta1), fraction(), {}, {"adam", "adamw"}},
      {"optimizer", "beta2", SLOT(optimizer.beta2), fraction(), {}, {"adam", "adamw"}},
      {"optimizer", "eps", SLOT(optimizer.eps), at_least(0), {}, {"adam", "adamw"}},
      {"optimizer", "momentum", SLOT(optimizer.momentum), at_least(0), {}, {"sgd"}},
      {"optimizer", "dampening", SLOT(optimizer.dampening), at_least(0), {}, {"sgd"}},
      {"optimizer", "nesterov", SLOT(optimizer.nesterov), kAny, {}, {"sgd"}},
      {"optimizer", "clip_norm", SLOT(optimizer.clip_norm), at_least(0)},
      {"optimizer", "clip_value", SLOT(optimizer.clip_value), at_least(0)},
      {"optimizer", "ema", SLOT(optimizer.ema), fraction()},
      {"optimizer", "skip_nonfinite", SLOT(optimizer.skip_nonfinite), kAny, {"auto", "on", "off"}},

      {"loss_scale", "kind", SLOT(loss_scale.kind), kAny, {"auto", "dynamic", "none"}},
      {"loss_scale", "initial", SLOT(loss_scale.initial), kScale},
      {"loss_scale", "growth", SLOT(loss_scale.growth), kScale},
      {"loss_scale", "backoff", SLOT(loss_scale.backoff), kScale},
      {"loss_scale", "interval", SLOT(loss_scale.interval), between(1, kMaxSteps)},
      {"loss_scale", "min", SLOT(loss_scale.min), kScale},
      {"loss_scale", "max", SLOT(loss_scale.max), kScale},

      {"schedule", "kind", SLOT(schedule.kind), kAny, {"constant", "warmup", "cosine", "table"}},
      {"schedule", "warmup_steps", SLOT(schedule.warmup_steps), between(0, kMaxSteps), {}, {"warmup", "cosine"}},
      {"schedule", "warmup_epochs", SLOT(schedule.warmup_epochs), between(0, 1e6), {}, {"warmup", "cosine"}},
      {"schedule", "min", SLOT(schedule.min), between(0, 1), {}, {"cosine"}},
      {"schedule", "factors", SLOT(schedule.factors), at_least(0), {}, {"table"}},

      {"train", "epochs", SLOT(train.epochs), between(1, 1e6)},
      {"train", "steps", SLOT(train.steps), between(0, kMaxSteps)},
      {"train", "batch", SLOT(train.batch), between(1, 1e9)},
      {"train", "micro_batches", SLOT(train.micro_batches), between(1, 1024)},
      {"train", "eval_batch", SLOT(train.eval_batch), between(0, 1e9)},
      {"train", "seed", SLOT(train.seed), at_least(0)},
  };
  return rows;
}

#undef SLOT
#undef LAYER

}  // namespace

std::span<const RecipeKey> recipe_schema() { return table(); }

const RecipeKey* find_recipe_key(std::string_view section, std::string_view name) {
  for (const RecipeKey& key : table()) {
    if (key.section == section && key.name == name) return &key;
  }
  return nullptr;
}

bool is_recipe_section(std::string_view name) {
  return !name.empty() && std::any_of(table().begin(), table().end(),
                                      [&](const RecipeKey& key) { return key.section == name && name != "model"; });
}

std::vector<std::string> recipe_names(std::string_view section) {
  Names names;
  for (const RecipeKey& key : table()) {
    if (key.section == section) {
      names.emplace_back(key.name);
    } else if (section.empty() && std::find(names.begin(), names.end(), key.section) == names.end()) {
      names.emplace_back(key.section);
    }
  }
  return names;
}

std::string recipe_kind(const Recipe& recipe, const RecipeLayer& layer, std::string_view section) {
  if (section == "data") return recipe.data.kind;
  if (section == "gpt") return recipe.builder;
  if (section == "model") return layer.layer;
  if (section == "optimizer") return recipe.optimizer.kind;
  if (section == "schedule") return recipe.schedule.kind;
  return "";
}

}  // namespace aicf::io
