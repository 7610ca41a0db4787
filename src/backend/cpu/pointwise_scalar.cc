// The tiles of f64, the integers, bytes and bool, and every cast: scalar loops.
#include <bit>
#include <cmath>
#include <cstring>
#include <limits>

#include "backend/cpu/pointwise_tables.h"
#include "ops/pointwise_scalar.h"

namespace aicf::backend::cpu {
namespace {

namespace pw = ops::pointwise;
using namespace ops::pointwise;  // for the op_NAME of the table below

// How an element in memory becomes a value of pointwise.inc, and back.
template <class T>
struct Element {
  static T value(T x) { return x; }
};
template <class T>
requires(std::is_same_v<T, int32_t> || std::is_same_v<T, int64_t>) struct Element<T> {
  static pw::Wrapping<T> value(T x) { return {x}; }
};
template <class T>
T memory(T x) {
  return x;
}
template <class T>
T memory(pw::Wrapping<T> x) {
  return x.v;
}
inline uint8_t memory(bool x) { return x; }

#define AICF_POINTWISE(name, arity, domain) \
  struct Call_##name {                      \
    template <class... V>                   \
    auto operator()(V... v) const {         \
      return op_##name(v...);               \
    }                                       \
  };
#include "ops/ops.def"

// kScalars: bit k set, operand k is one element.
template <class Op, class T, class Out, int kArity, unsigned kScalars>
void tile(const void* const* in, void* out, size_t n) {
  const T* a = static_cast<const T*>(in[0]);
  Out* y = static_cast<Out*>(out);
  if constexpr (kArity == 1) {
    for (size_t i = 0; i < n; ++i) y[i] = memory(Op()(Element<T>::value(a[i])));
  } else {
    const T* b = static_cast<const T*>(in[1]);
    const T all_a = *a, all_b = *b;
    for (size_t i = 0; i < n; ++i) {
      y[i] =
          memory(Op()(Element<T>::value(kScalars & 1 ? all_a : a[i]), Element<T>::value(kScalars & 2 ? all_b : b[i])));
    }
  }
}
template <class Op, class T, class Out, int kArity>
TileFn tile_of(unsigned scalars) {
  if (scalars == 0) return tile<Op, T, Out, kArity, 0>;
  if constexpr (kArity == 2) {
    if (scalars == 1) return tile<Op, T, Out, kArity, 1>;
    if (scalars == 2) return tile<Op, T, Out, kArity, 2>;
  }
  return nullptr;
}

template <class Op, int kArity>
void logic_tile(const void* const* in, void* out, size_t n) {
  const uint8_t* a = static_cast<const uint8_t*>(in[0]);
  uint8_t* y = static_cast<uint8_t*>(out);
  if constexpr (kArity == 1) {
    for (size_t i = 0; i < n; ++i) y[i] = Op()(a[i] != 0);
  } else {
    const uint8_t* b = static_cast<const uint8_t*>(in[1]);
    for (size_t i = 0; i < n; ++i) y[i] = Op()(a[i] != 0, b[i] != 0);
  }
}

// Moves bits: one per element size.
template <class T>
void choose_tile(const void* const* in, void* out, size_t n) {
  const uint8_t* c = static_cast<const uint8_t*>(in[0]);
  const T* a = static_cast<const T*>(in[1]);
  const T* b = static_cast<const T*>(in[2]);
  T* y = static_cast<T*>(out);
  for (size_t i = 0; i < n; ++i) y[i] = pw::op_select(c[i] != 0, a[i], b[i]);
}

template <class Op, int kArity>
TileFn real_tile(DType dtype, unsigned scalars) {
  return dtype == f64 ? tile_of<Op, double, double, kArity>(scalars) : nullptr;
}
template <class Op, int kArity>
TileFn arith_tile(DType dtype, unsigned scalars) {
  return dtype == f64   ? tile_of<Op, double, double, kArity>(scalars)
         : dtype == i32 ? tile_of<Op, int32_t, int32_t, kArity>(scalars)
         : dtype == i64 ? tile_of<Op, int64_t, int64_t, kArity>(scalars)
                        : nullptr;
}
template <class Op, int kArity>
TileFn test_tile(DType dtype, unsigned scalars) {
  return dtype == f64 ? tile_of<Op, double, uint8_t, kArity>(scalars) : nullptr;
}
template <class Op, int kArity>
TileFn compare_tile(DType dtype, unsigned scalars) {
  return dtype == f64                      ? tile_of<Op, double, uint8_t, kArity>(scalars)
         : dtype == i32                    ? tile_of<Op, int32_t, uint8_t, kArity>(scalars)
         : dtype == i64                    ? tile_of<Op, int64_t, uint8_t, kArity>(scalars)
         : dtype == u8 || dtype == boolean ? tile_of<Op, uint8_t, uint8_t, kArity>(scalars)
                                           : nullptr;
}
template <class Op, int kArity>
TileFn logic_tile_of(DType dtype) {
  return dtype == boolean ? logic_tile<Op, kArity> : nullptr;
}
TileFn choose_tile_of(DType dtype) {
  switch (size_of(dtype)) {
    case 1:
      return choose_tile<uint8_t>;
    case 2:
      return choose_tile<uint16_t>;
    case 8:
      return choose_tile<uint64_t>;
    default:
      return find_f32_tile(Pointwise::select);
  }
}

// --- casts ------------------------------------------------------------------------------------------------------

// A 16-bit float in memory.
struct Bf16 {
  uint16_t bits;
};
struct F16 {
  uint16_t bits;
};
// A bool in memory.
struct Bool {
  uint8_t byte;
};

// To f32 by rounding to odd: rounding that again to a narrower float is as if it had been rounded once.
float to_odd(double x) {
  const float y = static_cast<float>(x);
  auto b = std::bit_cast<uint32_t>(y);
  if (std::isnan(x) || static_cast<double>(y) == x || std::isinf(x)) return y;
  if (std::fabs(static_cast<double>(y)) > std::fabs(x)) --b;
  return std::bit_cast<float>(b | 1u);
}
float to_odd(float x) { return x; }
float to_odd(int32_t x) { return to_odd(static_cast<double>(x)); }
// Beyond 53 bits the lowest 11 only say whether any of them is set.
float to_odd(int64_t x) {
  const int64_t rest = x & 0x7ff;
  const bool wide = x > (int64_t{1} << 53) || x < -(int64_t{1} << 53);
  return to_odd(static_cast<double>(wide ? (x - rest) + (rest != 0 ? 0x400 : 0) : x));
}
float to_odd(uint8_t x) { return x; }

template <class To, class From>
To saturate(From x) {
  if constexpr (std::is_floating_point_v<From>) {
    constexpr From kLow = static_cast<From>(std::numeric_limits<To>::min());
    // 2^digits, exact, unlike the largest To itself.
    const From high = std::ldexp(From{1}, std::numeric_limits<To>::digits);
    if (std::isnan(x)) return 0;
    if (x <= kLow) return std::numeric_limits<To>::min();
    return x >= high ? std::numeric_limits<To>::max() : static_cast<To>(x);
  } else {
    return static_cast<To>(x);
  }
}

template <class T>
T load(T x) {
  return x;
}
inline float load(Bf16 x) { return bf16_to_f32(x.bits); }
inline float load(F16 x) { return f16_to_f32(x.bits); }
inline uint8_t load(Bool x) { return x.byte; }

template <class To>
struct Convert {
  template <class From>
  static To of(From x) {
    return saturate<To>(x);
  }
};
template <class To>
requires std::is_floating_point_v<To>
struct Convert<To> {
  template <class From>
  static To of(From x) {
    return static_cast<To>(x);
  }
};
template <>
struct Convert<Bf16> {
  template <class From>
  static Bf16 of(From x) {
    return {f32_to_bf16(to_odd(x))};
  }
};
template <>
struct Convert<F16> {
  template <class From>
  static F16 of(From x) {
    return {f32_to_f16(to_odd(x))};
  }
};
// Of floats on bits: a subnormal is not 0.
template <>
struct Convert<Bool> {
  template <class From>
  static Bool of(From x) {
    return {x != From{0}};
  }
  static Bool of(float x) { return {std::bit_cast<uint32_t>(x) << 1 != 0}; }
  static Bool of(double x) { return {std::bit_cast<uint64_t>(x) << 1 != 0}; }
};

template <class From, class To>
void cast_tile(const void* const* in, void* out, size_t n) {
  const From* x = static_cast<const From*>(in[0]);
  To* y = static_cast<To*>(out);
  for (size_t i = 0; i < n; ++i) y[i] = Convert<To>::of(load(x[i]));
}

template <size_t kBytes>
void copy_tile(const void* const* in, void* out, size_t n) {
  std::memmove(out, in[0], n * kBytes);
}

template <class From>
TileFn cast_from(DType to) {
  // In the order of DType.
  static constexpr TileFn kTo[kDTypeCount] = {
      cast_tile<From, double>,  cast_tile<From, float>,   cast_tile<From, Bf16>,    cast_tile<From, F16>,
      cast_tile<From, int64_t>, cast_tile<From, int32_t>, cast_tile<From, uint8_t>, cast_tile<From, Bool>};
  return kTo[static_cast<int>(to)];
}

}  // namespace

