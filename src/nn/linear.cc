// Linear: y = x·Wᵀ + b over the last axis.
#include <cmath>

#include "aicf/error.h"
#include "aicf/model.h"
#include "aicf/ops.h"
#include "ir/graph.h"
#include "nn/layer.h"

namespace aicf::nn {
namespace {

class LinearImpl : public Layer::Impl {
 public:
  LinearImpl(int64_t out, bool bias, double deviation) : out_(out), bias_(bias), deviation_(deviation) {
    check_deviation("linear", deviation);
    if (out < 1) throw Error("linear: expected 1 or more output features, got " + std::to_string(out));
  }
  std::string kind() const override { return "linear"; }

  Value emit(const LayerContext& context, const std::vector<Value>& inputs) const override {
    Value x = float_input(*this, context, inputs, 1);
    const Shape shape = x.shape();
    const int64_t in = shape[shape.rank() - 1];
    check_features(context, inputs, in);
    const double bound = 1 / std::sqrt(static_cast<double>(in));
    const bool normal = deviation_ > 0;
    const Init uniform = Init::uniform(-bound, bound);
    const Value weight =
        context.param("weight", {x.dtype(), {out_, in}}, normal ? Init::normal(0, deviation_) : uniform);

    // All leading axes are one: a single product forward, and a single one for the weight's gradient.
    std::vector<int64_t> result(shape.begin(), shape.end());
    result.back() = out_;
    int64_t rows = 1;
    for (int i = 0; i + 1 < shape.rank(); ++i) rows *= shape[i];
    if (shape.rank() != 2) x = reshape(x, {rows, in});
    Value y = matmul(x, weight, false, true);
    if (bias_) y = y + context.param("bias", {x.dtype(), {out_}}, normal ? Init::zeros() : uniform);
    return shape.rank() == 2 ? y : reshape(y, Shape(std::span<const int64_t>(result)));
  }

 private:
  void check_features(const LayerContext& context, const std::vector<Value>& inputs, int64_t in) const {
    if (in < 1) fail(*this, context, inputs, "one input feature or more");
    const ir::Graph& graph = context.model.graph();
    const ir::ValueId known = graph.find_external(context.name + ".weight");
    if (known == ir::kNoValue) return;
    const TensorType weight = graph.type(known);
    if (weight.shape.rank() == 2 && weight.shape[1] != in) {
      fail(*this, context, inputs,
           "(…, " + std::to_string(weight.shape[1]) + "), as its weight is " + to_string(weight));
    }
  }

  int64_t out_;
  bool bias_;
  double deviation_;
};

}  // namespace

Linear::Linear(int64_t out_features, bool bias, double deviation)
    : Layer(std::make_shared<LinearImpl>(out_features, bias, deviation)) {}

}  // namespace aicf::nn
