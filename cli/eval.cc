// aicf eval: the test metric of saved weights, or of a checkpoint's.
#include <fmt/format.h>

#include "common.h"

namespace aicf::cli {
namespace {

// A checkpoint holds more than weights.
NamedTensors weights_in(const std::string& path) {
  Safetensors file = read_safetensors(path);
  if (!is_checkpoint(file)) return std::move(file.tensors);
  NamedTensors weights;
  for (auto& [name, tensor] : checkpoint_of(std::move(file), path).tensors) {
    if (is_weight(name)) weights.emplace_back(name, std::move(tensor));
  }
  return weights;
}

}  // namespace

int eval(const Options& options, const std::string& weights) {
  check_json(options.json);
  const Recipe recipe = recipe_of(options);
  RecipeModel model = build_model(recipe, eval_batch(recipe));
  Program program = compile_evaluation(model, compile_options(options, recipe));
  const NamedTensors tensors = weights_in(weights);
  try {
    program.load(tensors);
  } catch (const Error& e) {
    throw Error(fmt::format("{}: {}", weights, e.what()), e.hint());
  }
  const Evaluation result = evaluate(program, recipe);
  fmt::print("{}\n", text_of(result));
  write_json(options.json, {{"recipe", recipe.name}, {"weights", weights}, {"test", json_of(result)}});
  return kOk;
}

}  // namespace aicf::cli
