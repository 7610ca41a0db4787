// Words of a Philox stream for one Highway target: many blocks side by side. Included once per target, inside
// foreach_target; the include guard toggles with the target, as Highway asks.
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>

#include "base/philox.h"
#include "hwy/highway.h"

#if defined(AICF_PHILOX_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef AICF_PHILOX_INL_H_
#undef AICF_PHILOX_INL_H_
#else
#define AICF_PHILOX_INL_H_
#endif

HWY_BEFORE_NAMESPACE();
namespace aicf::backend::cpu {
namespace HWY_NAMESPACE {
namespace philox {

// Blocks side by side.
#if HWY_TARGET == HWY_SCALAR
struct Lanes {
  static constexpr int64_t kBlocks = 1;
  explicit Lanes(const base::PhiloxStream& s) : stream(s) {}
  HWY_INLINE HWY_ATTR void draw(uint64_t block, int32_t* to) const {
    const base::PhiloxCounter words = stream.draw(block);
    std::memcpy(to, words.data(), sizeof(words));
  }
  const base::PhiloxStream stream;
};
#else
namespace hn = hwy::HWY_NAMESPACE;
using WordTag = hn::ScalableTag<uint32_t>;
using PairTag = hn::RepartitionToWide<WordTag>;
using Pairs = hn::Vec<PairTag>;  // a word in the low half of each lane; whatever is in the high half is ignored

HWY_INLINE HWY_ATTR Pairs multiply(Pairs x, Pairs factor) {
  return hn::MulEven(hn::BitCast(WordTag(), x), hn::BitCast(WordTag(), factor));
}
// A vector of words of which `even` and `odd` hold every other.
HWY_INLINE HWY_ATTR hn::Vec<WordTag> joined(Pairs even, Pairs odd) {
  return hn::OddEven(hn::BitCast(WordTag(), hn::ShiftLeft<32>(odd)), hn::BitCast(WordTag(), even));
}

struct Counters {
  Pairs c0, c1, c2, c3;
  HWY_INLINE HWY_ATTR void round(Pairs key0, Pairs key1) {
    const PairTag d;
    const Pairs a = multiply(c0, hn::Set(d, base::kPhiloxFactor0)), b = multiply(c2, hn::Set(d, base::kPhiloxFactor1));
    c0 = hn::Xor(hn::Xor(hn::ShiftRight<32>(b), c1), key0);
    c1 = b;
    c2 = hn::Xor(hn::Xor(hn::ShiftRight<32>(a), c3), key1);
    c3 = a;
  }
};

class Lanes {
 public:
  static constexpr int64_t kBlocks = HWY_LANES(uint32_t);

  HWY_INLINE HWY_ATTR explicit Lanes(const base::PhiloxStream& stream) : stream_(stream) {
    base::PhiloxKey key = base::philox_key(stream.seed);
    for (int r = 0; r < base::kPhiloxRounds; ++r, key = base::next_philox_key(key)) {
      for (int i = 0; i < 2; ++i) hn::Store(hn::Set(PairTag(), key[i]), PairTag(), keys_[r][i]);
    }
  }
  // The words of kBlocks blocks from `block` on. REQUIRES: their numbers differ in the low 32 bits alone.
  HWY_INLINE HWY_ATTR void draw(uint64_t block, int32_t* to) const {
    const PairTag d;
    const base::PhiloxCounter c = stream_.counter(block);
    const Pairs twice = hn::ShiftLeft<1>(hn::Iota(d, 0));
    Counters even{hn::Add(twice, hn::Set(d, c[0])), hn::Set(d, c[1]), hn::Set(d, c[2]), hn::Set(d, c[3])}, odd = even;
    odd.c0 = hn::Add(even.c0, hn::Set(d, 1));
    for (const auto& key : keys_) {
      const Pairs key0 = hn::Load(d, key[0]), key1 = hn::Load(d, key[1]);
      even.round(key0, key1);
      odd.round(key0, key1);
    }
    hn::StoreInterleaved4(joined(even.c0, odd.c0), joined(even.c1, odd.c1), joined(even.c2, odd.c2),
                          joined(even.c3, odd.c3), WordTag(), reinterpret_cast<uint32_t*>(to));
  }

 private:
  const base::PhiloxStream stream_;
  HWY_ALIGN uint64_t keys_[base::kPhiloxRounds][2][HWY_LANES(uint64_t)];
};
#endif

}  // namespace philox

// Elements `first` … first + n - 1 of the stream: element e is word e % 4 of block e / 4.
HWY_INLINE HWY_ATTR void random_bits(const base::PhiloxStream& stream, int64_t first, int64_t n, int32_t* to) {
  constexpr int64_t kBlocks = philox::Lanes::kBlocks, kElements = 4 * kBlocks;
  const philox::Lanes lanes(stream);
  const int64_t end = first + n;
  for (int64_t e = first; e < end;) {
    const auto block = static_cast<uint64_t>(e) / 4;
    const bool whole = e % 4 == 0 && end - e >= kElements;
    if (whole && static_cast<uint32_t>(block) <= UINT32_MAX - (kBlocks - 1)) {
      lanes.draw(block, to);
      to += kElements;
      e += kElements;
      continue;
    }
    const base::PhiloxCounter words = stream.draw(block);
    const int64_t from = e % 4, count = std::min(4 - from, end - e);
    std::memcpy(to, words.data() + from, static_cast<size_t>(count) * sizeof(int32_t));
    to += count;
    e += count;
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace aicf::backend::cpu
HWY_AFTER_NAMESPACE();

#endif  // toggle
