// The device text that every generated program begins with: element types and exact conversions. Nothing is included.
#pragma once

namespace aicf::backend::cuda {

// C types of the dtypes in generated text: f32 float, bf16 bf16, f16 f16, i64 long long, i32 int, u8 and bool u8 (bool
// is 0 or 1 in memory). load(x) is the value a kernel computes with, store<T>(v) what it writes: the 16-bit floats are
// widened to float and rounded to nearest even.
inline constexpr const char* kPrelude = R"cuda(
#pragma nv_diag_suppress 177  // not all of it is used
typedef unsigned char u8;
typedef unsigned short u16;
typedef unsigned int u32;
typedef long long i64;
typedef unsigned long long u64;
struct bf16 { u16 bits; };
struct f16 { u16 bits; };
#define DEVICE static __device__ __forceinline__

// Parameters of a kernel that come as one.
template <int N> struct Table { void* at[N]; };

// Nothing is flushed, by the instructions or on bits. NaN stays NaN, of another payload.
DEVICE float widen(bf16 x) { return __uint_as_float((u32)x.bits << 16); }
DEVICE float widen(f16 x) {
  float v;
  asm("cvt.f32.f16 %0, %1;" : "=f"(v) : "h"(x.bits));
  return v;
}
DEVICE bf16 to_bf16(float v) {
  u16 bits;
  asm("cvt.rn.bf16.f32 %0, %1;" : "=h"(bits) : "f"(v));
  return {bits};
}
DEVICE f16 to_f16(float v) {
  u16 bits;
  asm("cvt.rn.f16.f32 %0, %1;" : "=h"(bits) : "f"(v));
  return {bits};
}

// IEEE 754-2019 maximum and minimum: NaN if either is, and -0 < +0. Subnormals have their order and are kept.
DEVICE float most(float a, float b) {
  float y;
  asm("max.NaN.f32 %0, %1, %2;" : "=f"(y) : "f"(a), "f"(b));
  return y;
}
DEVICE float least(float a, float b) {
  float y;
  asm("min.NaN.f32 %0, %1, %2;" : "=f"(y) : "f"(a), "f"(b));
  return y;
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

// Casts, with the results of the CPU's: to_T(x) of the value load() gives. To an integer a float truncates and saturates
// (NaN is 0) and an integer wraps; to bool is x != 0, of subnormals too. to_odd() is the f32 nearest to zero with its last
// bit set when that is not exact: rounded again to 16 bits it is as if rounded once.
DEVICE float to_f32(float x) { return x; }
DEVICE float to_f32(int x) { return __int2float_rn(x); }
DEVICE float to_f32(i64 x) { return __ll2float_rn(x); }
DEVICE float to_f32(u8 x) { return __int2float_rn(x); }
DEVICE int to_i32(float x) {
  int y;
  asm("cvt.rzi.s32.f32 %0, %1;" : "=r"(y) : "f"(x));
  return x != x ? 0 : y;
}
DEVICE int to_i32(int x) { return x; }
DEVICE int to_i32(i64 x) { return (int)x; }
DEVICE int to_i32(u8 x) { return x; }
DEVICE i64 to_i64(float x) {
  i64 y;
  asm("cvt.rzi.s64.f32 %0, %1;" : "=l"(y) : "f"(x));
  return x != x ? 0 : y;
}
DEVICE i64 to_i64(int x) { return x; }
DEVICE i64 to_i64(i64 x) { return x; }
DEVICE i64 to_i64(u8 x) { return x; }
DEVICE u8 to_u8(float x) {
  const int y = to_i32(x);
  return (u8)(y < 0 ? 0 : y > 255 ? 255 : y);
}
DEVICE u8 to_u8(int x) { return (u8)x; }
DEVICE u8 to_u8(i64 x) { return (u8)x; }
DEVICE u8 to_u8(u8 x) { return x; }
DEVICE u8 to_bool(float x) { return (__float_as_uint(x) & 0x7fffffffu) != 0; }
DEVICE u8 to_bool(int x) { return x != 0; }
DEVICE u8 to_bool(i64 x) { return x != 0; }
DEVICE u8 to_bool(u8 x) { return x != 0; }
DEVICE float to_odd(float x) { return x; }
DEVICE float to_odd(int x) {
  const float y = __int2float_rz(x);
  return __uint_as_float(__float_as_uint(y) | (u32)(__float2int_rz(y) != x));
}
DEVICE float to_odd(i64 x) {
  const float y = __ll2float_rz(x);
  return __uint_as_float(__float_as_uint(y) | (u32)(__float2ll_rz(y) != x));
}
DEVICE float to_odd(u8 x) { return to_f32(x); }

// N elements moved by as few instructions as their alignment (N * sizeof(T), at most 16 bytes) allows; with a count, the
// first of them, and the others are zero.
template <class T, int N> struct alignas(sizeof(T) * N > 16 ? 16 : sizeof(T) * N) Pack { T at[N]; };
template <int N, class T> DEVICE Pack<T, N> load_pack(const T* p) { return *reinterpret_cast<const Pack<T, N>*>(p); }
template <int N, class T> DEVICE Pack<T, N> load_pack(const T* p, int count) {
  if (count == N) return load_pack<N>(p);
  Pack<T, N> pack = {};
#pragma unroll
  for (int j = 0; j < N - 1; ++j) {
    if (j < count) pack.at[j] = p[j];
  }
  return pack;
}
template <int N, class T> DEVICE void store_pack(T* p, const Pack<T, N>& pack) { *reinterpret_cast<Pack<T, N>*>(p) = pack; }
template <int N, class T> DEVICE void store_pack(T* p, const Pack<T, N>& pack, int count) {
  if (count == N) return store_pack(p, pack);
#pragma unroll
  for (int j = 0; j < N - 1; ++j) {
    if (j < count) p[j] = pack.at[j];
  }
}
)cuda";

}  // namespace aicf::backend::cuda
