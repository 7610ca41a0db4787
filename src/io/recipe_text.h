// TOML values into a recipe's slots, with messages that name place, key, what was expected and what was found.
#pragma once

#include <string>
#include <string_view>

#include "io/recipe_schema.h"
#include "io/toml.h"

namespace aicf::io {

// Throws Error "FILE:LINE: …" on text that is not TOML, or nested beyond any recipe.
toml::table parse_toml(std::string_view text, const std::string& file);

// The value of an override, as the key `v`. With `plain_text`, text needs no quotes.
toml::table parse_recipe_value(const std::string& value, bool plain_text, const std::string& at);

// Throws Error "AT: PATH: expected …, got …" on another type, or a value out of the key's range or choices.
// REQUIRES: the slot is not one of layers.
void assign_recipe_value(const RecipeKey& key, const RecipeSlot& slot, const toml::node& node, const std::string& at,
                         const std::string& path);

// The value for messages: 3, "text", a table.
std::string describe(const toml::node& node);

}  // namespace aicf::io
