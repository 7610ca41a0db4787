// The one table of a recipe's keys: it drives parsing, messages about unknown keys, and --set.
#pragma once

#include <limits>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "aicf/recipe.h"

namespace aicf::io {

using RecipeSlot = std::variant<std::string*, int64_t*, double*, bool*, std::optional<double>*, std::vector<int64_t>*,
                                std::vector<double>*, std::vector<RecipeLayer>*>;

struct RecipeRange {
  double low = -std::numeric_limits<double>::infinity();
  double high = std::numeric_limits<double>::infinity();
  bool below_high = false;  // high itself is out of range
};

struct RecipeKey {
  const char* section;  // "" is the top level; "model" the entries of model and residual
  const char* name;
  RecipeSlot (*slot)(Recipe&, RecipeLayer&);  // where it is stored; rows of "model" use the layer
  RecipeRange range = {};                     // of a number, or of each element of a list
  std::vector<std::string> choices = {};      // of a text; empty: any
  std::vector<std::string> kinds = {};        // of the section: those that have the key; empty: all
};

std::span<const RecipeKey> recipe_schema();
const RecipeKey* find_recipe_key(std::string_view section, std::string_view name);
// The names of a section's keys, or of all sections and top-level keys.
std::vector<std::string> recipe_names(std::string_view section);
bool is_recipe_section(std::string_view name);

// The kind chosen in a section, which decides which keys it has: data.kind, a layer's `layer`, the model's builder. ""
// where there is none.
std::string recipe_kind(const Recipe& recipe, const RecipeLayer& layer, std::string_view section);

}  // namespace aicf::io
