// The leaves of the reduction tree for f64, the integers and bytes: the same tree in scalar loops.
#include <bit>
#include <limits>

#include "backend/cpu/reduce_tree.h"
#include "ops/pointwise_scalar.h"

namespace aicf::backend::cpu {
namespace {

namespace pw = ops::pointwise;

template <class T>
T combine(ReduceKind kind, T a, T b) {
  if constexpr (std::is_same_v<T, double>) {
    switch (kind) {
      case ReduceKind::sum:
        return pw::op_add(a, b);
      case ReduceKind::prod:
        return pw::op_mul(a, b);
      case ReduceKind::max:
        return pw::op_maximum(a, b);
      case ReduceKind::min:
        break;
    }
    return pw::op_minimum(a, b);
  } else {
    using Wrapped = pw::Wrapping<T>;
    switch (kind) {
      case ReduceKind::sum:
        return pw::op_add(Wrapped{a}, Wrapped{b}).v;
      case ReduceKind::prod:
        return pw::op_mul(Wrapped{a}, Wrapped{b}).v;
      case ReduceKind::max:
        return std::max(a, b);
      case ReduceKind::min:
        break;
    }
    return std::min(a, b);
  }
}

template <class T>
constexpr T identity(ReduceKind kind) {
  using Limits = std::numeric_limits<T>;
  switch (kind) {
    case ReduceKind::sum:
      return 0;
    case ReduceKind::prod:
      return 1;
    case ReduceKind::max:
      return Limits::has_infinity ? -Limits::infinity() : Limits::lowest();
    case ReduceKind::min:
      break;
  }
  return Limits::has_infinity ? Limits::infinity() : Limits::max();
}

template <class T, ReduceKind kKind>
T row_block(const T* x, size_t n) {
  T lanes[kRowLanes];
  const size_t w = std::min(kRowLanes, std::bit_ceil(n));
  std::fill_n(lanes, w, identity<T>(kKind));
  for (size_t i = 0; i < n; ++i) lanes[i % w] = combine(kKind, lanes[i % w], x[i]);
  for (size_t h = w / 2; h > 0; h /= 2) {
    for (size_t j = 0; j < h; ++j) lanes[j] = combine(kKind, lanes[j], lanes[j + h]);
  }
  return lanes[0];
}

template <class T, ReduceKind kKind>
void rows(const T* x, size_t count, size_t n, T* out) {
  for (size_t r = 0; r < count; ++r) out[r] = row_block<T, kKind>(x + r * n, n);
}

template <class T, ReduceKind kKind>
void column_rows(T* acc, const T* x, size_t rows, size_t pitch, size_t columns) {
  for (size_t r = 0; r < rows; ++r) {
    for (size_t c = 0; c < columns; ++c) acc[c] = combine(kKind, acc[c], x[r * pitch + c]);
  }
}

template <class T, ReduceKind kKind>
constexpr ReduceTree<T> kTree = {identity<T>(kKind), row_block<T, kKind>, rows<T, kKind>, column_rows<T, kKind>};

}  // namespace

template <class T>
const ReduceTree<T>& reduce_tree(ReduceKind kind) {
  switch (kind) {
    case ReduceKind::sum:
      return kTree<T, ReduceKind::sum>;
    case ReduceKind::prod:
      return kTree<T, ReduceKind::prod>;
    case ReduceKind::max:
      return kTree<T, ReduceKind::max>;
    case ReduceKind::min:
      break;
  }
  return kTree<T, ReduceKind::min>;
}

template const ReduceTree<double>& reduce_tree<double>(ReduceKind);
template const ReduceTree<int32_t>& reduce_tree<int32_t>(ReduceKind);
template const ReduceTree<int64_t>& reduce_tree<int64_t>(ReduceKind);
template const ReduceTree<uint8_t>& reduce_tree<uint8_t>(ReduceKind);

}  // namespace aicf::backend::cpu
