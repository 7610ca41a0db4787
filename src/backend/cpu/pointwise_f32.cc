// The f32 tiles, for every Highway target: pointwise.inc over vectors.
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "backend/cpu/pointwise_f32.cc"
#include "hwy/foreach_target.h"
// After foreach_target.
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

template <class Op, class Out>
HWY_INLINE HWY_ATTR void unary(const void* const* in, void* out, size_t n) {
  const float* a = static_cast<const float*>(in[0]);
  Out* y = static_cast<Out*>(out);
  size_t i = 0;
  for (; i + kLanes <= n; i += kLanes) store(Op()(load(a + i)), y + i);
  if (i == n) return;
  // The rest through padded copies: the same instructions, so the same bits.
  float pa[kLanes] = {};
  Out py[kLanes];
  std::memcpy(pa, a + i, (n - i) * sizeof(float));
  store(Op()(load(pa)), py);
  std::memcpy(y + i, py, (n - i) * sizeof(Out));
}

// kScalars: bit k set, operand k is one element.
template <class Op, class Out, unsigned kScalars>
HWY_INLINE HWY_ATTR void binary(const void* const* in, void* out, size_t n) {
  const float* a = static_cast<const float*>(in[0]);
  const float* b = static_cast<const float*>(in[1]);
  Out* y = static_cast<Out*>(out);
  const F32 all_a = {hn::Set(FloatTag(), *a)}, all_b = {hn::Set(FloatTag(), *b)};
  const auto value = [&](const float* pa, const float* pb)
                         HWY_ATTR { return Op()(kScalars & 1 ? all_a : load(pa), kScalars & 2 ? all_b : load(pb)); };
  size_t i = 0;
  for (; i + kLanes <= n; i += kLanes) store(value(a + i, b + i), y + i);
  if (i == n) return;
  float pa[kLanes] = {}, pb[kLanes] = {};
  Out py[kLanes];
  if (!(kScalars & 1)) std::memcpy(pa, a + i, (n - i) * sizeof(float));
  if (!(kScalars & 2)) std::memcpy(pb, b + i, (n - i) * sizeof(float));
  store(value(pa, pb), py);
  std::memcpy(y + i, py, (n - i) * sizeof(Out));
}

template <class Op, class Out, int kArity, unsigned kScalars>
HWY_ATTR void tile(const void* const* in, void* out, size_t n) {
  if constexpr (kArity == 1) {
    unary<Op, Out>(in, out, n);
  } else {
    binary<Op, Out, kScalars>(in, out, n);
  }
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
