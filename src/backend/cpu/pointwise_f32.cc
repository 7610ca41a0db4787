// The f32 tiles, for every Highway target: pointwise.inc over vectors.
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "backend/cpu/pointwise_f32.cc"
#include "hwy/foreach_target.h"
// After foreach_target.
#include <utility>

#include "backend/cpu/pointwise_tables.h"
#include "backend/cpu/simd_f32-inl.h"

HWY_BEFORE_NAMESPACE();
namespace aicf::backend::cpu {
namespace HWY_NAMESPACE {

#define AICF_POINTWISE(name, arity, domain)             \
  struct Call_##name {                                  \
    template <class... V>                               \
    HWY_INLINE HWY_ATTR auto operator()(V... v) const { \
      return op_##name(v...);                           \
    }                                                   \
  };
#include "ops/ops.def"

// The first n elements, the rest 0; one is in all lanes.
HWY_INLINE HWY_ATTR F32 load_some(const float* x, size_t n) {
  if (n == 1) return {hn::Set(FloatTag(), *x)};
  return {hn::MaskedLoad(hn::FirstN(FloatTag(), n), FloatTag(), x)};
}
HWY_INLINE HWY_ATTR void store_some(F32 v, float* y, size_t n) {
  if (n == 1) {
    *y = hn::GetLane(v.v);
  } else {
    hn::BlendedStore(v.v, hn::FirstN(FloatTag(), n), FloatTag(), y);
  }
}
HWY_INLINE HWY_ATTR void store_some(Mask m, uint8_t* y, size_t n) {
  uint8_t all[kLanes];
  store(m, all);
  std::memcpy(y, all, n);
}

// kScalars: bit k set, operand k is one element. What is left of a vector goes through the same instructions, so the
// bits are the same.
template <class Op, class Out, unsigned kScalars, size_t... kOperand>
HWY_INLINE HWY_ATTR void tile_of_operands(const void* const* in, void* out, size_t n,
                                          std::index_sequence<kOperand...>) {
  const float* const x[] = {static_cast<const float*>(in[kOperand])...};
  const F32 all[] = {{hn::Set(FloatTag(), *x[kOperand])}...};
  Out* const y = static_cast<Out*>(out);
  size_t i = 0;
  for (; i + kLanes <= n; i += kLanes) {
    store(Op()((kScalars >> kOperand & 1 ? all[kOperand] : load(x[kOperand] + i))...), y + i);
  }
  if (i == n) return;
  store_some(Op()((kScalars >> kOperand & 1 ? all[kOperand] : load_some(x[kOperand] + i, n - i))...), y + i, n - i);
}

template <class Op, class Out, int kArity, unsigned kScalars>
HWY_ATTR void tile(const void* const* in, void* out, size_t n) {
  tile_of_operands<Op, Out, kScalars>(in, out, n, std::make_index_sequence<kArity>());
}

template <unsigned kScalars>
HWY_ATTR void choose_tile(const void* const* in, void* out, size_t n) {
  const uint8_t* c = static_cast<const uint8_t*>(in[0]);
  const float* a = static_cast<const float*>(in[1]);
  const float* b = static_cast<const float*>(in[2]);
  float* y = static_cast<float*>(out);
  const F32 all_a = {hn::Set(FloatTag(), *a)}, all_b = {hn::Set(FloatTag(), *b)};
  size_t i = 0;
  for (; i + kLanes <= n; i += kLanes) {
    store(op_select(load_mask(c + i), kScalars & 2 ? all_a : load(a + i), kScalars & 4 ? all_b : load(b + i)), y + i);
  }
  for (; i < n; ++i) {
    std::memcpy(y + i, c[i] ? (kScalars & 2 ? a : a + i) : (kScalars & 4 ? b : b + i), sizeof(float));
  }
}

template <class Op, class Out, int kArity>
TileFn tile_of(unsigned scalars) {
  if (scalars == 0) return tile<Op, Out, kArity, 0>;
  if constexpr (kArity == 2) {
    if (scalars == 1) return tile<Op, Out, kArity, 1>;
    if (scalars == 2) return tile<Op, Out, kArity, 2>;
  }
  return nullptr;
}

TileFn choose_tile_of(unsigned scalars) {
  switch (scalars) {
    case 0:
      return choose_tile<0>;
    case 2:
      return choose_tile<2>;
    case 4:
      return choose_tile<4>;
    case 6:
      return choose_tile<6>;
    default:
      return nullptr;
  }
}

#define AICF_F32_real(name, arity) tile_of<Call_##name, float, arity>(scalars)
#define AICF_F32_arith(name, arity) tile_of<Call_##name, float, arity>(scalars)
#define AICF_F32_compare(name, arity) tile_of<Call_##name, uint8_t, arity>(scalars)
#define AICF_F32_test(name, arity) tile_of<Call_##name, uint8_t, arity>(scalars)
#define AICF_F32_choose(name, arity) choose_tile_of(scalars)
#define AICF_F32_logic(name, arity) nullptr
#define AICF_F32_convert(name, arity) nullptr

TileFn f32_tile(Pointwise op, unsigned scalars) {
  switch (op) {
#define AICF_POINTWISE(name, arity, domain) \
  case Pointwise::name:                     \
    return AICF_F32_##domain(name, arity);
#include "ops/ops.def"
  }
  return nullptr;
}

}  // namespace HWY_NAMESPACE
}  // namespace aicf::backend::cpu
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace aicf::backend::cpu {
HWY_EXPORT(f32_tile);
TileFn find_f32_tile(Pointwise op, unsigned scalars) { return HWY_DYNAMIC_DISPATCH(f32_tile)(op, scalars); }
}  // namespace aicf::backend::cpu
#endif
