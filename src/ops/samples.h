// Builders for the samples of records.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "ir/op.h"

namespace aicf::ops {

// f32 of these shapes, in order.
inline std::vector<TensorType> floats(std::initializer_list<Shape> shapes) {
  std::vector<TensorType> types;
  for (const Shape& s : shapes) types.push_back({f32, s});
  return types;
}

inline Tensor values(Shape shape, const std::vector<float>& data) { return Tensor::of<float>(shape, data); }

// Repeats the numbers until the shape is full.
inline Tensor cycle(Shape shape, const std::vector<float>& data) {
  std::vector<float> all(static_cast<size_t>(shape.elements()));
  for (size_t i = 0; i < all.size(); ++i) all[i] = data[i % data.size()];
  return Tensor::of<float>(shape, all);
}

// A sample with every operand given and the result worked out by hand. A finite-difference check suits it only where
// the function is smooth, so that is off unless asked for.
inline ir::Sample by_hand(std::string name, std::vector<Tensor> operands, std::vector<std::vector<double>> expected,
                          ir::Attrs attrs = {}, double tolerance = 0) {
  ir::Sample s;
  s.name = std::move(name);
  s.attrs = std::move(attrs);
  for (size_t i = 0; i < operands.size(); ++i) {
    s.inputs.push_back(operands[i].type());
    s.values.emplace_back(static_cast<int>(i), std::move(operands[i]));
  }
  s.expected = std::move(expected);
  s.tolerance = tolerance;
  s.check_grad = false;
  return s;
}

inline ir::Sample with_grad(ir::Sample s) {
  s.check_grad = true;
  return s;
}

}  // namespace aicf::ops
