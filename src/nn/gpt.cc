// Gpt and GptBlock: the transformer of GPT-2 (Radford et al. 2019, "Language Models are Unsupervised Multitask
// Learners").
#include <fmt/format.h>

#include "aicf/error.h"
#include "aicf/model.h"
#include "aicf/ops.h"
#include "nn/layer.h"

namespace aicf::nn {
namespace {

class GptBlockImpl : public Layer::Impl {
 public:
  GptBlockImpl(int64_t width, int64_t heads, double deviation, double dropout)
      : dropout_(dropout),
        attn_(width, heads, true, deviation, dropout),
        fc_(4 * width, true, deviation),
        proj_(width, true, deviation) {}
  std::string kind() const override { return "gpt_block"; }

  Value emit(const LayerContext& context, const std::vector<Value>& inputs) const override {
    Value x = float_input(*this, context, inputs, 2);
    const auto add = [&](const Layer& layer, Value in, const char* name) {
      return context.model.add(layer, in, inner_name(context, name));
    };
    x = x + dropout(add(attn_, add(ln1_, x, "ln1"), "attn"), dropout_);
    const Value hidden = gelu(add(fc_, add(ln2_, x, "ln2"), "mlp.fc"), true);
    return x + dropout(add(proj_, hidden, "mlp.proj"), dropout_);
  }

 private:
  double dropout_;
  LayerNorm ln1_, ln2_;
  SelfAttention attn_;
  Linear fc_, proj_;
};

class GptImpl : public Layer::Impl {
 public:
  explicit GptImpl(const GptOptions& o) : options_(o), wte_(o.vocabulary, o.width, o.deviation) {
    for (const auto& [name, value] : {std::pair("context", o.context), {"layers", o.layers}}) {
      if (value < 1) throw Error(fmt::format("gpt: expected 1 or more {}, got {}", name, value));
    }
    if (!(o.dropout >= 0 && o.dropout < 1)) {
      throw Error(fmt::format("gpt: expected a dropout in [0, 1), got {}", o.dropout));
    }
    for (int64_t i = 0; i < o.layers; ++i) blocks_.emplace_back(o.width, o.heads, o.deviation, o.dropout);
  }
  std::string kind() const override { return "gpt"; }

  Value emit(const LayerContext& context, const std::vector<Value>& inputs) const override {
    const Value tokens = only_input(*this, context, inputs);
    if (tokens.shape().rank() != 2) fail(*this, context, inputs, "tokens (B, T)");
    const int64_t batch = tokens.shape()[0], length = tokens.shape()[1], width = options_.width;
    if (length > options_.context) fail(*this, context, inputs, fmt::format("T <= {}, the context", options_.context));
    const auto add = [&](const Layer& layer, Value in, const std::string& name) {
      return context.model.add(layer, in, inner_name(context, name));
    };

    Value x = add(wte_, tokens, "wte");
    const LayerContext positions{context.model, inner_name(context, "wpe")};
    Value wpe = positions.param("weight", {f32, {options_.context, width}}, Init::normal(0, options_.deviation));
    if (length < options_.context) wpe = slice(wpe, {0, 0}, {length, width});
    x = dropout(x + wpe, options_.dropout);
    for (size_t i = 0; i < blocks_.size(); ++i) x = add(blocks_[i], x, fmt::format("h{}", i));
    x = add(lnf_, x, "lnf");

    // The head is one product over all tokens, with the table of the embedding.
    const LayerContext head{context.model, inner_name(context, "wte")};
    const Value table = head.param("weight", {f32, {options_.vocabulary, width}}, Init::normal(0, options_.deviation));
    const Value logits = matmul(reshape(x, {batch * length, width}), table, false, true);
    return reshape(logits, {batch, length, options_.vocabulary});
  }

 private:
  GptOptions options_;
  Embedding wte_;
  std::vector<GptBlock> blocks_;
  LayerNorm lnf_;
};

}  // namespace

GptBlock::GptBlock(int64_t width, int64_t heads, double deviation, double dropout)
    : Layer(std::make_shared<GptBlockImpl>(width, heads, deviation, dropout)) {}

Gpt::Gpt(const GptOptions& options) : Layer(std::make_shared<GptImpl>(options)) {}

}  // namespace aicf::nn
