// aicf dump: any stage of a recipe's training step, as text, DOT or JSON.
#include <algorithm>
#include <cstdio>

#include "common.h"

namespace aicf::cli {

int dump(const Options& options, const std::string& stage, const std::string& format) {
  const Recipe recipe = recipe_of(options);
  RecipeModel model = build_model(recipe, micro_batch(recipe));
  const int64_t per_epoch = std::max<int64_t>(load_data(recipe, true).size() / recipe.train.batch, 1);
  const std::string text = compile_training(model, recipe, per_epoch, options).dump(stage, format);
  std::fwrite(text.data(), 1, text.size(), stdout);
  if (!text.empty() && text.back() != '\n') std::fputc('\n', stdout);
  return kOk;
}

}  // namespace aicf::cli
