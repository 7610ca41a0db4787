// The casts between f32 and the narrow types, for every Highway target, in integer arithmetic so that neither the
// target nor flush-to-zero changes a bit.
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "backend/cpu/pointwise_cast.cc"
#include "hwy/foreach_target.h"
// After foreach_target.
#include "backend/cpu/pointwise_tables.h"
#include "backend/cpu/simd_f32-inl.h"

HWY_BEFORE_NAMESPACE();
namespace aicf::backend::cpu {
namespace HWY_NAMESPACE {

using HalfTag = hn::Rebind<uint16_t, FloatTag>;
using Bits = hn::Vec<UIntTag>;

AICF_SIMD hn::Vec<IntTag> as_signed(Bits x) { return hn::BitCast(IntTag(), x); }
AICF_SIMD Bits choose(hn::Mask<IntTag> c, Bits a, Bits b) { return hn::IfThenElse(hn::RebindMask(UIntTag(), c), a, b); }
// Both below 2^31.
AICF_SIMD hn::Mask<IntTag> below(Bits a, uint32_t b) {
  return hn::Lt(as_signed(a), hn::Set(IntTag(), static_cast<int32_t>(b)));
}
AICF_SIMD Bits load_half(const uint16_t* p) { return hn::PromoteTo(UIntTag(), hn::LoadU(HalfTag(), p)); }
AICF_SIMD void store_half(Bits x, uint16_t* p) { hn::StoreU(hn::DemoteTo(HalfTag(), as_signed(x)), HalfTag(), p); }

struct FromBf16 {
  using In = uint16_t;
  using Out = float;
  HWY_INLINE HWY_ATTR void operator()(const In* x, Out* y) const { store(of_bits(hn::ShiftLeft<16>(load_half(x))), y); }
};

AICF_SIMD Bits to_bf16(F32 x) {
  const Bits b = bits_of(x), top = hn::ShiftRight<16>(b);
  const Bits rounded = hn::ShiftRight<16>(hn::Add(b, hn::Add(bits(0x7fff), hn::And(top, bits(1)))));
  const Bits magnitude = hn::And(b, bits(0x7fffffff));
  return choose(below(magnitude, 0x7f800001), rounded, hn::Or(top, bits(0x40)));
}

struct ToBf16 {
  using In = float;
  using Out = uint16_t;
  HWY_INLINE HWY_ATTR void operator()(const In* x, Out* y) const { store_half(to_bf16(load(x)), y); }
};

struct RoundToBf16 {
  using In = float;
  using Out = float;
  HWY_INLINE HWY_ATTR void operator()(const In* x, Out* y) const {
    store(of_bits(hn::ShiftLeft<16>(to_bf16(load(x)))), y);
  }
};

AICF_SIMD F32 from_f16(Bits h) {
  const Bits magnitude = hn::And(h, bits(0x7fff)), bias = bits(112u << 23);
  const Bits normal = hn::Add(hn::ShiftLeft<13>(magnitude), bias);
  // A subnormal is its mantissa times 2^-24, a normal f32.
  const F32 small = F32{hn::ConvertTo(FloatTag(), as_signed(magnitude))} * lit<F32>(0x1p-24);
  const Bits finite = choose(below(magnitude, 0x400), bits_of(small), normal);
  const Bits value = choose(below(magnitude, 0x7c00), finite, hn::Add(normal, bias));
  return of_bits(hn::Or(value, hn::ShiftLeft<16>(hn::And(h, bits(0x8000)))));
}

struct FromF16 {
  using In = uint16_t;
  using Out = float;
  HWY_INLINE HWY_ATTR void operator()(const In* x, Out* y) const { store(from_f16(load_half(x)), y); }
};

AICF_SIMD Bits to_f16(F32 v) {
  const Bits b = bits_of(v), magnitude = hn::And(b, bits(0x7fffffff));
  const Bits odd = hn::And(hn::ShiftRight<13>(magnitude), bits(1));
  const Bits normal = hn::ShiftRight<13>(hn::Add(hn::Sub(magnitude, bits(0x38000000 - 0xfff)), odd));
  // Below 2^-14: the sum's ulp is 2^-24, that of the result.
  const Bits small = hn::Sub(bits_of(abs_of(v) + lit<F32>(0.5)), bits_of(lit<F32>(0.5)));
  const Bits finite = choose(below(magnitude, 0x38800000), small, normal);
  const Bits bounded = choose(below(magnitude, 0x477ff000), finite, bits(0x7c00));
  const Bits nan = hn::Or(bits(0x7e00), hn::And(hn::ShiftRight<13>(magnitude), bits(0x1ff)));
  const Bits value = choose(below(magnitude, 0x7f800001), bounded, nan);
  return hn::Or(value, hn::And(hn::ShiftRight<16>(b), bits(0x8000)));
}

struct ToF16 {
  using In = float;
  using Out = uint16_t;
  HWY_INLINE HWY_ATTR void operator()(const In* x, Out* y) const { store_half(to_f16(load(x)), y); }
};

struct RoundToF16 {
  using In = float;
  using Out = float;
  HWY_INLINE HWY_ATTR void operator()(const In* x, Out* y) const { store(from_f16(to_f16(load(x))), y); }
};

// To the 10 stored bits of the mantissa. A NaN stays one: the bits that it loses are not its quiet one.
struct RoundToTf32 {
  using In = float;
  using Out = float;
  HWY_INLINE HWY_ATTR void operator()(const In* x, Out* y) const {
    const Bits b = bits_of(load(x)), odd = hn::And(hn::ShiftRight<13>(b), bits(1));
    const Bits rounded = hn::And(hn::Add(b, hn::Add(bits(0xfff), odd)), bits(~0x1fffu));
    store(of_bits(choose(below(hn::And(b, bits(0x7fffffff)), 0x7f800001), rounded, hn::Or(b, bits(0x400000)))), y);
  }
};

// u8, and bool, whose bytes are 0 and 1.
struct FromByte {
  using In = uint8_t;
  using Out = float;
  HWY_INLINE HWY_ATTR void operator()(const In* x, Out* y) const {
    store(F32{hn::ConvertTo(FloatTag(), hn::PromoteTo(IntTag(), hn::LoadU(ByteTag(), x)))}, y);
  }
};

struct FromI32 {
  using In = int32_t;
  using Out = float;
  HWY_INLINE HWY_ATTR void operator()(const In* x, Out* y) const {
    store(F32{hn::ConvertTo(FloatTag(), hn::LoadU(IntTag(), x))}, y);
  }
};

struct ToBool {
  using In = float;
  using Out = uint8_t;
  // On bits: a subnormal is not 0.
  HWY_INLINE HWY_ATTR void operator()(const In* x, Out* y) const {
    const auto magnitude = as_signed(hn::And(bits_of(load(x)), bits(0x7fffffff)));
    store(Mask{hn::RebindMask(FloatTag(), hn::Ne(magnitude, hn::Zero(IntTag())))}, y);
  }
};

template <class Cast>
HWY_ATTR void cast_tile(const void* const* in, void* out, size_t n) {
  const auto* x = static_cast<const typename Cast::In*>(in[0]);
  auto* y = static_cast<typename Cast::Out*>(out);
  size_t i = 0;
  for (; i + kLanes <= n; i += kLanes) Cast()(x + i, y + i);
  if (i == n) return;
  typename Cast::In px[kLanes] = {};
  typename Cast::Out py[kLanes];
  std::memcpy(px, x + i, (n - i) * sizeof px[0]);
  Cast()(px, py);
  std::memcpy(y + i, py, (n - i) * sizeof py[0]);
}

TileFn f32_cast(DType from, DType to) {
  if (to == f32) {
    switch (from) {
      case DType::bf16:
        return cast_tile<FromBf16>;
      case DType::f16:
        return cast_tile<FromF16>;
      case DType::u8:
      case DType::boolean:
        return cast_tile<FromByte>;
      case DType::i32:
        return cast_tile<FromI32>;
      default:
        return nullptr;
    }
  }
  if (from != f32) return nullptr;
  return to == bf16 ? cast_tile<ToBf16> : to == f16 ? cast_tile<ToF16> : to == boolean ? cast_tile<ToBool> : nullptr;
}

TileFn round_f32(DType half) { return half == bf16 ? cast_tile<RoundToBf16> : cast_tile<RoundToF16>; }

TileFn round_f32_to_tf32() { return cast_tile<RoundToTf32>; }

}  // namespace HWY_NAMESPACE
}  // namespace aicf::backend::cpu
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace aicf::backend::cpu {
HWY_EXPORT(f32_cast);
TileFn find_f32_cast(DType from, DType to) { return HWY_DYNAMIC_DISPATCH(f32_cast)(from, to); }
HWY_EXPORT(round_f32);
TileFn find_round(DType half) { return HWY_DYNAMIC_DISPATCH(round_f32)(half); }
HWY_EXPORT(round_f32_to_tf32);
TileFn find_round_to_tf32() { return HWY_DYNAMIC_DISPATCH(round_f32_to_tf32)(); }
}  // namespace aicf::backend::cpu
#endif
