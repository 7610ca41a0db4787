// The device text that every generated program begins with: element types and exact conversions. Nothing is included.
#pragma once

namespace aicf::backend::cuda {

// C types of the dtypes in generated text: f32 float, bf16 bf16, f16 f16, i64 long long, i32 int, u8 and bool u8 (bool
// is 0 or 1 in memory). load(x) is the value a kernel computes with, store<T>(v) what it writes: the 16-bit floats are
// widened to float and rounded to nearest even.
inline constexpr const char* kPrelude = R"cuda(
typedef unsigned char u8;
typedef unsigned short u16;
typedef unsigned int u32;
typedef long long i64;
typedef unsigned long long u64;
struct bf16 { u16 bits; };
struct f16 { u16 bits; };
#define DEVICE static __device__ __forceinline__

// On bits: nothing is flushed, NaN stays NaN.
DEVICE float widen(bf16 x) { return __uint_as_float((u32)x.bits << 16); }
DEVICE bf16 to_bf16(float v) {
  const u32 b = __float_as_uint(v);
  if ((b & 0x7fffffffu) > 0x7f800000u) return {(u16)((b >> 16) | 0x40u)};
  return {(u16)((b + 0x7fffu + ((b >> 16) & 1u)) >> 16)};
}
DEVICE float widen(f16 x) {
  float v;
  asm("cvt.f32.f16 %0, %1;" : "=f"(v) : "h"(x.bits));
  return v;
}
DEVICE f16 to_f16(float v) {
  const u32 b = __float_as_uint(v);
  if ((b & 0x7fffffffu) > 0x7f800000u) return {(u16)(((b >> 16) & 0x8000u) | 0x7e00u | ((b >> 13) & 0x1ffu))};
  u16 h;
  asm("cvt.rn.f16.f32 %0, %1;" : "=h"(h) : "f"(v));
  return {h};
}

DEVICE float load(float x) { return x; }
DEVICE float load(bf16 x) { return widen(x); }
DEVICE float load(f16 x) { return widen(x); }
DEVICE int load(int x) { return x; }
DEVICE i64 load(i64 x) { return x; }
DEVICE u8 load(u8 x) { return x; }
template <class T> struct Store;
template <> struct Store<float> { static __device__ __forceinline__ float of(float v) { return v; } };
template <> struct Store<bf16> { DEVICE bf16 of(float v) { return to_bf16(v); } };
template <> struct Store<f16> { DEVICE f16 of(float v) { return to_f16(v); } };
template <> struct Store<int> { DEVICE int of(int v) { return v; } };
template <> struct Store<i64> { DEVICE i64 of(i64 v) { return v; } };
template <> struct Store<u8> { DEVICE u8 of(u8 v) { return v; } };
template <class T, class V> DEVICE T store(V v) { return Store<T>::of(v); }

// N elements moved by as few instructions as their alignment (N * sizeof(T), at most 16 bytes) allows.
template <class T, int N> struct alignas(sizeof(T) * N > 16 ? 16 : sizeof(T) * N) Pack { T at[N]; };
)cuda";

}  // namespace aicf::backend::cuda
