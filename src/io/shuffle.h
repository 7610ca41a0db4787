// The order of an epoch's examples, as a function of (seed, epoch).
#pragma once

#include <cstdint>
#include <span>

namespace aicf::io {

// A uniformly drawn permutation: Fisher–Yates over splitmix64. The same on every machine.
void shuffle(std::span<int64_t> items, uint64_t seed, int64_t epoch);

}  // namespace aicf::io
