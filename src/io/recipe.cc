// Recipes: TOML read by the schema, overrides, and what no single key can check.
#include "aicf/recipe.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <filesystem>

#include "aicf/error.h"
#include "aicf/suggest.h"
#include "io/bytes.h"
#include "io/recipe_schema.h"
#include "io/recipe_text.h"

namespace aicf {
namespace {

using io::RecipeKey;

constexpr size_t kMaxBytes = 1 << 20;
constexpr int kMaxDepth = 8;           // of residual blocks
constexpr const char* kSet = "--set";  // where an override stands

// The path as it is, or quoted when a message could not hold it.
std::string shown(const std::string& path) {
  const std::string quoted = io::quote(path);
  return quoted == '"' + path + '"' ? path : quoted;
}

class Reader {
 public:
  explicit Reader(Recipe& recipe) : recipe_(recipe) {}

  void read(const toml::table& root) {
    for (const auto& [name, node] : root) {
      if (io::is_recipe_section(name.str())) {
        section(std::string(name.str()), node);
      } else {
        key("", name.str(), node, no_layer_, "", where(node), 0);
      }
    }
  }

  // One key of a section, found by its name. `prefix` is the path of the section.
  void key(std::string_view section, std::string_view name, const toml::node& node, RecipeLayer& layer,
           const std::string& prefix, const std::string& at, int depth) {
    const std::string path = prefix + std::string(name);
    const RecipeKey* known = io::find_recipe_key(section, name);
    if (known == nullptr) {
      const std::vector<std::string> names = io::recipe_names(section);
      throw Error(fmt::format("{}: {}: unknown key", at, shown(path)), base::did_you_mean(name, names));
    }
    const io::RecipeSlot slot = known->slot(recipe_, layer);
    if (auto* layers = std::get_if<std::vector<RecipeLayer>*>(&slot)) {
      if (node.is_string() && section.empty()) {
        read_builder(node.as_string()->get(), at);
      } else {
        read_layers(node, **layers, path, at, depth);
      }
    } else {
      io::assign_recipe_value(*known, slot, node, at, path);
    }
    recipe_.given[path] = at;
  }

 private:
  std::string where(const toml::node& node) const {
    return fmt::format("{}:{}", recipe_.file, node.source().begin.line);
  }

  void section(const std::string& name, const toml::node& node) {
    const toml::table* table = node.as_table();
    if (table == nullptr) {
      throw Error(fmt::format("{}: {}: expected a table, got {}", where(node), name, io::describe(node)));
    }
    for (const auto& [key_name, value] : *table) {
      key(name, key_name.str(), value, no_layer_, name + ".", where(value), 0);
    }
  }

  void read_builder(const std::string& name, const std::string& at) {
    const std::vector<std::string> known = {"gpt"};
    if (std::count(known.begin(), known.end(), name) == 0) {
      throw Error(fmt::format("{}: model: expected gpt, or a list of layers, got {}", at, io::quote(name)),
                  base::did_you_mean(name, known));
    }
    recipe_.builder = name;
  }

  void read_layers(const toml::node& node, std::vector<RecipeLayer>& layers, const std::string& path,
                   const std::string& at, int depth) {
    if (depth == kMaxDepth) throw Error(fmt::format("{}: {}: blocks nested more than {} deep", at, path, kMaxDepth));
    const toml::array* array = node.as_array();
    if (array == nullptr) {
      throw Error(fmt::format("{}: {}: expected a list of layers, got {}", at, path, io::describe(node)),
                  "write each layer as a [[" + path + "]] table");
    }
    for (size_t i = 0; i < array->size(); ++i) {
      const std::string entry = fmt::format("{}.{}", path, i);
      const toml::node& item = *array->get(i);
      const toml::table* table = item.as_table();
      if (table == nullptr) {
        throw Error(fmt::format("{}: {}: expected a layer, got {}", where(item), entry, io::describe(item)));
      }
      layers.emplace_back();
      RecipeLayer layer;
      layer.where = where(item);
      for (const auto& [name, value] : *table) {
        key("model", name.str(), value, layer, entry + ".", where(value), depth + 1);
      }
      layers.back() = std::move(layer);
    }
  }

