// The Philox words of a tile: known answers, any start and length, and the carry between the counter's words.
#include "backend/cpu/rng_bits.h"

#include <gtest/gtest.h>

#include <functional>
#include <vector>

#include "hwy/targets.h"
#include "support/every_target.h"

namespace aicf::backend::cpu {
namespace {

using base::PhiloxStream;
using test::on_every_target;

std::vector<uint32_t> words(const PhiloxStream& stream, int64_t first, int64_t n) {
  std::vector<int32_t> bits(static_cast<size_t>(n) + 2, 77);
  find_random_bits()(stream, first, n, bits.data() + 1);
  EXPECT_EQ(bits.front(), 77) << "wrote before";
  EXPECT_EQ(bits.back(), 77) << "wrote behind";
  return {bits.begin() + 1, bits.end() - 1};
}

// kat_vectors of the Random123 library, philox4x32 10: those whose second counter word has the top bit set.
TEST(RandomBits, KnownAnswers) {
  const uint64_t ones = ~uint64_t{0};
  EXPECT_EQ(words({ones, ones, (1u << 20) - 1}, ((int64_t{1} << 43) - 1) * 4, 4),
            (std::vector<uint32_t>{0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd}));
  const PhiloxStream pi{0x299f31d0a4093822, 0x0370734413198a2e, 0x05a308d3 >> 11};
  const int64_t block = int64_t{0x05a308d3 & 0x7ff} << 32 | 0x243f6a88;
  EXPECT_EQ(words(pi, block * 4, 4), (std::vector<uint32_t>{0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1}));
}

TEST(RandomBits, AnyTileIsAPartOfTheWhole) {
  const PhiloxStream stream{0x123456789abcdef0, 7, 3};
  for (const int64_t start : {int64_t{0}, (int64_t{1} << 34) - 130}) {  // the latter passes block 2^32
    std::vector<uint32_t> whole;
    for (int64_t e = start; e < start + 300; ++e) whole.push_back(stream.draw(static_cast<uint64_t>(e) / 4)[e % 4]);
    on_every_target([&](const char*) {
      for (int64_t from = 0; from < 9; ++from) {
        for (const int64_t n : {0, 1, 2, 3, 4, 5, 31, 32, 64, 65, 129, 291}) {
          const std::vector<uint32_t> want(whole.begin() + from, whole.begin() + from + n);
          EXPECT_EQ(words(stream, start + from, n), want) << start << " + " << from << ", " << n;
        }
      }
    });
  }
}

// Each of seed, offset, ordinal and block number has bits of its own.
TEST(RandomBits, EveryBitOfTheKeyAndCounterCounts) {
  const PhiloxStream stream{1, 1, 1};
  const base::PhiloxCounter base = stream.draw(1);
  for (int bit = 0; bit < 64; ++bit) {
    const uint64_t flip = uint64_t{1} << bit;
    EXPECT_NE((PhiloxStream{1 ^ flip, 1, 1}.draw(1)), base);
    EXPECT_NE((PhiloxStream{1, 1 ^ flip, 1}.counter(1)), stream.counter(1));
    if (bit < PhiloxStream::kBlockBits) {
      EXPECT_NE(stream.counter(1 ^ flip), stream.counter(1));
    }
    if (bit >= PhiloxStream::kOrdinalBits) continue;
    const PhiloxStream other{1, 1, 1 ^ static_cast<uint32_t>(flip)};
    EXPECT_NE(other.counter(1), stream.counter(1));
    for (int block_bit = 0; block_bit < PhiloxStream::kBlockBits; ++block_bit) {
      EXPECT_NE(other.counter(1), stream.counter(1 ^ uint64_t{1} << block_bit)) << bit << " and " << block_bit;
    }
  }
}

}  // namespace
}  // namespace aicf::backend::cpu
