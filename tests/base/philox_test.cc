// Philox against the known-answer vectors published with the Random123 library (kat_vectors, philox4x32 10).
#include "base/philox.h"

#include <gtest/gtest.h>

namespace aicf::base {
namespace {

TEST(Philox, KnownAnswers) {
  EXPECT_EQ(philox4x32({0, 0, 0, 0}, {0, 0}), (PhiloxCounter{0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8}));
  const uint32_t f = 0xffffffff;
  EXPECT_EQ(philox4x32({f, f, f, f}, {f, f}), (PhiloxCounter{0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd}));
  EXPECT_EQ(philox4x32({0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344}, {0xa4093822, 0x299f31d0}),
            (PhiloxCounter{0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1}));
}

TEST(Philox, KeyHoldsBothHalvesOfTheSeed) {
  EXPECT_EQ(philox_key(0x0123456789abcdefu), (PhiloxKey{0x89abcdef, 0x01234567}));
}

TEST(Philox, UnitDoubleCoversZeroToOneExclusive) {
  EXPECT_EQ(unit_double(0, 0), 0.0);
  EXPECT_EQ(unit_double(0x80000000u, 0), 0.5);
  EXPECT_EQ(unit_double(0xffffffffu, 0xffffffffu), 1.0 - 0x1p-53);
  EXPECT_EQ(unit_double(0, 1u << 11), 0x1p-53);
}

}  // namespace
}  // namespace aicf::base
