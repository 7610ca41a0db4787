// Embedding: rows of a table, by index.
#include "aicf/error.h"
#include "aicf/model.h"
#include "aicf/ops.h"
#include "nn/layer.h"

namespace aicf::nn {
namespace {

class EmbeddingImpl : public Layer::Impl {
 public:
  EmbeddingImpl(int64_t count, int64_t dim, double deviation) : count_(count), dim_(dim), deviation_(deviation) {
    check_deviation("embedding", deviation);
    if (count < 1 || dim < 1) {
      throw Error("embedding: expected 1 or more rows and columns, got " + std::to_string(count) + " and " +
                  std::to_string(dim));
    }
  }
  std::string kind() const override { return "embedding"; }
  Value emit(const LayerContext& context, const std::vector<Value>& inputs) const override {
    const Value index = only_input(*this, context, inputs);
    if (index.dtype() != i32 && index.dtype() != i64) fail(*this, context, inputs, "an index of type i32 or i64");
    return gather(context.param("weight", {f32, {count_, dim_}}, Init::normal(0, deviation_)), index);
  }

 private:
  int64_t count_;
  int64_t dim_;
  double deviation_;
};

}  // namespace

Embedding::Embedding(int64_t count, int64_t dim, double deviation)
    : Layer(std::make_shared<EmbeddingImpl>(count, dim, deviation)) {}

}  // namespace aicf::nn
