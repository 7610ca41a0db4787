// Shapes and tensor types. Tensors are dense and row-major; there are no strides.
#pragma once

#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <span>
#include <string>

#include "aicf/dtype.h"

namespace aicf {

inline constexpr int kMaxRank = 8;

// Up to eight extents held inline. Rank 0 is a scalar; an extent may be 0.
class Shape {
 public:
  Shape() = default;
  // Throws Error on a negative extent, a rank above kMaxRank, or an element count above 2^62.
  Shape(std::initializer_list<int64_t> dims);
  explicit Shape(std::span<const int64_t> dims);

  int rank() const { return rank_; }
  int64_t operator[](int axis) const { return dims_[axis]; }  // REQUIRES 0 <= axis < rank()
  std::span<const int64_t> dims() const { return {dims_, static_cast<size_t>(rank_)}; }
  const int64_t* begin() const { return dims_; }
  const int64_t* end() const { return dims_ + rank_; }
  int64_t elements() const;  // 1 for a scalar

  bool operator==(const Shape& other) const;

 private:
  int64_t dims_[kMaxRank] = {};
  int rank_ = 0;
};

// "[64,128]"; "[]" for a scalar.
std::string to_string(const Shape& shape);

struct TensorType {
  DType dtype = DType::f32;
  Shape shape;

  size_t bytes() const;  // Throws Error above 2^62
  bool operator==(const TensorType&) const = default;
};

// "f32[64,128]"
std::string to_string(const TensorType& type);

}  // namespace aicf
