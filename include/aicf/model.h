// Model: the declaration of a network: inputs, parameters, states, layers, outputs.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "aicf/nn.h"
#include "aicf/tensor.h"
#include "aicf/value.h"

namespace aicf {

// How an external starts. Random draws are Philox keyed by (seed, name): the same bits on every backend and machine.
struct Init {
  enum class Kind : uint8_t { zeros, ones, value, uniform, normal } kind = Kind::zeros;
  double a = 0;  // value; low; mean
  double b = 0;  // high; standard deviation

  static Init zeros() { return {}; }
  static Init ones() { return {Kind::ones, 0, 0}; }
  static Init value(double v) { return {Kind::value, v, 0}; }
  static Init uniform(double low, double high) { return {Kind::uniform, low, high}; }
  static Init normal(double mean, double deviation) { return {Kind::normal, mean, deviation}; }
};

// Independent models may be built from different threads; one model from one thread at a time.
class Model {
 public:
  explicit Model(uint64_t seed = 0);
  ~Model();
  Model(Model&&) noexcept;
  Model& operator=(Model&&) noexcept;

  // Declare externals. Throw Error on a name already taken or an empty one.
  Value input(const std::string& name, TensorType type);
  // `group`: see optim::Group; "" is the default group.
  Value param(const std::string& name, TensorType type, Init init = {}, const std::string& group = {});
  Value state(const std::string& name, TensorType type, Init init = {});
  // A state that always equals `expression` of other externals; refreshed with them, not saved, not writable.
  Value derived(const std::string& name, Value expression);
  Value constant(const Tensor& data);

  // Emits the layer on the inputs, creating its parameters as NAME.weight and so on. The same handle added again shares
  // its parameters (leave `name` empty or repeat it); another handle with a name in use throws Error. An empty name is
  // made from the layer's kind and a count ("linear1"). A param declared beforehand as NAME.weight is taken as it is,
  // which gives it another initial value or a group.
  Value add(const nn::Layer& layer, Value input, const std::string& name = {});
  Value add(const nn::Layer& layer, const std::vector<Value>& inputs, const std::string& name = {});
  // The name the layer was added under, or "".
  std::string name_of(const nn::Layer& layer) const;

  // state := value at the end of each training step (a running mean, say), a parallel assignment of old values.
  // Throws Error on a second update of one state.
  void update(Value state, Value value);

  // Names a value that every program compiled from this model returns, if it asks for no outputs of its own.
  void output(const std::string& name, Value value);
  Value output(const std::string& name) const;  // Throws Error when there is none

  // The external, output or labelled value of this name. Throws Error (nearest name offered) when there is none.
  Value value(const std::string& name);

  // The parameter is left as it is by training: it leaves its group. Throws Error when there is no such parameter.
  void freeze(const std::string& param);

  uint64_t seed() const;
  // The graph so far, as text (docs/ir.md).
  std::string text() const;

  // For the library's own use.
  ir::Graph& graph();
  const ir::Graph& graph() const;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace aicf