TileFn find_scalar_tile(Pointwise op, DType dtype, unsigned scalars) {
#define AICF_SCALAR_real(name, arity) real_tile<Call_##name, arity>(dtype, scalars)
#define AICF_SCALAR_arith(name, arity) arith_tile<Call_##name, arity>(dtype, scalars)
#define AICF_SCALAR_test(name, arity) test_tile<Call_##name, arity>(dtype, scalars)
#define AICF_SCALAR_compare(name, arity) compare_tile<Call_##name, arity>(dtype, scalars)
#define AICF_SCALAR_logic(name, arity) scalars == 0 ? logic_tile_of<Call_##name, arity>(dtype) : nullptr
#define AICF_SCALAR_choose(name, arity) scalars == 0 ? choose_tile_of(dtype) : nullptr
#define AICF_SCALAR_convert(name, arity) nullptr
  switch (op) {
#define AICF_POINTWISE(name, arity, domain) \
  case Pointwise::name:                     \
    return AICF_SCALAR_##domain(name, arity);
#include "ops/ops.def"
  }
  return nullptr;
}

TileFn find_scalar_cast(DType from, DType to) {
  if (from == to) {
    const size_t size = size_of(from);
    return size == 1 ? copy_tile<1> : size == 2 ? copy_tile<2> : size == 4 ? copy_tile<4> : copy_tile<8>;
  }
  switch (from) {
    case DType::f64:
      return cast_from<double>(to);
    case DType::f32:
      return cast_from<float>(to);
    case DType::bf16:
      return cast_from<Bf16>(to);
    case DType::f16:
      return cast_from<F16>(to);
    case DType::i64:
      return cast_from<int64_t>(to);
    case DType::i32:
      return cast_from<int32_t>(to);
    case DType::u8:
      return cast_from<uint8_t>(to);
    case DType::boolean:
      return cast_from<Bool>(to);
  }
  return nullptr;
}

}  // namespace aicf::backend::cpu