  Recipe& recipe_;
  RecipeLayer no_layer_;
};

// --- overrides ----------------------------------------------------------------------------------------------

std::vector<std::string> split(std::string_view path) {
  std::vector<std::string> parts(1);
  for (char c : path) {
    if (c == '.') {
      parts.emplace_back();
    } else {
      parts.back() += c;
    }
  }
  return parts;
}

// The layer of `part`, a name or a place; its path is appended to `path`.
RecipeLayer& find_layer(std::vector<RecipeLayer>& layers, const std::string& part, const std::string& at,
                        std::string& path) {
  std::vector<std::string> names;
  for (size_t i = 0; i < layers.size(); ++i) {
    names.push_back(layers[i].name);
    if (part == std::to_string(i) || (!part.empty() && part == layers[i].name)) {
      path += "." + std::to_string(i);
      return layers[i];
    }
  }
  throw Error(fmt::format("{}: no layer {} among the {} of {}", at, io::quote(part), layers.size(), path),
              base::did_you_mean(part, names));
}

void apply_set(Recipe& recipe, const std::string& set) {
  const size_t equals = set.find('=');
  std::string wanted = set.substr(0, equals);
  wanted.erase(wanted.find_last_not_of(' ') + 1);
  const std::string at = kSet + (" " + shown(wanted));
  if (equals == std::string::npos) throw Error(at + ": expected KEY=VALUE");

  const std::vector<std::string> parts = split(wanted);
  std::string section, prefix;
  RecipeLayer none;
  RecipeLayer* layer = &none;
  if (parts.size() > 1 && parts[0] == "model") {
    section = prefix = "model";
    std::vector<RecipeLayer>* layers = &recipe.model;
    for (size_t i = 1; i + 1 < parts.size(); i += 2) {
      layer = &find_layer(*layers, parts[i], at, prefix);
      if (i + 2 == parts.size()) break;
      const std::vector<std::string> lists = {"residual"};
      if (parts[i + 1] != lists[0]) throw Error(at + ": unknown key", base::did_you_mean(parts[i + 1], lists));
      layers = &layer->residual;
      prefix += ".residual";
    }
    if (parts.size() % 2 == 0) throw Error(at + ": expected a key of a layer", "as in model.0.out=64");
    prefix += ".";
  } else if (parts.size() == 2) {
    section = parts[0];
    prefix = section + ".";
  } else if (parts.size() > 2) {
    throw Error(at + ": unknown key");
  }

  const RecipeKey* key = io::find_recipe_key(section, parts.back());
  if (key == nullptr) {
    std::vector<std::string> names;
    for (const RecipeKey& row : io::recipe_schema()) {
      const bool of_layer = row.section == std::string_view("model");
      if (of_layer != (section == "model")) continue;
      names.push_back((of_layer ? prefix : *row.section ? std::string(row.section) + "." : "") + row.name);
    }
    throw Error(at + ": unknown key", base::did_you_mean(prefix + parts.back(), names));
  }
  if (std::holds_alternative<std::vector<RecipeLayer>*>(key->slot(recipe, *layer))) {
    throw Error(at + ": expected a key of a layer", "as in model.0.out=64");
  }
  const bool text = std::holds_alternative<std::string*>(key->slot(recipe, *layer));
  const toml::table value = io::parse_recipe_value(set.substr(equals + 1), text, at);
  Reader(recipe).key(section, key->name, *value.get("v"), *layer, prefix, kSet, 0);
}

// --- checks over several keys -------------------------------------------------------------------------------

// A key that the chosen kind does not have would be ignored: refused instead. Except that an override of the kind
// leaves the file's keys of the old kind behind.
void check_kinds(const Recipe& recipe, std::string_view section, const RecipeLayer& layer, const std::string& prefix) {
  const std::string kind = io::recipe_kind(recipe, layer, section);
  const bool overridden = recipe.where(prefix + (section == "model" ? "layer" : "kind")) == kSet;
  for (const RecipeKey& key : io::recipe_schema()) {
    if (key.section != section || key.kinds.empty()) continue;
    const std::string path = prefix + key.name;
    if (recipe.given.count(path) == 0 || std::count(key.kinds.begin(), key.kinds.end(), kind) != 0) continue;
    if (overridden && recipe.where(path) != kSet) continue;
    std::string owners;
    for (const std::string& k : key.kinds) owners += (owners.empty() ? "" : ", ") + (k.empty() ? "a block" : k);
    const std::string none = section == "gpt" ? "a list of layers" : "a block";
    throw Error(fmt::format("{}: {}: not a key of {}", recipe.where(path), path, kind.empty() ? none : kind),
                "it is one of " + owners);
  }
}

void check_layers(const Recipe& recipe, const std::vector<RecipeLayer>& layers, const std::string& path,
                  const std::string& at) {
  if (layers.empty()) throw Error(fmt::format("{}: {}: expected one layer or more", at, path));
  for (size_t i = 0; i < layers.size(); ++i) {
    const std::string entry = fmt::format("{}.{}", path, i);
    const RecipeLayer& layer = layers[i];
    const bool block = recipe.given.count(entry + ".residual") != 0;
    if (!block && layer.layer.empty()) {
      throw Error(fmt::format("{}: {}: expected a key layer or residual", layer.where, entry));
    }
    check_kinds(recipe, "model", layer, entry + ".");
    if (block) check_layers(recipe, layer.residual, entry + ".residual", layer.where);
  }
}

void check_gpt(const Recipe& recipe) {
  const Recipe::Data& data = recipe.data;
  const Recipe::Gpt& gpt = recipe.gpt;
  const auto refuse = [&](const std::string& key, const std::string& why, std::string hint = {}) {
    throw Error(fmt::format("{}: {}: {}", recipe.where(key), key, why), std::move(hint));
  };
  if (!data.is_tokens()) {
    refuse("model", fmt::format("gpt needs tokens, and {} has none", data.kind),
           "data.kind is synthetic-tokens, text or bible-kjv");
  }
  const int64_t vocabulary = data.kind == "synthetic-tokens" ? data.vocabulary : 256;
  if (gpt.vocabulary != 0 && gpt.vocabulary < vocabulary) {
    refuse("gpt.vocabulary", fmt::format("expected {} or more, as the data has, got {}", vocabulary, gpt.vocabulary));
  }
  if (gpt.context != 0 && gpt.context < data.context) {
    refuse("gpt.context", fmt::format("expected {} or more, as the data has, got {}", data.context, gpt.context));
  }
  if (gpt.width % gpt.heads != 0) {
    refuse("gpt.heads", fmt::format("expected a divisor of the width {}, got {}", gpt.width, gpt.heads));
  }
}

void check_shapes(Recipe& recipe) {
  Recipe::Data& data = recipe.data;
  const bool images = data.kind == "fashion-mnist";
  if (data.is_tokens()) {
    data.shape = {data.context};
  } else if (recipe.given.count("data.shape") == 0) {
    data.shape = images ? std::vector<int64_t>{28, 28} : std::vector<int64_t>{16};
  }
  if (data.kind == "text" && recipe.given.count("data.path") == 0) {
    throw Error(fmt::format("{}: data.path: expected the file of the text", recipe.where("data.kind")));
  }
  for (const auto& [key, dims] : {std::pair("data.shape", &data.shape), {"data.target", &data.target}}) {
    try {
      std::vector<int64_t> all = {std::max({data.examples, recipe.train.batch, recipe.train.eval_batch})};
      all.insert(all.end(), dims->begin(), dims->end());
      Shape{std::span<const int64_t>(all)};
    } catch (const Error& e) {
      throw Error(fmt::format("{}: {}: {}", recipe.where(key), key, e.what()));
    }
  }
  int64_t pixels = 1;
  for (int64_t d : data.shape) pixels *= d;
  if (images && pixels != 28 * 28) {
    throw Error(fmt::format("{}: data.shape: expected 784 elements, got {}", recipe.where("data.shape"), pixels),
                "[28, 28], [784] or [28, 28, 1]");
  }
}

void check(Recipe& recipe) {
  for (const char* section : {"data", "gpt", "optimizer", "schedule"}) {
    check_kinds(recipe, section, RecipeLayer(), std::string(section) + ".");
  }
  if (recipe.builder.empty()) {
    check_layers(recipe, recipe.model, "model", recipe.where("model"));
  } else {
    check_gpt(recipe);
  }
  check_shapes(recipe);
  if (recipe.loss.kind == "mse" && recipe.data.kind != "synthetic") {
    throw Error(fmt::format("{}: loss.kind: mse needs targets, and {} has labels", recipe.where("loss.kind"),
                            recipe.data.kind));
  }
  if (recipe.given.count("schedule.warmup_steps") != 0 && recipe.given.count("schedule.warmup_epochs") != 0) {
    throw Error(
        fmt::format("{}: schedule.warmup_epochs: warmup_steps is given too", recipe.where("schedule.warmup_epochs")),
        "keep one of the two");
  }
  if (recipe.train.batch % recipe.train.micro_batches != 0) {
    throw Error(fmt::format("{}: train.micro_batches: expected a divisor of the batch {}, got {}",
                            recipe.where("train.micro_batches"), recipe.train.batch, recipe.train.micro_batches));
  }
  if (recipe.schedule.kind == "table" && recipe.schedule.factors.empty()) {
    throw Error(fmt::format("{}: schedule.factors: expected one factor or more", recipe.where("schedule.kind")));
  }
  if (recipe.name.empty()) recipe.name = std::filesystem::path(recipe.file).stem().string();
}

}  // namespace

const std::string& Recipe::where(const std::string& key) const {
  const auto found = given.find(key);
  return found == given.end() ? file : found->second;
}

Recipe parse_recipe(std::string_view text, const std::string& file, std::span<const std::string> sets) {
  Recipe recipe;
  recipe.file = file;
  Reader(recipe).read(io::parse_toml(text, file));
  for (const std::string& set : sets) apply_set(recipe, set);
  check(recipe);
  return recipe;
}

Recipe load_recipe(const std::string& path, std::span<const std::string> sets) {
  const io::FileBytes bytes("recipe", path);
  if (bytes.size() > kMaxBytes) {
    throw Error(fmt::format("{}: expected at most {} bytes, got {}", bytes.label(), kMaxBytes, bytes.size()));
  }
  std::string text(bytes.size(), '\0');
  bytes.read(0, std::as_writable_bytes(std::span<char>(text)));
  return parse_recipe(text, path, sets);
}

}  // namespace aicf
