// The geometry of concat and split.
#include "backend/cpu/segments.h"

namespace aicf::backend::cpu {

Segments segments_of(std::span<const TensorType> parts, const TensorType& whole, int axis) {
  auto inner = static_cast<int64_t>(size_of(whole.dtype));
  for (int i = axis + 1; i < whole.shape.rank(); ++i) inner *= whole.shape[i];
  Segments s;
  s.begin.push_back(0);
  for (const TensorType& part : parts) s.begin.push_back(s.begin.back() + part.shape[axis] * inner);
  s.total = static_cast<int64_t>(whole.bytes());
  return s;
}

}  // namespace aicf::backend::cpu
