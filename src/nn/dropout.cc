// Dropout: the op as a layer.
#include <fmt/format.h>

#include "aicf/error.h"
#include "aicf/ops.h"
#include "nn/layer.h"

namespace aicf::nn {
namespace {

class DropoutImpl : public Layer::Impl {
 public:
  explicit DropoutImpl(double p) : p_(p) {
    if (!(p >= 0 && p < 1)) throw Error(fmt::format("dropout: expected p in [0, 1), got {}", p));
  }
  std::string kind() const override { return "dropout"; }
  Value emit(const LayerContext& context, const std::vector<Value>& inputs) const override {
    return dropout(float_input(*this, context, inputs), p_);
  }

 private:
  double p_;
};

}  // namespace

Dropout::Dropout(double p) : Layer(std::make_shared<DropoutImpl>(p)) {}

}  // namespace aicf::nn
