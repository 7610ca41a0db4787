// RmsNorm: unit mean square along the last axis, then a gain.
#include <cmath>

#include "aicf/error.h"
#include "aicf/model.h"
#include "aicf/ops.h"
#include "nn/layer.h"

namespace aicf::nn {
namespace {

class RmsNormImpl : public Layer::Impl {
 public:
  explicit RmsNormImpl(double eps) : eps_(eps) {
    if (!(eps >= 0) || std::isinf(eps)) {
      throw Error("rms_norm: expected eps finite and 0 or more, got " + std::to_string(eps));
    }
  }
  std::string kind() const override { return "rms_norm"; }
  Value emit(const LayerContext& context, const std::vector<Value>& inputs) const override {
    const Value x = float_input(*this, context, inputs, 1);
    const TensorType type{x.dtype(), {x.shape()[x.shape().rank() - 1]}};
    return rms_norm(x, context.param("weight", type, Init::ones()), eps_);
  }

 private:
  double eps_;
};

}  // namespace

RmsNorm::RmsNorm(double eps) : Layer(std::make_shared<RmsNormImpl>(eps)) {}

}  // namespace aicf::nn
