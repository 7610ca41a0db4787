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

#if HWY_TARGET == HWY_SCALAR
inline constexpr int64_t kBlocks = 1;
HWY_INLINE HWY_ATTR void draw_blocks(const base::PhiloxStream& stream, uint64_t block, int32_t* to) {
  const base::PhiloxCounter words = stream.draw(block);
  std::memcpy(to, words.data(), sizeof(words));
}
#else
namespace hn = hwy::HWY_NAMESPACE;

using WordTag = hn::ScalableTag<uint32_t>;
using PairTag = hn::RepartitionToWide<WordTag>;
using Words = hn::Vec<WordTag>;
inline constexpr int64_t kBlocks = HWY_LANES(uint32_t);  // side by side, one a lane

// The halves of the products of each lane and `factor`.
HWY_INLINE HWY_ATTR void multiply(Words x, Words factor, Words& high, Words& low) {
  const auto even = hn::MulEven(x, factor);
  const auto odd = hn::MulEven(hn::BitCast(WordTag(), hn::ShiftRight<32>(hn::BitCast(PairTag(), x))), factor);
  high = hn::OddEven(hn::BitCast(WordTag(), odd), hn::BitCast(WordTag(), hn::ShiftRight<32>(even)));
  low = hn::OddEven(hn::BitCast(WordTag(), hn::ShiftLeft<32>(odd)), hn::BitCast(WordTag(), even));
}

// The words of kBlocks blocks from `block` on. REQUIRES: their numbers differ in the low 32 bits alone.
HWY_INLINE HWY_ATTR void draw_blocks(const base::PhiloxStream& stream, uint64_t block, int32_t* to) {
  const WordTag d;
  const base::PhiloxCounter first = stream.counter(block);
  base::PhiloxKey key = base::philox_key(stream.seed);
  Words c0 = hn::Iota(d, first[0]), c1 = hn::Set(d, first[1]), c2 = hn::Set(d, first[2]), c3 = hn::Set(d, first[3]);
  const Words factor0 = hn::Set(d, base::kPhiloxFactor0), factor1 = hn::Set(d, base::kPhiloxFactor1);
  for (int round = 0; round < base::kPhiloxRounds; ++round) {
    Words high0, low0, high1, low1;
    multiply(c0, factor0, high0, low0);
    multiply(c2, factor1, high1, low1);
    c0 = hn::Xor(hn::Xor(high1, c1), hn::Set(d, key[0]));
    c1 = low1;
    c2 = hn::Xor(hn::Xor(high0, c3), hn::Set(d, key[1]));
    c3 = low0;
    key = base::next_philox_key(key);
  }
  hn::StoreInterleaved4(c0, c1, c2, c3, d, reinterpret_cast<uint32_t*>(to));
}
#endif

}  // namespace philox

// Elements `first` … first + n - 1 of the stream: element e is word e % 4 of block e / 4.
HWY_INLINE HWY_ATTR void random_bits(const base::PhiloxStream& stream, int64_t first, int64_t n, int32_t* to) {
  constexpr int64_t kElements = 4 * philox::kBlocks;
  const int64_t end = first + n;
  for (int64_t e = first; e < end;) {
    const auto block = static_cast<uint64_t>(e) / 4;
    const bool whole = e % 4 == 0 && end - e >= kElements;
    if (whole && static_cast<uint32_t>(block) <= UINT32_MAX - (philox::kBlocks - 1)) {
      philox::draw_blocks(stream, block, to);
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
