// aicf eval: the test metric of saved weights.
#include <fmt/format.h>

#include "common.h"

namespace aicf::cli {

int eval(const Options& options, const std::string& weights) {
  check_json(options.json);
  const Recipe recipe = recipe_of(options);
  RecipeModel model = build_model(recipe, eval_batch(recipe));
  Program program = compile_evaluation(model, compile_options(options, recipe));
  const Safetensors file = read_safetensors(weights);
  try {
    program.load(file.tensors);
  } catch (const Error& e) {
    throw Error(fmt::format("{}: {}", weights, e.what()), e.hint());
  }
  const Evaluation result = evaluate(program, recipe);
  fmt::print("{}\n", text_of(result));
  write_json(options.json, {{"recipe", recipe.name}, {"weights", weights}, {"test", json_of(result)}});
  return kOk;
}

}  // namespace aicf::cli
