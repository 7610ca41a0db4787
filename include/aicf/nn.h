// Layers. A layer is a handle: copies are the same layer, and a layer added twice shares its parameters.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "aicf/value.h"

namespace aicf {

class Model;
class Program;
struct CompileOptions;
struct Feed;
class StepResult;
struct Init;

namespace nn {

// What a layer sees while it emits: the model, and its own name as prefix of its parameters.
struct LayerContext {
  Model& model;
  std::string name;
  // The parameter NAME.suffix: created on first use, shared afterwards. Throws Error when it exists with another type.
  Value param(const std::string& suffix, TensorType type, const Init& init) const;
};

class Layer {
 public:
  // Derive from this to write a layer of your own: emit ops, never a backward.
  class Impl {
   public:
    virtual ~Impl() = default;
    virtual std::string kind() const = 0;  // "linear"
    // Throws Error naming the layer, what it expected and the shape it got.
    virtual Value emit(const LayerContext& context, const std::vector<Value>& inputs) const = 0;
  };
  explicit Layer(std::shared_ptr<const Impl> impl) : impl_(std::move(impl)) {}
  const std::shared_ptr<const Impl>& impl() const { return impl_; }

 private:
  std::shared_ptr<const Impl> impl_;
};

// x (…, in) → x·Wᵀ + b (…, out). weight (out, in) and bias (out) start as U(±1/√in); with a deviation above 0, weight
// starts as N(0, deviation²) and bias as 0.
class Linear : public Layer {
 public:
  explicit Linear(int64_t out_features, bool bias = true, double deviation = 0);
};

// A pointwise activation: "relu", "tanh", "sigmoid", "gelu", "gelu_tanh", or "softmax" and "log_softmax" over the last
// axis.
class Activation : public Layer {
 public:
  explicit Activation(const std::string& function);
  static std::vector<std::string> functions();
};

// dropout(x, p): drops in training only.
class Dropout : public Layer {
 public:
  explicit Dropout(double p = 0.5);
};

// (B, …) → (B, product of the rest).
class Flatten : public Layer {
 public:
  Flatten();
};

// Over the last axis. weight (C) starts as 1, bias (C) as 0.
class LayerNorm : public Layer {
 public:
  explicit LayerNorm(double eps = 1e-5);
};

// Over the last axis. weight (C) starts as 1.
class RmsNorm : public Layer {
 public:
  explicit RmsNorm(double eps = 1e-6);
};

// index (…) i32 or i64 → (…, dim). weight (count, dim) starts as N(0, deviation²).
class Embedding : public Layer {
 public:
  Embedding(int64_t count, int64_t dim, double deviation = 1);
};

// x (…, T, width) → (…, T, width): attention of every position to the others, or with `causal` to itself and those
// before it, in `heads` parts of width / heads. Two linear layers: qkv (all queries, then all keys, then all values)
// and proj; `deviation` is theirs. `dropout` is the share of the attention's weights (its softmax) that a training step
// drops, in [0, 1).
class SelfAttention : public Layer {
 public:
  SelfAttention(int64_t width, int64_t heads, bool causal = false, double deviation = 0, double dropout = 0);
};

// A block of GPT-2 (Radford et al. 2019): x + attn(ln1(x)), then x + mlp(ln2(x)), where mlp is fc (to 4·width), GELU by
// its tanh approximation, proj. Layers: ln1, attn, ln2, mlp.fc, mlp.proj. With dropout (a share in [0, 1)) a training
// step drops elements of the attention's weights, of what attn brings and of what mlp brings.
class GptBlock : public Layer {
 public:
  GptBlock(int64_t width, int64_t heads, double deviation = 0.02, double dropout = 0);
};

struct GptOptions {
  int64_t vocabulary = 50257;
  int64_t context = 1024;  // the longest sequence
  int64_t layers = 12;
  int64_t width = 768;
  int64_t heads = 12;
  double deviation = 0.02;  // of the initial weights and tables
  double dropout = 0;       // of the blocks (GptBlock), and of the sum of token and position before them
};

// GPT-2: tokens (B, T) i32 or i64 → logits (B, T, vocabulary), T <= context. The output head's weight is the token
// table. Parameters: wte.weight (vocabulary, width), wpe.weight (context, width), the blocks h0, h1, …, and lnf, after
// the layer's name and a dot; the name "" (LayerContext) leaves them bare.
class Gpt : public Layer {
 public:
  explicit Gpt(const GptOptions& options);
};

// Layers in a row: a layer itself, and the short way to a whole model. A layer without a name is named by its place and
// kind ("0.linear"); inside a model the sequence's own name comes first ("body.0.linear").
class Sequential : public Layer {
 public:
  struct Entry {
    Layer layer;
    std::string name;
    Entry(const Layer& l, std::string n = {}) : layer(l), name(std::move(n)) {}
  };
  Sequential(std::vector<Entry> layers);

  // Makes a Model with one input and the output "output". Throws Error when built already.
  Value build(TensorType input, const std::string& input_name = "x", uint64_t seed = 0);
  Model& model() const;  // Throws Error before build
  // Compiles the built model; run replays it. Throw Error before build and before compile.
  void compile(const CompileOptions& options) const;
  StepResult run(const std::vector<Feed>& feeds) const;
  Program& program() const;

 private:
  struct State;
  std::shared_ptr<State> state_;
};

}  // namespace nn
}  // namespace aicf
