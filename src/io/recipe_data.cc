// The data set of a recipe.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "aicf/error.h"
#include "aicf/recipe.h"
#include "ir/init.h"

namespace aicf {
namespace {

TensorType examples_of(const Recipe& recipe, DType dtype, const std::vector<int64_t>& shape) {
  std::vector<int64_t> dims = {recipe.data.examples};
  dims.insert(dims.end(), shape.begin(), shape.end());
  return {dtype, Shape(std::span<const int64_t>(dims))};
}

// i32 below `count`, evenly.
Tensor uniform_integers(const std::string& name, const TensorType& type, int64_t count, uint64_t seed) {
  const Tensor draws = ir::initial_value(name, {f64, type.shape}, "uniform(0,1)", seed);
  Tensor values(type);
  const auto top = static_cast<double>(count);
  for (int64_t i = 0; i < values.elements(); ++i) {
    values.as<int32_t>()[i] = static_cast<int32_t>(std::min(draws.at(i) * top, top - 1));
  }
  return values;
}

// Inputs and targets N(0, 1), labels evenly; the test set has draws of its own.
Dataset synthetic(const Recipe& recipe, bool train) {
  const auto seed = static_cast<uint64_t>(recipe.train.seed);
  const std::string part = train ? "data.train." : "data.test.";
  Tensor x = ir::initial_value(part + "x", examples_of(recipe, f32, recipe.data.shape), "normal(0,1)", seed);
  if (recipe.loss.kind == "mse") {
    Tensor y = ir::initial_value(part + "y", examples_of(recipe, f32, recipe.data.target), "normal(0,1)", seed);
    return Dataset({{"x", std::move(x)}, {"y", std::move(y)}});
  }
  Tensor y = uniform_integers(part + "y", examples_of(recipe, i32, {}), recipe.data.classes, seed);
  return Dataset({{"x", std::move(x)}, {"y", std::move(y)}});
}

Dataset synthetic_tokens(const Recipe& recipe, bool train) {
  const auto seed = static_cast<uint64_t>(recipe.train.seed);
  const TensorType type = examples_of(recipe, i32, recipe.data.shape);
  NamedTensors tensors;
  for (const char* name : {"x", "y"}) {
    const std::string key = std::string(train ? "data.train." : "data.test.") + name;
    tensors.emplace_back(name, uniform_integers(key, type, recipe.data.vocabulary, seed));
  }
  return Dataset(std::move(tensors));
}

Dataset text(const Recipe& recipe, bool train) {
  TextSetOptions options;
  if (recipe.data.kind == "text") options.path = recipe.data.path;
  options.train = train;
  options.held_out = recipe.data.held_out;
  options.context = recipe.data.context;
  return load_text_set(options);
}

}  // namespace

Dataset load_data(const Recipe& recipe, bool train) {
  if (recipe.data.kind == "synthetic") return synthetic(recipe, train);
  if (recipe.data.kind == "synthetic-tokens") return synthetic_tokens(recipe, train);
  if (recipe.data.is_tokens()) return text(recipe, train);
  ImageSetOptions options;
  options.folder = recipe.data.path;
  options.train = train;
  options.mean = recipe.data.mean;
  options.deviation = recipe.data.deviation;
  options.image_shape = recipe.data.shape;
  return load_image_set(options);
}

}  // namespace aicf
