// The f32 vector type of one Highway target, with what pointwise.inc needs of a value type. Included once per target,
// inside foreach_target; the include guard toggles with the target, as Highway asks.
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>

#include "hwy/highway.h"

#if defined(AICF_SIMD_F32_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef AICF_SIMD_F32_INL_H_
#undef AICF_SIMD_F32_INL_H_
#else
#define AICF_SIMD_F32_INL_H_
#endif

HWY_BEFORE_NAMESPACE();
namespace aicf::backend::cpu {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

using FloatTag = hn::ScalableTag<float>;
using IntTag = hn::RebindToSigned<FloatTag>;
using UIntTag = hn::RebindToUnsigned<FloatTag>;
inline constexpr size_t kLanes = HWY_LANES(float);

struct F32 {
  hn::Vec<FloatTag> v;
};
struct Mask {
  hn::Mask<FloatTag> m;
};

#define AICF_SIMD HWY_INLINE HWY_ATTR
AICF_SIMD F32 operator+(F32 a, F32 b) { return {hn::Add(a.v, b.v)}; }
AICF_SIMD F32 operator-(F32 a, F32 b) { return {hn::Sub(a.v, b.v)}; }
AICF_SIMD F32 operator*(F32 a, F32 b) { return {hn::Mul(a.v, b.v)}; }
AICF_SIMD F32 operator/(F32 a, F32 b) { return {hn::Div(a.v, b.v)}; }
AICF_SIMD F32 operator-(F32 a) { return {hn::Neg(a.v)}; }

template <class V>
AICF_SIMD V lit(double c) {
  return {hn::Set(FloatTag(), static_cast<float>(c))};
}
AICF_SIMD Mask lt(F32 a, F32 b) { return {hn::Lt(a.v, b.v)}; }
AICF_SIMD Mask le(F32 a, F32 b) { return {hn::Le(a.v, b.v)}; }
AICF_SIMD Mask eq(F32 a, F32 b) { return {hn::Eq(a.v, b.v)}; }
AICF_SIMD Mask both(Mask a, Mask b) { return {hn::And(a.m, b.m)}; }
AICF_SIMD Mask either(Mask a, Mask b) { return {hn::Or(a.m, b.m)}; }
AICF_SIMD Mask negate(Mask a) { return {hn::Not(a.m)}; }

AICF_SIMD Mask is_nan(F32 x) { return {hn::IsNaN(x.v)}; }
AICF_SIMD F32 abs_of(F32 x) { return {hn::Abs(x.v)}; }
AICF_SIMD F32 sqrt_of(F32 x) { return {hn::Sqrt(x.v)}; }
AICF_SIMD F32 and_bits(F32 a, F32 b) { return {hn::And(a.v, b.v)}; }
AICF_SIMD F32 or_bits(F32 a, F32 b) { return {hn::Or(a.v, b.v)}; }

AICF_SIMD hn::Vec<UIntTag> bits_of(F32 x) { return hn::BitCast(UIntTag(), x.v); }
AICF_SIMD F32 of_bits(hn::Vec<UIntTag> x) { return {hn::BitCast(FloatTag(), x)}; }
AICF_SIMD hn::Vec<UIntTag> bits(uint32_t x) { return hn::Set(UIntTag(), x); }
AICF_SIMD F32 with_sign(F32 magnitude, F32 sign) {
  return of_bits(hn::Or(hn::And(bits_of(magnitude), bits(0x7fffffff)), hn::And(bits_of(sign), bits(0x80000000))));
}
// On bits, lest the compiler make it a min or max instruction, which flushes a subnormal that a selection keeps.
AICF_SIMD F32 select(Mask c, F32 a, F32 b) {
#if defined(__clang__) && HWY_TARGET <= HWY_AVX2
  asm("" : "+v"(a.v.raw));  // Clang sees through bits
#endif
  return of_bits(hn::IfThenElse(hn::RebindMask(UIntTag(), c.m), bits_of(a), bits_of(b)));
}
// Highway's MulAdd is two roundings on the targets below AVX2.
AICF_SIMD F32 fma_of(F32 a, F32 b, F32 c) {
#if HWY_TARGET <= HWY_AVX2
  return {hn::MulAdd(a.v, b.v, c.v)};
#else
  float x[kLanes], y[kLanes], z[kLanes];
  hn::StoreU(a.v, FloatTag(), x);
  hn::StoreU(b.v, FloatTag(), y);
  hn::StoreU(c.v, FloatTag(), z);
  for (size_t i = 0; i < kLanes; ++i) z[i] = std::fma(x[i], y[i], z[i]);
  return {hn::LoadU(FloatTag(), z)};
#endif
}
// The second operand of x86's instructions is the result where one is NaN.
AICF_SIMD F32 clamp(F32 x, double low, double high) {
#if HWY_TARGET <= HWY_AVX2
  return {hn::Min(lit<F32>(high).v, hn::Max(lit<F32>(low).v, x.v))};
#else
  const F32 least = select(lt(x, lit<F32>(low)), lit<F32>(low), x);
  return select(lt(lit<F32>(high), least), lit<F32>(high), least);
#endif
}
AICF_SIMD F32 add_exponent(F32 p, F32 t) { return of_bits(hn::Add(bits_of(p), hn::ShiftLeft<23>(bits_of(t)))); }
// Adding 1.5 * 2^23 leaves n in the low bits.
AICF_SIMD F32 pow2(F32 n) { return of_bits(hn::ShiftLeft<23>(hn::Add(bits_of(n + lit<F32>(0x1.8p23)), bits(127)))); }
inline constexpr uint32_t kSqrtHalfBits = 0x3f3504f3;
AICF_SIMD F32 exponent(F32 x) {
  const auto e = hn::ShiftRight<23>(hn::BitCast(IntTag(), hn::Sub(bits_of(x), bits(kSqrtHalfBits))));
  return {hn::ConvertTo(FloatTag(), e)};
}
AICF_SIMD F32 mantissa(F32 x) {
  const auto m = hn::And(hn::Sub(bits_of(x), bits(kSqrtHalfBits)), bits(0x007fffff));
  return of_bits(hn::Add(m, bits(kSqrtHalfBits)));
}
AICF_SIMD F32 head(F32 x) { return of_bits(hn::And(bits_of(x), bits(0xfffff000))); }

// Instrumented, what is inlined in every tile and chain would take many minutes to compile.
#if HWY_IS_ASAN
#define AICF_POINTWISE_FN HWY_NOINLINE HWY_ATTR
#else
#define AICF_POINTWISE_FN HWY_INLINE HWY_ATTR
#endif
#include "ops/pointwise.inc"

AICF_SIMD F32 load(const float* p) { return {hn::LoadU(FloatTag(), p)}; }
AICF_SIMD void store(F32 x, float* p) { hn::StoreU(x.v, FloatTag(), p); }

// Bools are bytes, 0 or 1.
using ByteTag = hn::Rebind<uint8_t, FloatTag>;
AICF_SIMD Mask load_mask(const uint8_t* p) {
  const auto wide = hn::PromoteTo(IntTag(), hn::LoadU(ByteTag(), p));
  return {hn::RebindMask(FloatTag(), hn::Ne(wide, hn::Zero(IntTag())))};
}
AICF_SIMD void store(Mask x, uint8_t* p) {
  const auto ones = hn::IfThenElseZero(hn::RebindMask(IntTag(), x.m), hn::Set(IntTag(), 1));
  hn::StoreU(hn::DemoteTo(ByteTag(), ones), ByteTag(), p);
}

}  // namespace HWY_NAMESPACE
}  // namespace aicf::backend::cpu
HWY_AFTER_NAMESPACE();

#endif  // toggle
