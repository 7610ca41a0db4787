// The leaves of the f32 reduction tree, for every Highway target.
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "backend/cpu/reduce_f32.cc"
#include "hwy/foreach_target.h"
// After foreach_target.
#include <immintrin.h>

#include <bit>

#include "backend/cpu/reduce_tree.h"
#include "backend/cpu/simd_f32-inl.h"
#include "hwy/cache_control.h"
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

// Lane j with lane j + w/2, down to one; w <= kLanes. Only the low lanes mean anything.
template <class Op>
HWY_INLINE HWY_ATTR float combine_lanes(F32 x, [[maybe_unused]] size_t w) {
#if HWY_TARGET != HWY_SCALAR
#if HWY_TARGET <= HWY_AVX3
  if (w > 8) x = Op()(x, F32{hn::ConcatUpperUpper(FloatTag(), x.v, x.v)});
#endif
#if HWY_TARGET <= HWY_AVX2
  if (w > 4) x = Op()(x, F32{hn::SwapAdjacentBlocks(x.v)});
#endif
  if (w > 2) x = Op()(x, F32{hn::Shuffle1032(x.v)});
  if (w > 1) x = Op()(x, F32{hn::Shuffle2301(x.v)});
#endif
  return hn::GetLane(x.v);
}

// Takes `n` elements, at most one for each lane, into the lanes they belong to.
template <class Op>
HWY_INLINE HWY_ATTR void take_some(F32* acc, const float* x, size_t n) {
  for (size_t k = 0; k * kLanes < n; ++k) {
    const auto some = hn::FirstN(FloatTag(), n - k * kLanes);
    const F32 v = {hn::MaskedLoad(some, FloatTag(), x + k * kLanes)};
    acc[k] = select(Mask{some}, Op()(acc[k], v), acc[k]);
  }
}

// The lanes of a block of at least as many elements, those of a vector left to combine.
template <class Op>
HWY_INLINE HWY_ATTR F32 long_lanes(const float* x, size_t n) {
  F32 acc[kVectors];
#pragma GCC unroll 16
  for (size_t k = 0; k < kVectors; ++k) acc[k] = lit<F32>(Op::kIdentity);
  size_t i = 0;
  for (; i + kRowLanes <= n; i += kRowLanes) {
#pragma GCC unroll 16
    for (size_t k = 0; k < kVectors; ++k) acc[k] = Op()(acc[k], load(x + i + k * kLanes));
  }
  if (i < n) {
#pragma GCC unroll 16
    for (size_t k = 0; k < kVectors; ++k) {
      if (i + k * kLanes < n) take_some<Op>(acc + k, x + i + k * kLanes, std::min(kLanes, n - i - k * kLanes));
    }
  }
#pragma GCC unroll 16
  for (size_t h = kVectors / 2; h > 0; h /= 2) {
#pragma GCC unroll 16
    for (size_t k = 0; k < h; ++k) acc[k] = Op()(acc[k], acc[k + h]);
  }
  return acc[0];
}

// Of a shorter one: with as many elements as a vector has lanes it stays in a register.
template <class Op>
HWY_INLINE HWY_ATTR F32 short_lanes(const float* x, size_t n) {
  if (n <= kLanes) {
    F32 one = lit<F32>(Op::kIdentity);
    take_some<Op>(&one, x, n);
    return one;
  }
  F32 acc[kVectors];
  const size_t vectors = std::bit_ceil(n) / kLanes;
  for (size_t k = 0; k < vectors; ++k) acc[k] = lit<F32>(Op::kIdentity);
  take_some<Op>(acc, x, n);
  for (size_t h = vectors / 2; h > 0; h /= 2) {
    for (size_t k = 0; k < h; ++k) acc[k] = Op()(acc[k], acc[k + h]);
  }
  return acc[0];
}

template <class Op>
HWY_ATTR float row_block(const float* x, size_t n) {
  if (n >= kRowLanes) return combine_lanes<Op>(long_lanes<Op>(x, n), kLanes);
  return combine_lanes<Op>(short_lanes<Op>(x, n), std::min(std::bit_ceil(n), kLanes));
}

