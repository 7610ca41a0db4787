// SelfAttention: queries, keys and values by one product, attention by heads, and a product of what they bring.
#include <fmt/format.h>

#include "aicf/error.h"
#include "aicf/model.h"
#include "aicf/ops.h"
#include "nn/layer.h"

namespace aicf::nn {
namespace {

class SelfAttentionImpl : public Layer::Impl {
 public:
  SelfAttentionImpl(int64_t width, int64_t heads, bool causal, double deviation, double dropout)
      : width_(width),
        heads_(heads),
        causal_(causal),
        dropout_(dropout),
        qkv_(3 * width, true, deviation),
        proj_(width, true, deviation) {
    if (heads < 1 || width % heads != 0) {
      throw Error(fmt::format("self_attention: expected a width divisible by the heads, got {} and {}", width, heads));
    }
    if (!(dropout >= 0 && dropout < 1)) {
      throw Error(fmt::format("self_attention: expected a dropout in [0, 1), got {}", dropout));
    }
  }
  std::string kind() const override { return "self_attention"; }

  Value emit(const LayerContext& context, const std::vector<Value>& inputs) const override {
    const Value x = float_input(*this, context, inputs, 2);
    const Shape shape = x.shape();
    const int rank = shape.rank();
    if (shape[rank - 1] != width_) fail(*this, context, inputs, fmt::format("(…, T, {})", width_));
    int64_t batch = 1;
    for (int i = 0; i + 2 < rank; ++i) batch *= shape[i];
    const int64_t length = shape[rank - 2], each = width_ / heads_;

    // One transpose for all three: (3, B, heads, T, each) holds them one after another.
    const Value all = context.model.add(qkv_, x, inner_name(context, "qkv"));
    const Value by_head = transpose(reshape(all, {batch, length, 3, heads_, each}), {2, 0, 3, 1, 4});
    std::vector<Value> parts = split(by_head, 3, 0);
    for (Value& part : parts) part = reshape(part, {batch, heads_, length, each});
    const Value brought = attention(parts[0], parts[1], parts[2], causal_, std::nullopt, dropout_);
    return context.model.add(proj_, reshape(transpose(brought, {0, 2, 1, 3}), shape), inner_name(context, "proj"));
  }

 private:
  int64_t width_;
  int64_t heads_;
  bool causal_;
  double dropout_;
  Linear qkv_;
  Linear proj_;
};

}  // namespace

SelfAttention::SelfAttention(int64_t width, int64_t heads, bool causal, double deviation, double dropout)
    : Layer(std::make_shared<SelfAttentionImpl>(width, heads, causal, deviation, dropout)) {}

}  // namespace aicf::nn
