// Fuzzes the recipe reader: it throws a one-line Error, or returns a recipe whose keys were all recorded. The text
// before a NUL is the file, the text after it an override.
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <string>
#include <vector>

#include "aicf/error.h"
#include "aicf/recipe.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* bytes, size_t size) {
  const std::string all(reinterpret_cast<const char*>(bytes), size);
  const size_t cut = all.find('\0');
  std::vector<std::string> sets;
  if (cut != std::string::npos) sets.push_back(all.substr(cut + 1));
  try {
    const aicf::Recipe recipe = aicf::parse_recipe(all.substr(0, cut), "fuzz.toml", sets);
    if (recipe.model.empty() == recipe.builder.empty() || recipe.given.count("model") == 0) std::abort();
  } catch (const aicf::Error& error) {
    if (std::strchr(error.what(), '\n') != nullptr) std::abort();
  }
  return 0;
}
