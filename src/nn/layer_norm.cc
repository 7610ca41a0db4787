// LayerNorm: zero mean and unit variance along the last axis, then a gain and an offset.
#include <cmath>

#include "aicf/error.h"
#include "aicf/model.h"
#include "aicf/ops.h"
#include "nn/layer.h"

namespace aicf::nn {
namespace {

class LayerNormImpl : public Layer::Impl {
 public:
  explicit LayerNormImpl(double eps) : eps_(eps) {
    if (!(eps >= 0) || std::isinf(eps)) {
      throw Error("layer_norm: expected eps finite and 0 or more, got " + std::to_string(eps));
    }
  }
  std::string kind() const override { return "layer_norm"; }
  Value emit(const LayerContext& context, const std::vector<Value>& inputs) const override {
    const Value x = float_input(*this, context, inputs, 1);
    const TensorType type{x.dtype(), {x.shape()[x.shape().rank() - 1]}};
    const Value weight = context.param("weight", type, Init::ones());
    const Value bias = context.param("bias", type, Init::zeros());
    return layer_norm(x, weight, bias, eps_);
  }

 private:
  double eps_;
};

}  // namespace

LayerNorm::LayerNorm(double eps) : Layer(std::make_shared<LayerNormImpl>(eps)) {}

}  // namespace aicf::nn
