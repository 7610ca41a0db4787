// Initial values: the text form, the fixed bits of the draws, their distribution.
#include "ir/init.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cmath>

#include "aicf/error.h"
#include "base/hash.h"
#include "base/philox.h"

namespace aicf::ir {
namespace {

const InitSpec kSpecs[] = {{InitKind::zeros, {}},
                           {InitKind::ones, {}},
                           {InitKind::value, {0.1}},
                           {InitKind::values, {1, -0.5, 1e-30}},
                           {InitKind::uniform, {-0.3, 2}},
                           {InitKind::normal, {0, 0.02}},
                           {InitKind::seed, {}}};

TEST(Init, TextReadsBack) {
  for (const InitSpec& spec : kSpecs) EXPECT_EQ(parse_init(format_init(spec)), spec) << format_init(spec);
  EXPECT_EQ(format_init({InitKind::value, {0.5}}), "value(0x1p-1)");
  EXPECT_EQ(parse_init(""), InitSpec{});
}

TEST(Init, MalformedTextIsRefused) {
  for (const char* text : {"zero", "value", "value()", "value(1", "value(1,2)", "uniform(1)", "ones(1)", "values()",
                           "normal(0,x)", "(", "values(1,)", "zeros ", "seed(1)"}) {
    EXPECT_THROW(parse_init(text), Error) << text;
  }
}

TEST(Init, FixedKinds) {
  EXPECT_EQ(initial_value("a", {f32, {2}}, "ones", 0), Tensor::of<float>({2}, {1, 1}));
  EXPECT_EQ(initial_value("a", {i32, {}}, "value(0x1.8p+1)", 0), Tensor::scalar<int32_t>(3));
  EXPECT_EQ(initial_value("a", {f64, {2}}, "values(0x1p-1,-0x1p+1)", 0), Tensor::of<double>({2}, {0.5, -2}));
  EXPECT_EQ(initial_value("a", {i64, {}}, "seed", 0xfedcba9876543210u), Tensor::scalar<int64_t>(-0x123456789abcdf0));
  EXPECT_THROW(initial_value("a", {f64, {}}, "seed", 0), Error);
  EXPECT_THROW(initial_value("a", {i64, {1}}, "seed", 0), Error);
  EXPECT_THROW(initial_value("a", {f64, {3}}, "values(0x1p-1,-0x1p+1)", 0), Error);
  EXPECT_THROW(initial_value("a", {i32, {3}}, "normal(0,1)", 0), Error);
}

TEST(Init, UniformIsPhiloxOfSeedNameElement) {
  const uint64_t seed = 0x123456789u, name = base::hash_text("fc1.weight");
  const Tensor t = initial_value("fc1.weight", {f64, {5}}, "uniform(-1,1)", seed);
  for (uint32_t i = 0; i < 5; ++i) {
    const auto w = base::philox4x32({i / 2, 0, static_cast<uint32_t>(name), static_cast<uint32_t>(name >> 32)},
                                    base::philox_key(seed));
    EXPECT_EQ(t.at(i), -1 + 2 * base::unit_double(w[2 * (i % 2)], w[2 * (i % 2) + 1]));
  }
}

TEST(Init, DrawsDependOnSeedAndNameNotOnShapeOrDtype) {
  const std::string normal = "normal(0x0p+0,0x1p+0)";
  const Tensor a = initial_value("a", {f64, {64}}, normal, 1);
  EXPECT_EQ(a, initial_value("a", {f64, {64}}, normal, 1));
  EXPECT_NE(a, initial_value("b", {f64, {64}}, normal, 1));
  EXPECT_NE(a, initial_value("a", {f64, {64}}, normal, 2));
  EXPECT_NE(a, initial_value("a", {f64, {64}}, normal, uint64_t{1} << 32 | 1));
  const Tensor longer = initial_value("a", {f64, {7, 11}}, normal, 1);
  const Tensor narrow = initial_value("a", {f32, {63}}, normal, 1);
  for (int64_t i = 0; i < 63; ++i) {
    EXPECT_EQ(longer.at(i), a.at(i));
    EXPECT_EQ(narrow.at(i), static_cast<float>(a.at(i)));
  }
}

// Kolmogorov-Smirnov: the largest gap to the distribution's own function exceeds 2.2/√n with probability 1.3e-4.
void expect_distributed(const Tensor& t, double (*cdf)(double)) {
  std::vector<double> x = t.to_doubles();
  std::sort(x.begin(), x.end());
  const auto n = static_cast<double>(x.size());
  double gap = 0;
  for (size_t i = 0; i < x.size(); ++i) gap = std::max(gap, std::abs(cdf(x[i]) - (static_cast<double>(i) + 0.5) / n));
  EXPECT_LT(gap, 2.2 / std::sqrt(n));
}

TEST(Init, Distributions) {
  expect_distributed(initial_value("u", {f64, {100000}}, "uniform(-2,2)", 7), [](double x) { return (x + 2) / 4; });
  expect_distributed(initial_value("n", {f64, {100001}}, "normal(3,0.5)", 7),
                     [](double x) { return 0.5 * std::erfc((3 - x) / 0.5 / std::sqrt(2.0)); });
}

// The polar method by std::log: they agree to the rounding of a logarithm near 1 and a square root, a few ulp.
TEST(Init, NormalIsThePolarMethod) {
  const uint64_t name = base::hash_text("w");
  const Tensor t = initial_value("w", {f64, {2000}}, "normal(0,1)", 5);
  for (uint32_t pair = 0; pair < 1000; ++pair) {
    for (uint32_t attempt = 0;; ++attempt) {
      const auto w = base::philox4x32(
          {pair, attempt << 16, static_cast<uint32_t>(name), static_cast<uint32_t>(name >> 32)}, base::philox_key(5));
      const double u = 2 * base::unit_double(w[0], w[1]) - 1, v = 2 * base::unit_double(w[2], w[3]) - 1;
      const double s = u * u + v * v;
      if (s >= 1 || s == 0) continue;
      const double scale = std::sqrt(-2 * std::log(s) / s);
      EXPECT_NEAR(t.at(2 * pair), u * scale, 1e-15 * std::abs(u * scale) * 8);
      EXPECT_NEAR(t.at(2 * pair + 1), v * scale, 1e-15 * std::abs(v * scale) * 8);
      break;
    }
  }
}

// Computed apart, in Python, from Philox, FNV-1a and the polar method: other bits would change every training run.
TEST(Init, BitsAreTheSameEverywhere) {
  const uint32_t want[] = {0x3f290569, 0x3f72d4c6, 0xbea75ea7, 0xbf61c632,
                           0xc0206ac7, 0x3fb2f146, 0xbf6f0450, 0xc020c96a};
  const Tensor t = initial_value("fc1.weight", {f32, {8}}, "normal(0,1)", 1);
  for (int i = 0; i < 8; ++i) EXPECT_EQ(std::bit_cast<uint32_t>(t.as<float>()[i]), want[i]);
}

}  // namespace
}  // namespace aicf::ir
