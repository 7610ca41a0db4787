// Philox 4x32-10, the counter-based generator of Salmon, Moraes, Dror and Shaw, "Parallel random numbers: as easy as
// 1, 2, 3" (SC 2011): a pure function of key and counter, so that any element can be drawn alone, in any order.
#pragma once

#include <array>
#include <cstdint>

namespace aicf::base {

using PhiloxCounter = std::array<uint32_t, 4>;
using PhiloxKey = std::array<uint32_t, 2>;

inline constexpr int kPhiloxRounds = 10;
inline constexpr uint32_t kPhiloxFactor0 = 0xd2511f53u, kPhiloxFactor1 = 0xcd9e8d57u;

// Of the next round.
inline PhiloxKey next_philox_key(PhiloxKey k) { return {k[0] + 0x9e3779b9u, k[1] + 0xbb67ae85u}; }

inline PhiloxCounter philox4x32(PhiloxCounter c, PhiloxKey k) {
  for (int round = 0; round < kPhiloxRounds; ++round) {
    const uint64_t a = uint64_t{kPhiloxFactor0} * c[0];
    const uint64_t b = uint64_t{kPhiloxFactor1} * c[2];
    c = {static_cast<uint32_t>(b >> 32) ^ c[1] ^ k[0], static_cast<uint32_t>(b),
         static_cast<uint32_t>(a >> 32) ^ c[3] ^ k[1], static_cast<uint32_t>(a)};
    k = next_philox_key(k);
  }
  return c;
}

inline PhiloxKey philox_key(uint64_t seed) { return {static_cast<uint32_t>(seed), static_cast<uint32_t>(seed >> 32)}; }

// The draws of one op in one step (ops/rng_bits.cc): 128 bits, a counter, from each block. The key is the seed; the
// counter's words hold
//   0: the low 32 bits of the block's number
//   1: its high 11 bits | the op's ordinal << 11 | 1 << 31
//   2, 3: the offset
// so no two of (block, ordinal, offset) share a counter. Bit 31 of word 1 keeps them apart from the draws of initial
// values under the same seed, which have it clear (ir/init.cc).
struct PhiloxStream {
  static constexpr int kBlockBits = 43;
  static constexpr int kOrdinalBits = 20;

  uint64_t seed = 0;
  uint64_t offset = 0;
  uint32_t ordinal = 0;

  PhiloxCounter counter(uint64_t block) const {
    const uint32_t high = static_cast<uint32_t>(block >> 32) | ordinal << (kBlockBits - 32) | uint32_t{1} << 31;
    return {static_cast<uint32_t>(block), high, static_cast<uint32_t>(offset), static_cast<uint32_t>(offset >> 32)};
  }
  PhiloxCounter draw(uint64_t block) const { return philox4x32(counter(block), philox_key(seed)); }
};

// The top 53 bits of two words as a double in [0, 1).
inline double unit_double(uint32_t high, uint32_t low) {
  return static_cast<double>((uint64_t{high} << 21) | (low >> 11)) * 0x1p-53;
}

}  // namespace aicf::base
