// A graph with fed externals and the gradient of a loss in it: what the case tests are written with.
#pragma once

#include <string>
#include <vector>

#include "aicf/ops.h"
#include "ops/grad_check.h"

namespace aicf::test {

template <class T>
Tensor tensor(Shape shape, const std::vector<T>& data) {
  return Tensor::of<T>(shape, data);
}
inline Tensor vec(const std::vector<float>& data) { return tensor<float>({static_cast<int64_t>(data.size())}, data); }

class Tape {
 public:
  Value param(const std::string& key, const Tensor& data) {
    feeds_[key] = data;
    if (is_float(data.dtype())) keys_.insert(key);
    return graph_.handle(graph_.add_external(ir::Role::param, key, data.type()));
  }
  Value input(const std::string& key, const Tensor& data) {
    feeds_[key] = data;
    return graph_.handle(graph_.add_external(ir::Role::input, key, data.type()));
  }
  Value constant(const Tensor& data) { return graph_.handle(graph_.add_constant(data)); }
  ir::Graph& graph() { return graph_; }

  // "loss" and grad:KEY of every float param that the loss reaches, with this cotangent of the loss. Call once.
  TensorMap backward(Value loss, double cotangent = 1, const RunMode& mode = {}) {
    graph_.add_output("loss", loss.id());
    add_gradients(graph_, keys_, cotangent);
    return expand_and_interpret(graph_, feeds_, mode);
  }
  TensorMap forward(Value y, const RunMode& mode = {}) {
    graph_.add_output("y", y.id());
    return expand_and_interpret(graph_, feeds_, mode);
  }

 private:
  ir::Graph graph_;
  TensorMap feeds_;
  std::set<std::string> keys_;
};

inline void expect_values(const Tensor& got, const std::vector<double>& want, double tolerance = 0) {
  ASSERT_EQ(got.elements(), static_cast<int64_t>(want.size()));
  for (int64_t i = 0; i < got.elements(); ++i) {
    if (same_value(got.at(i), want[i])) continue;
    EXPECT_LE(std::fabs(got.at(i) - want[i]), tolerance) << "element " << i << " is " << got.at(i);
  }
}

// Ulps of f32 at 1: the tolerance of a few roundings on values of order 1.
inline constexpr double kFewUlps = 8 * 0x1p-23;

}  // namespace aicf::test
