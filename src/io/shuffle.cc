// Integer arithmetic only: std::shuffle and the distributions of <random> differ between standard libraries.
#include "io/shuffle.h"

#include <utility>

namespace aicf::io {
namespace {

// The golden ratio's increment and the finalizer of splitmix64 (Steele, Lea, Flood 2014, and Vigna's constants).
constexpr uint64_t kIncrement = 0x9E3779B97F4A7C15;

uint64_t mix(uint64_t z) {
  z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9;
  z = (z ^ (z >> 27)) * 0x94D049BB133111EB;
  return z ^ (z >> 31);
}

class Generator {
 public:
  Generator(uint64_t seed, uint64_t stream) : state_(mix(mix(seed + kIncrement) + stream)) {}

  // Uniform below n > 0, without bias: Lemire 2019, "Fast random integer generation in an interval".
  uint64_t below(uint64_t n) {
    __uint128_t product = static_cast<__uint128_t>(draw()) * n;
    if (static_cast<uint64_t>(product) < n) {
      const uint64_t threshold = -n % n;
      while (static_cast<uint64_t>(product) < threshold) product = static_cast<__uint128_t>(draw()) * n;
    }
    return static_cast<uint64_t>(product >> 64);
  }

 private:
  uint64_t draw() { return mix(state_ += kIncrement); }

  uint64_t state_;
};

}  // namespace

void shuffle(std::span<int64_t> items, uint64_t seed, int64_t epoch) {
  Generator generator(seed, static_cast<uint64_t>(epoch));
  for (size_t i = items.size(); i > 1; --i) std::swap(items[i - 1], items[generator.below(i)]);
}

}  // namespace aicf::io
