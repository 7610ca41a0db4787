// The leaves of the f32 reduction tree, for every Highway target.
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "backend/cpu/reduce_f32.cc"
#include "hwy/foreach_target.h"
// After foreach_target.
#include <bit>

#include "backend/cpu/reduce_tree.h"
#include "backend/cpu/simd_f32-inl.h"
#include "ops/pointwise_scalar.h"

HWY_BEFORE_NAMESPACE();
namespace aicf::backend::cpu {
namespace HWY_NAMESPACE {

// On vectors and on single floats alike.
#define AICF_REDUCE(Name, name, start)                                                                       \
  struct Name {                                                                                              \
    static constexpr float kIdentity = start;                                                                \
    HWY_INLINE HWY_ATTR F32 operator()(F32 a, F32 b) const { return op_##name(a, b); }                       \
    HWY_INLINE HWY_ATTR float operator()(float a, float b) const { return ops::pointwise::op_##name(a, b); } \
  };
AICF_REDUCE(Sum, add, 0)
AICF_REDUCE(Prod, mul, 1)
AICF_REDUCE(Max, maximum, -__builtin_inff())
AICF_REDUCE(Min, minimum, __builtin_inff())
#undef AICF_REDUCE

inline constexpr size_t kVectors = kRowLanes / kLanes;  // that hold the lanes of a block

// Lane j with lane j + w/2, down to one.
template <class Op>
HWY_INLINE HWY_ATTR float combine_lanes(float* lanes, size_t w) {
  for (size_t h = w / 2; h > 0; h /= 2) {
    for (size_t j = 0; j < h; ++j) lanes[j] = Op()(lanes[j], lanes[j + h]);
  }
  return lanes[0];
}

template <class Op>
HWY_INLINE HWY_ATTR float narrow_block(const float* x, size_t n) {
  float lanes[kRowLanes];
  const size_t w = std::bit_ceil(n);
  for (size_t i = 0; i < n; ++i) lanes[i] = Op()(Op::kIdentity, x[i]);
  std::fill(lanes + n, lanes + w, Op::kIdentity);
  return combine_lanes<Op>(lanes, w);
}

template <class Op>
HWY_ATTR float row_block(const float* x, size_t n) {
  if (n < kRowLanes) return narrow_block<Op>(x, n);
  F32 acc[kVectors];
  for (size_t k = 0; k < kVectors; ++k) acc[k] = lit<F32>(Op::kIdentity);
  size_t i = 0;
  for (; i + kRowLanes <= n; i += kRowLanes) {
    for (size_t k = 0; k < kVectors; ++k) acc[k] = Op()(acc[k], load(x + i + k * kLanes));
  }
  alignas(64) float lanes[kRowLanes];
  if (i < n) {
    for (size_t k = 0; k < kVectors; ++k) store(acc[k], lanes + k * kLanes);
    for (size_t j = 0; i < n; ++i, ++j) lanes[j] = Op()(lanes[j], x[i]);
    for (size_t k = 0; k < kVectors; ++k) acc[k] = load(lanes + k * kLanes);
  }
  for (size_t h = kVectors / 2; h > 0; h /= 2) {
    for (size_t k = 0; k < h; ++k) acc[k] = Op()(acc[k], acc[k + h]);
  }
  store(acc[0], lanes);
  return combine_lanes<Op>(lanes, kLanes);
}

template <class Op, size_t kWidth>
HWY_INLINE HWY_ATTR void column_vectors(float* acc, const float* x, size_t rows, size_t pitch) {
  F32 a[kWidth];
  for (size_t k = 0; k < kWidth; ++k) a[k] = load(acc + k * kLanes);
  for (size_t r = 0; r < rows; ++r) {
    for (size_t k = 0; k < kWidth; ++k) a[k] = Op()(a[k], load(x + r * pitch + k * kLanes));
  }
  for (size_t k = 0; k < kWidth; ++k) store(a[k], acc + k * kLanes);
}

template <class Op>
HWY_ATTR void column_rows(float* acc, const float* x, size_t rows, size_t pitch, size_t columns) {
  size_t c = 0;
  for (; c + 4 * kLanes <= columns; c += 4 * kLanes) column_vectors<Op, 4>(acc + c, x + c, rows, pitch);
  for (; c + kLanes <= columns; c += kLanes) column_vectors<Op, 1>(acc + c, x + c, rows, pitch);
  for (size_t r = 0; r < rows; ++r) {
    for (size_t j = c; j < columns; ++j) acc[j] = Op()(acc[j], x[r * pitch + j]);
  }
}

template <class Op>
inline constexpr ReduceTree<float> kTree = {Op::kIdentity, row_block<Op>, column_rows<Op>};

const ReduceTree<float>* f32_tree(ReduceKind kind) {
  switch (kind) {
    case ReduceKind::sum:
      return &kTree<Sum>;
    case ReduceKind::prod:
      return &kTree<Prod>;
    case ReduceKind::max:
      return &kTree<Max>;
    case ReduceKind::min:
      break;
  }
  return &kTree<Min>;
}

}  // namespace HWY_NAMESPACE
}  // namespace aicf::backend::cpu
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace aicf::backend::cpu {
HWY_EXPORT(f32_tree);
template <>
const ReduceTree<float>& reduce_tree<float>(ReduceKind kind) {
  return *HWY_DYNAMIC_DISPATCH(f32_tree)(kind);
}
}  // namespace aicf::backend::cpu
#endif
