// The links of chains, for every Highway target. The accumulator is four vectors that are passed as arguments, so they
// stay in registers from link to link: each ends in a call that the compiler makes a jump.
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "backend/cpu/pointwise_chain.cc"
#include "hwy/foreach_target.h"
// After foreach_target.
#include <immintrin.h>

#include "backend/cpu/pointwise_chain.h"
#include "backend/cpu/pointwise_tables.h"
#include "backend/cpu/simd_f32-inl.h"
#include "hwy/cache_control.h"

HWY_BEFORE_NAMESPACE();
namespace aicf::backend::cpu {
namespace HWY_NAMESPACE {

inline constexpr size_t kVectors = 4;
inline constexpr size_t kBlock = kVectors * kLanes;

using LinkFn = void (*)(const Link*, size_t i, size_t row, F32, F32, F32, F32);
#define AICF_LINK HWY_ATTR void
#define AICF_ACCUMULATOR const Link *link, size_t i, size_t row, F32 a, F32 b, F32 c, F32 d

HWY_INLINE HWY_ATTR void go_on(AICF_ACCUMULATOR) { reinterpret_cast<LinkFn>(link[1].fn)(link + 1, i, row, a, b, c, d); }
HWY_INLINE HWY_ATTR F32 all_of(const Link* link, size_t row) {
  return {hn::Set(FloatTag(), link->at[row * link->each])};
}

AICF_LINK end_link(const Link*, size_t, size_t, F32, F32, F32, F32) {}

AICF_LINK load_link(const Link* link, size_t i, size_t row, F32, F32, F32, F32) {
  const float* const x = link->at + i;
  go_on(link, i, row, load(x), load(x + kLanes), load(x + 2 * kLanes), load(x + 3 * kLanes));
}
AICF_LINK load_one_link(const Link* link, size_t i, size_t row, F32, F32, F32, F32) {
  const F32 x = all_of(link, row);
  go_on(link, i, row, x, x, x, x);
}
AICF_LINK store_link(AICF_ACCUMULATOR) {
  float* const y = link->at + i;
  store(a, y), store(b, y + kLanes), store(c, y + 2 * kLanes), store(d, y + 3 * kLanes);
  go_on(link, i, row, a, b, c, d);
}

AICF_LINK stream_link(AICF_ACCUMULATOR) {
  float* const y = link->at + i;
  hn::Stream(a.v, FloatTag(), y);
  hn::Stream(b.v, FloatTag(), y + kLanes);
  hn::Stream(c.v, FloatTag(), y + 2 * kLanes);
  hn::Stream(d.v, FloatTag(), y + 3 * kLanes);
  go_on(link, i, row, a, b, c, d);
}
AICF_LINK fetch_link(AICF_ACCUMULATOR) {
  constexpr size_t kLine = 64;
  const char* const x = reinterpret_cast<const char*>(link->at) + i * link->each;
  if (link->each == sizeof(float) && kBlock == 64) {
    hwy::Prefetch(x), hwy::Prefetch(x + kLine), hwy::Prefetch(x + 2 * kLine), hwy::Prefetch(x + 3 * kLine);
    return go_on(link, i, row, a, b, c, d);
  }
  for (size_t j = 0; j < kBlock * link->each; j += kLine) hwy::Prefetch(x + j);
  go_on(link, i, row, a, b, c, d);
}

#define AICF_POINTWISE(name, arity, domain)             \
  struct Call_##name {                                  \
    template <class... V>                               \
    HWY_INLINE HWY_ATTR auto operator()(V... v) const { \
      return op_##name(v...);                           \
    }                                                   \
  };
#include "ops/ops.def"

template <class Op>
AICF_LINK alone_link(AICF_ACCUMULATOR) {
  go_on(link, i, row, Op()(a), Op()(b), Op()(c), Op()(d));
}
template <class Op>
AICF_LINK twice_link(AICF_ACCUMULATOR) {
  go_on(link, i, row, Op()(a, a), Op()(b, b), Op()(c, c), Op()(d, d));
}
template <class Op, bool kRight>
HWY_INLINE HWY_ATTR F32 applied(F32 acc, F32 x) {
  return kRight ? Op()(x, acc) : Op()(acc, x);
}
template <class Op, bool kRight>
AICF_LINK with_link(AICF_ACCUMULATOR) {
  const float* const x = link->at + i;
  go_on(link, i, row, applied<Op, kRight>(a, load(x)), applied<Op, kRight>(b, load(x + kLanes)),
        applied<Op, kRight>(c, load(x + 2 * kLanes)), applied<Op, kRight>(d, load(x + 3 * kLanes)));
}
template <class Op, bool kRight>
AICF_LINK with_one_link(AICF_ACCUMULATOR) {
  const F32 x = all_of(link, row);
  go_on(link, i, row, applied<Op, kRight>(a, x), applied<Op, kRight>(b, x), applied<Op, kRight>(c, x),
        applied<Op, kRight>(d, x));
}

HWY_INLINE HWY_ATTR void go_on_after_mask(AICF_ACCUMULATOR) {
  reinterpret_cast<LinkFn>(link[2].fn)(link + 2, i, row, a, b, c, d);
}
template <bool kRight>
HWY_INLINE HWY_ATTR F32 chosen(const uint8_t* mask, F32 acc, F32 x) {
  return kRight ? op_select(load_mask(mask), x, acc) : op_select(load_mask(mask), acc, x);
}
template <bool kRight>
AICF_LINK select_link(AICF_ACCUMULATOR) {
  const float* const x = link->at + i;
  const uint8_t* const mask = reinterpret_cast<const uint8_t*>(link[1].at) + i;
  go_on_after_mask(link, i, row, chosen<kRight>(mask, a, load(x)), chosen<kRight>(mask + kLanes, b, load(x + kLanes)),
                   chosen<kRight>(mask + 2 * kLanes, c, load(x + 2 * kLanes)),
                   chosen<kRight>(mask + 3 * kLanes, d, load(x + 3 * kLanes)));
}
template <bool kRight>
AICF_LINK select_one_link(AICF_ACCUMULATOR) {
  const F32 x = all_of(link, row);
  const uint8_t* const mask = reinterpret_cast<const uint8_t*>(link[1].at) + i;
  go_on_after_mask(link, i, row, chosen<kRight>(mask, a, x), chosen<kRight>(mask + kLanes, b, x),
                   chosen<kRight>(mask + 2 * kLanes, c, x), chosen<kRight>(mask + 3 * kLanes, d, x));
}

template <class Op>
AICF_LINK reduce_link(AICF_ACCUMULATOR) {
  float* const lanes = link->at + i % kRowLanes;
  store(Op()(load(lanes), a), lanes);
  store(Op()(load(lanes + kLanes), b), lanes + kLanes);
  store(Op()(load(lanes + 2 * kLanes), c), lanes + 2 * kLanes);
  store(Op()(load(lanes + 3 * kLanes), d), lanes + 3 * kLanes);
  go_on(link, i, row, a, b, c, d);
}

HWY_INLINE Link::Fn erased(LinkFn fn) { return reinterpret_cast<Link::Fn>(fn); }

template <class Op, int kArity>
Link::Fn op_link_of(LinkForm form) {
  if constexpr (kArity == 1) {
    if (form == LinkForm::alone) return erased(alone_link<Op>);
  } else if constexpr (kArity == 2) {
    switch (form) {
      case LinkForm::left:
        return erased(with_link<Op, false>);
      case LinkForm::left_one:
        return erased(with_one_link<Op, false>);
      case LinkForm::right:
        return erased(with_link<Op, true>);
      case LinkForm::right_one:
        return erased(with_one_link<Op, true>);
      case LinkForm::twice:
        return erased(twice_link<Op>);
      default:
        break;
    }
  }
  return nullptr;
}

Link::Fn select_link_of(LinkForm form) {
  switch (form) {
    case LinkForm::left:
      return erased(select_link<false>);
    case LinkForm::left_one:
      return erased(select_one_link<false>);
    case LinkForm::right:
      return erased(select_link<true>);
    case LinkForm::right_one:
      return erased(select_one_link<true>);
    default:
      return nullptr;
  }
}

#define AICF_LINK_real(name, arity) op_link_of<Call_##name, arity>(form)
#define AICF_LINK_arith(name, arity) op_link_of<Call_##name, arity>(form)
#define AICF_LINK_compare(name, arity) nullptr
#define AICF_LINK_test(name, arity) nullptr
#define AICF_LINK_choose(name, arity) select_link_of(form)
#define AICF_LINK_logic(name, arity) nullptr
#define AICF_LINK_convert(name, arity) nullptr

Link::Fn op_link(Pointwise op, LinkForm form) {
  switch (op) {
#define AICF_POINTWISE(name, arity, domain) \
  case Pointwise::name:                     \
    return AICF_LINK_##domain(name, arity);
#include "ops/ops.def"
  }
  return nullptr;
}

Link::Fn move_link(LinkForm form) {
  switch (form) {
    case LinkForm::load:
      return erased(load_link);
    case LinkForm::load_one:
      return erased(load_one_link);
    case LinkForm::store:
      return erased(store_link);
    case LinkForm::stream:
      return erased(stream_link);
    case LinkForm::fetch:
      return erased(fetch_link);
    default:
      return nullptr;
  }
}

Link::Fn chain_reduce_link(ReduceKind kind) {
  switch (kind) {
    case ReduceKind::sum:
      return erased(reduce_link<Call_add>);
    case ReduceKind::prod:
      return erased(reduce_link<Call_mul>);
    case ReduceKind::max:
      return erased(reduce_link<Call_maximum>);
    case ReduceKind::min:
      break;
  }
  return erased(reduce_link<Call_minimum>);
}

HWY_ATTR void run_links(Link* links, size_t count, size_t begin, size_t end, size_t row) {
  links[count].fn = erased(end_link);
  const auto first = reinterpret_cast<LinkFn>(links[0].fn);
  const F32 none = {hn::Zero(FloatTag())};
  for (size_t i = begin; i < end; i += kBlock) first(links, i, row, none, none, none, none);
#if HWY_TARGET <= HWY_AVX2
  _mm256_zeroupper();  // the last link, whose arguments are vectors, leaves it to the caller; SSE code follows
#endif
}

const Chains* all_chains() {
  static constexpr Chains kChains = {kBlock, run_links};
  return &kChains;
}

}  // namespace HWY_NAMESPACE
}  // namespace aicf::backend::cpu
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace aicf::backend::cpu {
HWY_EXPORT(op_link);
HWY_EXPORT(move_link);
HWY_EXPORT(chain_reduce_link);
HWY_EXPORT(all_chains);

Link::Fn find_move_link(LinkForm form) { return HWY_DYNAMIC_DISPATCH(move_link)(form); }
Link::Fn find_f32_link(Pointwise op, LinkForm form) { return HWY_DYNAMIC_DISPATCH(op_link)(op, form); }
Link::Fn find_reduce_link(ReduceKind kind) { return HWY_DYNAMIC_DISPATCH(chain_reduce_link)(kind); }
const Chains& chains() { return *HWY_DYNAMIC_DISPATCH(all_chains)(); }
}  // namespace aicf::backend::cpu
#endif
