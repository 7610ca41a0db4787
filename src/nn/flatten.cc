// Flatten: every axis but the first becomes one.
#include "aicf/ops.h"
#include "nn/layer.h"

namespace aicf::nn {
namespace {

class FlattenImpl : public Layer::Impl {
 public:
  std::string kind() const override { return "flatten"; }
  Value emit(const LayerContext& context, const std::vector<Value>& inputs) const override {
    const Value x = only_input(*this, context, inputs);
    if (x.shape().rank() < 2) fail(*this, context, inputs, "2 axes or more");
    return flatten(x, 1);
  }
};

}  // namespace

Flatten::Flatten() : Layer(std::make_shared<FlattenImpl>()) {}

}  // namespace aicf::nn
