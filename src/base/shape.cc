#include "aicf/shape.h"

#include <algorithm>

#include "aicf/error.h"

namespace aicf {

Shape::Shape(std::initializer_list<int64_t> dims) : Shape(std::span<const int64_t>(dims.begin(), dims.size())) {}

Shape::Shape(std::span<const int64_t> dims) {
  if (dims.size() > static_cast<size_t>(kMaxRank)) {
    throw Error("shape of rank " + std::to_string(dims.size()) + ": at most " + std::to_string(kMaxRank));
  }
  int64_t product = 1;  // of the non-zero extents, so that a zero hides no overflow
  for (int64_t d : dims) {
    if (d < 0) throw Error("shape with the negative extent " + std::to_string(d));
    if (d > 0 && product > (int64_t{1} << 62) / d) throw Error("shape with more than 2^62 elements");
    if (d > 0) product *= d;
    dims_[rank_++] = d;
  }
}

int64_t Shape::elements() const {
  int64_t n = 1;
  for (int64_t d : dims()) n *= d;
  return n;
}

bool Shape::operator==(const Shape& other) const {
  return rank_ == other.rank_ && std::equal(begin(), end(), other.begin());
}

std::string to_string(const Shape& shape) {
  std::string text = "[";
  for (int i = 0; i < shape.rank(); ++i) {
    if (i > 0) text += ',';
    text += std::to_string(shape[i]);
  }
  return text + "]";
}

size_t TensorType::bytes() const {
  const auto elements = static_cast<size_t>(shape.elements());
  if (elements > (size_t{1} << 62) / size_of(dtype)) {
    throw Error("expected at most 2^62 bytes, got " + to_string(*this));
  }
  return elements * size_of(dtype);
}

std::string to_string(const TensorType& type) { return std::string(name_of(type.dtype)) + to_string(type.shape); }

}  // namespace aicf