#if HWY_TARGET <= HWY_AVX3
// Half of the lanes of a and half of b's with the others, so that one op is a step of two rows. The halves are blocks
// of 128 bits, then pairs, then single lanes.
template <class Op, int kLow, int kHigh>
HWY_INLINE HWY_ATTR F32 combine_blocks_of(F32 a, F32 b) {
  return Op()(F32{{_mm512_maskz_shuffle_f32x4(0xffff, a.v.raw, b.v.raw, kLow)}},
              F32{{_mm512_maskz_shuffle_f32x4(0xffff, a.v.raw, b.v.raw, kHigh)}});
}
template <class Op>
HWY_INLINE HWY_ATTR F32 combine_pairs_of(F32 a, F32 b) {
  const __m512d x = _mm512_castps_pd(a.v.raw), y = _mm512_castps_pd(b.v.raw);
  return Op()(F32{{_mm512_castpd_ps(_mm512_maskz_unpacklo_pd(0xff, x, y))}},
              F32{{_mm512_castpd_ps(_mm512_maskz_unpackhi_pd(0xff, x, y))}});
}
template <class Op>
HWY_INLINE HWY_ATTR F32 combine_singles_of(F32 a, F32 b) {
  return Op()(F32{{_mm512_maskz_shuffle_ps(0xffff, a.v.raw, b.v.raw, 0x88)}},
              F32{{_mm512_maskz_shuffle_ps(0xffff, a.v.raw, b.v.raw, 0xdd)}});
}

// As many rows as a vector has lanes, read in order: lane r of the result is that of row r.
template <class Op, bool kLong>
HWY_ATTR F32 rows_together(const float* x, size_t n) {
  F32 rows[kLanes];
  for (size_t r = 0; r < kLanes; ++r, x += n) rows[r] = kLong ? long_lanes<Op>(x, n) : short_lanes<Op>(x, n);
  F32 four[4];
#pragma GCC unroll 4
  for (size_t k = 0; k < 4; ++k) {
    four[k] = combine_blocks_of<Op, 0x88, 0xdd>(combine_blocks_of<Op, 0x44, 0xee>(rows[k], rows[k + 4]),
                                                combine_blocks_of<Op, 0x44, 0xee>(rows[k + 8], rows[k + 12]));
  }
  return combine_singles_of<Op>(combine_pairs_of<Op>(four[0], four[1]), combine_pairs_of<Op>(four[2], four[3]));
}

// Of longer rows what is left to combine is little.
inline constexpr size_t kLongestTogether = 256;
#endif

template <class Op>
HWY_ATTR void rows(const float* x, size_t count, size_t n, float* out) {
  size_t r = 0;
#if HWY_TARGET <= HWY_AVX3
  const auto together = n >= kRowLanes ? rows_together<Op, true> : rows_together<Op, false>;
  for (; n <= kLongestTogether && r + kLanes <= count; r += kLanes) store(together(x + r * n, n), out + r);
#endif
  for (; r < count; ++r) out[r] = row_block<Op>(x + r * n, n);
}

// A prefetcher does not follow from row to row where they are far apart.
inline constexpr size_t kRowsAhead = 8;

template <class Op, size_t kWidth>
HWY_INLINE HWY_ATTR void column_vectors(float* acc, const float* x, size_t rows, size_t pitch) {
  F32 a[kWidth];
  for (size_t k = 0; k < kWidth; ++k) a[k] = load(acc + k * kLanes);
  const bool far = pitch > kWidth * kLanes;
  for (size_t r = 0; r < rows; ++r) {
    for (size_t k = 0; k < kWidth; ++k) {
      if (far && r + kRowsAhead < rows) hwy::Prefetch(x + (r + kRowsAhead) * pitch + k * kLanes);
      a[k] = Op()(a[k], load(x + r * pitch + k * kLanes));
    }
  }
  for (size_t k = 0; k < kWidth; ++k) store(a[k], acc + k * kLanes);
}

// Half of the registers.
inline constexpr size_t kWide = HWY_TARGET <= HWY_AVX3 ? 16 : 8;

template <class Op>
HWY_ATTR void column_rows(float* acc, const float* x, size_t rows, size_t pitch, size_t columns) {
  size_t c = 0;
  for (; c + kWide * kLanes <= columns; c += kWide * kLanes) column_vectors<Op, kWide>(acc + c, x + c, rows, pitch);
  for (; c + 4 * kLanes <= columns; c += 4 * kLanes) column_vectors<Op, 4>(acc + c, x + c, rows, pitch);
  for (; c + kLanes <= columns; c += kLanes) column_vectors<Op, 1>(acc + c, x + c, rows, pitch);
  for (size_t r = 0; r < rows; ++r) {
    for (size_t j = c; j < columns; ++j) acc[j] = Op()(acc[j], x[r * pitch + j]);
  }
}

template <class Op>
inline constexpr ReduceTree<float> kTree = {Op::kIdentity, row_block<Op>, rows<Op>, column_rows<Op>};

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
