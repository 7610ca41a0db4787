// Philox 4x32-10, the counter-based generator of Salmon, Moraes, Dror and Shaw, "Parallel random numbers: as easy as
// 1, 2, 3" (SC 2011): a pure function of key and counter, so that any element can be drawn alone, in any order.
#pragma once

#include <array>
#include <cstdint>

namespace aicf::base {

using PhiloxCounter = std::array<uint32_t, 4>;
using PhiloxKey = std::array<uint32_t, 2>;

inline PhiloxCounter philox4x32(PhiloxCounter c, PhiloxKey k) {
  for (int round = 0; round < 10; ++round) {
    const uint64_t a = uint64_t{0xd2511f53u} * c[0];
    const uint64_t b = uint64_t{0xcd9e8d57u} * c[2];
    c = {static_cast<uint32_t>(b >> 32) ^ c[1] ^ k[0], static_cast<uint32_t>(b),
         static_cast<uint32_t>(a >> 32) ^ c[3] ^ k[1], static_cast<uint32_t>(a)};
    k[0] += 0x9e3779b9u;
    k[1] += 0xbb67ae85u;
  }
  return c;
}

inline PhiloxKey philox_key(uint64_t seed) { return {static_cast<uint32_t>(seed), static_cast<uint32_t>(seed >> 32)}; }

// The top 53 bits of two words as a double in [0, 1).
inline double unit_double(uint32_t high, uint32_t low) {
  return static_cast<double>((uint64_t{high} << 21) | (low >> 11)) * 0x1p-53;
}

}  // namespace aicf::base
