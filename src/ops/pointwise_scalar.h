// The scalar instances of pointwise.inc: float (the bits every vector target must reproduce), double (libm), wrapping
// integers, bytes and bool.
#pragma once

#include <bit>
#include <cmath>
#include <cstdint>
#include <type_traits>

namespace aicf::ops::pointwise {

// An integer whose arithmetic wraps.
template <class T>
struct Wrapping {
  T v;
  using U = std::make_unsigned_t<T>;
  friend Wrapping operator+(Wrapping a, Wrapping b) { return {static_cast<T>(U(a.v) + U(b.v))}; }
  friend Wrapping operator-(Wrapping a, Wrapping b) { return {static_cast<T>(U(a.v) - U(b.v))}; }
  friend Wrapping operator*(Wrapping a, Wrapping b) { return {static_cast<T>(U(a.v) * U(b.v))}; }
  friend Wrapping operator-(Wrapping a) { return {static_cast<T>(U(0) - U(a.v))}; }
  friend bool operator<(Wrapping a, Wrapping b) { return a.v < b.v; }
  friend bool operator<=(Wrapping a, Wrapping b) { return a.v <= b.v; }
  friend bool operator==(Wrapping a, Wrapping b) { return a.v == b.v; }
};

template <class V>
struct Literal {
  static V of(double c) { return static_cast<V>(c); }
};
template <class T>
struct Literal<Wrapping<T>> {
  static Wrapping<T> of(double c) { return {static_cast<T>(c)}; }
};
template <class V>
V lit(double c) {
  return Literal<V>::of(c);
}

template <class V>
bool lt(V a, V b) {
  return a < b;
}
template <class V>
bool le(V a, V b) {
  return a <= b;
}
template <class V>
bool eq(V a, V b) {
  return a == b;
}
inline bool both(bool a, bool b) { return a && b; }
inline bool either(bool a, bool b) { return a || b; }
inline bool negate(bool a) { return !a; }
template <class V>
V select(bool condition, V a, V b) {
  return condition ? a : b;
}
inline uint32_t bits_of(float x) { return std::bit_cast<uint32_t>(x); }
inline float of_bits(uint32_t x) { return std::bit_cast<float>(x); }
// On bits, lest the compiler make it a min or max instruction, which flushes a subnormal that a selection keeps.
inline float select(bool condition, float a, float b) {
#if defined(__clang__)
  asm("" : "+x"(a));  // it sees through bits
#endif
  return of_bits(condition ? bits_of(a) : bits_of(b));
}

template <class T>
bool is_nan(Wrapping<T>) {
  return false;
}
inline bool is_nan(float x) { return x != x; }
inline bool is_nan(double x) { return x != x; }
template <class T>
Wrapping<T> abs_of(Wrapping<T> x) {
  return x.v < 0 ? -x : x;
}
inline float abs_of(float x) { return std::fabs(x); }
inline double abs_of(double x) { return std::fabs(x); }
inline float sqrt_of(float x) { return std::sqrt(x); }
inline double sqrt_of(double x) { return std::sqrt(x); }
inline float with_sign(float magnitude, float sign) { return std::copysign(magnitude, sign); }

template <class T>
Wrapping<T> and_bits(Wrapping<T> a, Wrapping<T> b) {
  return {static_cast<T>(a.v & b.v)};
}
template <class T>
Wrapping<T> or_bits(Wrapping<T> a, Wrapping<T> b) {
  return {static_cast<T>(a.v | b.v)};
}
inline float and_bits(float a, float b) { return of_bits(bits_of(a) & bits_of(b)); }
inline float or_bits(float a, float b) { return of_bits(bits_of(a) | bits_of(b)); }
inline double and_bits(double a, double b) {
  return std::bit_cast<double>(std::bit_cast<uint64_t>(a) & std::bit_cast<uint64_t>(b));
}
inline double or_bits(double a, double b) {
  return std::bit_cast<double>(std::bit_cast<uint64_t>(a) | std::bit_cast<uint64_t>(b));
}

inline float fma_of(float a, float b, float c) { return std::fma(a, b, c); }
inline float clamp(float x, double low, double high) {
  const float least = x < static_cast<float>(low) ? static_cast<float>(low) : x;
  return static_cast<float>(high) < least ? static_cast<float>(high) : least;
}
inline float add_exponent(float p, float t) { return of_bits(bits_of(p) + (bits_of(t) << 23)); }
// Adding 1.5 * 2^23 leaves n in the low bits.
inline float pow2(float n) { return of_bits((bits_of(n + 0x1.8p23f) + 127) << 23); }
inline constexpr uint32_t kSqrtHalfBits = 0x3f3504f3;
inline float exponent(float x) { return static_cast<float>(static_cast<int32_t>(bits_of(x) - kSqrtHalfBits) >> 23); }
inline float mantissa(float x) { return of_bits(((bits_of(x) - kSqrtHalfBits) & 0x007fffff) + kSqrtHalfBits); }
inline float head(float x) { return of_bits(bits_of(x) & 0xfffff000); }

inline double op_round(double x) { return std::nearbyint(x); }
inline double op_floor(double x) { return std::floor(x); }
inline double op_ceil(double x) { return std::ceil(x); }
inline double op_exp(double x) { return std::exp(x); }
inline double op_expm1(double x) { return std::expm1(x); }
inline double op_log(double x) { return std::log(x); }
inline double op_log1p(double x) { return std::log1p(x); }
inline double op_tanh(double x) { return std::tanh(x); }
inline double op_erf(double x) { return std::erf(x); }
inline double op_sin(double x) { return std::sin(x); }
inline double op_cos(double x) { return std::cos(x); }
inline double op_pow(double x, double y) { return std::pow(x, y); }

#include "ops/pointwise.inc"

}  // namespace aicf::ops::pointwise
