#include "nn/layer.h"

#include <cmath>

#include "aicf/error.h"

namespace aicf::nn {

void fail(const Layer::Impl& layer, const LayerContext& context, const std::vector<Value>& inputs,
          const std::string& expected) {
  std::string text = layer.kind() + " " + context.name + "(";
  for (size_t i = 0; i < inputs.size(); ++i) text += (i ? ", " : "") + to_string(inputs[i].type());
  throw Error(text + "): expected " + expected);
}

Value only_input(const Layer::Impl& layer, const LayerContext& context, const std::vector<Value>& inputs) {
  if (inputs.size() != 1) fail(layer, context, inputs, "one input");
  return inputs[0];
}

Value float_input(const Layer::Impl& layer, const LayerContext& context, const std::vector<Value>& inputs,
                  int min_rank) {
  const Value x = only_input(layer, context, inputs);
  if (!is_float(x.dtype())) fail(layer, context, inputs, "a float type");
  if (x.shape().rank() < min_rank) {
    fail(layer, context, inputs, min_rank == 1 ? "one axis or more" : std::to_string(min_rank) + " axes or more");
  }
  return x;
}

void check_deviation(const char* layer, double deviation) {
  if (deviation >= 0 && std::isfinite(deviation)) return;
  throw Error(std::string(layer) + ": expected a deviation finite and 0 or more, got " + std::to_string(deviation));
}

std::string inner_name(const LayerContext& context, const std::string& name) {
  return context.name.empty() ? name : context.name + "." + name;
}

}  // namespace aicf::nn
