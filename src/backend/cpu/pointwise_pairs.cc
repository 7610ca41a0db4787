// Two f32 ops of arithmetic in one tile, for every Highway target: what lies between them stays in a register. Each is
// rounded as it is alone.
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "backend/cpu/pointwise_pairs.cc"
#include "hwy/foreach_target.h"
// After foreach_target.
#include "backend/cpu/pointwise_tables.h"
#include "backend/cpu/simd_f32-inl.h"

HWY_BEFORE_NAMESPACE();
namespace aicf::backend::cpu {
namespace HWY_NAMESPACE {

#define AICF_PAIRED(name)                                                              \
  struct Pair_##name {                                                                 \
    HWY_INLINE HWY_ATTR F32 operator()(F32 a, F32 b) const { return op_##name(a, b); } \
  };
AICF_PAIRED(add)
AICF_PAIRED(sub)
AICF_PAIRED(mul)
AICF_PAIRED(div)
#undef AICF_PAIRED

// out = Outer(Inner(in[0], in[1]), in[2]), or Outer(in[2], Inner(…)) where kRight.
template <class Inner, class Outer, bool kRight, unsigned kScalars>
HWY_ATTR void pair_tile(const void* const* in, void* out, size_t n) {
  const float* x[3];
  F32 all[3];
  for (size_t k = 0; k < 3; ++k) {
    x[k] = static_cast<const float*>(in[k]);
    all[k] = {hn::Set(FloatTag(), *x[k])};
  }
  float* y = static_cast<float*>(out);
  const auto value = [&](const float* a, const float* b, const float* c) HWY_ATTR {
    const F32 inner = Inner()(kScalars & 1 ? all[0] : load(a), kScalars & 2 ? all[1] : load(b));
    const F32 other = kScalars & 4 ? all[2] : load(c);
    return kRight ? Outer()(other, inner) : Outer()(inner, other);
  };
  size_t i = 0;
  for (; i + kLanes <= n; i += kLanes) store(value(x[0] + i, x[1] + i, x[2] + i), y + i);
  if (i == n) return;
  float px[3][kLanes] = {}, py[kLanes];
  for (size_t k = 0; k < 3; ++k) {
    if (!(kScalars >> k & 1)) std::memcpy(px[k], x[k] + i, (n - i) * sizeof(float));
  }
  store(value(px[0], px[1], px[2]), py);
  std::memcpy(y + i, py, (n - i) * sizeof(float));
}

template <class Inner, class Outer, bool kRight>
TileFn by_scalars(unsigned scalars) {
  switch (scalars) {
    case 0:
      return pair_tile<Inner, Outer, kRight, 0>;
    case 1:
      return pair_tile<Inner, Outer, kRight, 1>;
    case 2:
      return pair_tile<Inner, Outer, kRight, 2>;
    case 4:
      return pair_tile<Inner, Outer, kRight, 4>;
    case 5:
      return pair_tile<Inner, Outer, kRight, 5>;
    case 6:
      return pair_tile<Inner, Outer, kRight, 6>;
    default:
      return nullptr;
  }
}

template <class Inner, class Outer>
TileFn by_side(bool right, unsigned scalars) {
  return right ? by_scalars<Inner, Outer, true>(scalars) : by_scalars<Inner, Outer, false>(scalars);
}

template <class Inner>
TileFn by_outer(Pointwise outer, bool right, unsigned scalars) {
  switch (outer) {
    case Pointwise::add:
      return by_side<Inner, Pair_add>(right, scalars);
    case Pointwise::sub:
      return by_side<Inner, Pair_sub>(right, scalars);
    case Pointwise::mul:
      return by_side<Inner, Pair_mul>(right, scalars);
    case Pointwise::div:
      return by_side<Inner, Pair_div>(right, scalars);
    default:
      return nullptr;
  }
}

TileFn f32_pair(Pointwise inner, Pointwise outer, bool right, unsigned scalars) {
  switch (inner) {
    case Pointwise::add:
      return by_outer<Pair_add>(outer, right, scalars);
    case Pointwise::sub:
      return by_outer<Pair_sub>(outer, right, scalars);
    case Pointwise::mul:
      return by_outer<Pair_mul>(outer, right, scalars);
    default:
      return nullptr;
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace aicf::backend::cpu
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace aicf::backend::cpu {
HWY_EXPORT(f32_pair);
TileFn find_f32_pair(Pointwise inner, Pointwise outer, bool right, unsigned scalars) {
  return HWY_DYNAMIC_DISPATCH(f32_pair)(inner, outer, right, scalars);
}
}  // namespace aicf::backend::cpu
#endif
