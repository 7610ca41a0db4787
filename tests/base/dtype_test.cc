// The conversions of the 16-bit floats, over every bit pattern and around every rounding boundary; dtype names.
#include "aicf/dtype.h"

#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <limits>

#include "base/thread_pool.h"

namespace aicf {
namespace {

struct Format {
  const char* name;
  uint16_t (*to)(float);
  float (*from)(uint16_t);
  int mantissa_bits, exponent_bits;
};
constexpr Format kFormats[] = {{"f16", f32_to_f16, f16_to_f32, 10, 5}, {"bf16", f32_to_bf16, bf16_to_f32, 7, 8}};

// The value of a bit pattern by the definition of IEEE 754 interchange formats, in double.
double value_of(uint16_t bits, const Format& f) {
  const int exponent_mask = (1 << f.exponent_bits) - 1, bias = exponent_mask / 2;
  const int exponent = (bits >> f.mantissa_bits) & exponent_mask;
  const int mantissa = bits & ((1 << f.mantissa_bits) - 1);
  const double sign = bits & 0x8000 ? -1 : 1;
  if (exponent == exponent_mask) return mantissa ? std::nan("") : sign * std::numeric_limits<double>::infinity();
  if (exponent == 0) return sign * std::ldexp(mantissa, 1 - bias - f.mantissa_bits);
  return sign * std::ldexp(mantissa + (1 << f.mantissa_bits), exponent - bias - f.mantissa_bits);
}

TEST(HalfFloats, EveryPatternIsReadByDefinitionAndSurvivesARoundTrip) {
  const base::FlushSubnormals flush;  // as on a thread that runs kernels: f16 subnormals must be kept even there
  for (const Format& f : kFormats) {
    for (int i = 0; i < 65536; ++i) {
      const auto bits = static_cast<uint16_t>(i);
      const float x = f.from(bits);
      const bool is_nan = (std::bit_cast<uint32_t>(x) & 0x7fffffffu) > 0x7f800000u;
      if (value_of(bits, f) != value_of(bits, f)) {
        EXPECT_TRUE(is_nan) << f.name << " " << i;
        EXPECT_TRUE(value_of(f.to(x), f) != value_of(f.to(x), f)) << f.name << " " << i;
        continue;
      }
      // Compared as bits: a subnormal of bf16 is one of f32, which comparisons would flush here.
      EXPECT_EQ(f.to(x), bits) << f.name << " " << i;
    }
  }
  for (const Format& f : kFormats) {
    for (int i = 0; i < 65536; ++i) {
      const auto bits = static_cast<uint16_t>(i);
      const double want = value_of(bits, f);
      if (want == want && std::fpclassify(want) != FP_SUBNORMAL &&
          std::abs(want) >= std::numeric_limits<float>::min()) {
        EXPECT_EQ(static_cast<double>(f.from(bits)), want) << f.name << " " << i;
      }
    }
  }
}

// Between each two neighbours: just below the middle goes down, the middle to the even one, just above goes up.
TEST(HalfFloats, RoundToNearestEven) {
  for (const Format& f : kFormats) {
    const int last = ((1 << f.exponent_bits) - 1) << f.mantissa_bits;  // infinity
    for (int i = 0; i + 1 < last; ++i) {
      const auto low = static_cast<uint16_t>(i), high = static_cast<uint16_t>(i + 1);
      const double middle = (value_of(low, f) + value_of(high, f)) / 2;
      const auto as_float = static_cast<float>(middle);
      if (static_cast<double>(as_float) != middle) continue;  // below f32's own subnormals
      const uint16_t even = i % 2 == 0 ? low : high;
      for (float sign : {1.f, -1.f}) {
        const uint16_t bit = sign < 0 ? 0x8000 : 0;
        EXPECT_EQ(f.to(sign * as_float), even | bit) << f.name << " " << i;
        EXPECT_EQ(f.to(sign * std::nextafter(as_float, 0.f)), low | bit) << f.name << " " << i;
        EXPECT_EQ(f.to(sign * std::nextafter(as_float, std::numeric_limits<float>::infinity())), high | bit)
            << f.name << " " << i;
      }
    }
  }
}

TEST(HalfFloats, OverflowBecomesInfinity) {
  EXPECT_EQ(f32_to_f16(65519.f), 0x7bff);
  EXPECT_EQ(f32_to_f16(65520.f), 0x7c00);
  EXPECT_EQ(f32_to_f16(-1e30f), 0xfc00);
  EXPECT_EQ(f32_to_bf16(std::numeric_limits<float>::max()), 0x7f80);
  EXPECT_EQ(f32_to_f16(std::numeric_limits<float>::infinity()), 0x7c00);
}

TEST(DTypes, NamesRoundTrip) {
  for (int i = 0; i < kDTypeCount; ++i) {
    const auto dtype = static_cast<DType>(i);
    DType parsed = f32;
    EXPECT_TRUE(parse_dtype(name_of(dtype), parsed));
    EXPECT_EQ(parsed, dtype);
    EXPECT_NE(is_float(dtype), is_integer(dtype) || dtype == boolean);
  }
  DType parsed = i64;
  EXPECT_FALSE(parse_dtype("f8", parsed));
  EXPECT_EQ(parsed, i64);
}

}  // namespace
}  // namespace aicf
