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

// Inputs and targets N(0, 1), labels evenly; the test set has draws of its own.
Dataset synthetic(const Recipe& recipe, bool train) {
  const auto seed = static_cast<uint64_t>(recipe.train.seed);
  const std::string part = train ? "data.train." : "data.test.";
  Tensor x = ir::initial_value(part + "x", examples_of(recipe, f32, recipe.data.shape), "normal(0,1)", seed);
  if (recipe.loss.kind == "mse") {
    Tensor y = ir::initial_value(part + "y", examples_of(recipe, f32, recipe.data.target), "normal(0,1)", seed);
    return Dataset({{"x", std::move(x)}, {"y", std::move(y)}});
  }
  const Tensor draws = ir::initial_value(part + "y", examples_of(recipe, f64, {}), "uniform(0,1)", seed);
  Tensor y(examples_of(recipe, i32, {}));
  const auto classes = static_cast<double>(recipe.data.classes);
  for (int64_t i = 0; i < y.elements(); ++i) {
    y.as<int32_t>()[i] = static_cast<int32_t>(std::min(draws.at(i) * classes, classes - 1));
  }
  return Dataset({{"x", std::move(x)}, {"y", std::move(y)}});
}

}  // namespace

Dataset load_data(const Recipe& recipe, bool train) {
  if (recipe.data.kind == "synthetic") return synthetic(recipe, train);
  ImageSetOptions options;
  options.folder = recipe.data.path;
  options.train = train;
  options.mean = recipe.data.mean;
  options.deviation = recipe.data.deviation;
  options.image_shape = recipe.data.shape;
  return load_image_set(options);
}

}  // namespace aicf
