// The stated ulp bounds of the f32 functions of pointwise_math.inc, against f64 libm, and their special values. The
// scalar instance stands for all: pointwise_test holds the vector targets to its bits.
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <random>

#include "base/thread_pool.h"
#include "ops/pointwise_scalar.h"

namespace aicf {
namespace {

namespace pw = ops::pointwise;

constexpr float kInf = std::numeric_limits<float>::infinity();
constexpr float kNaN = std::numeric_limits<float>::quiet_NaN();
constexpr double kWrong = 1e9;

// Distance in units of the last place of the f32 binade of `want`. Below FLT_MIN, where results are flushed, anything
// up to FLT_MIN is right; where f32 rounds to infinity, so is a value next to it.
double ulps(float got, double want) {
  if (std::isnan(want)) return std::isnan(got) ? 0 : kWrong;
  if (std::isinf(want)) return got == want ? 0 : kWrong;
  if (std::fabs(want) < 0x1p-126) return std::fabs(got) <= 0x1p-126f ? 0 : kWrong;
  if (std::isinf(static_cast<float>(want))) return std::fabs(got) >= 0x1.fffff8p127f && got * want > 0 ? 0 : kWrong;
  int e;
  std::frexp(want, &e);
  return std::fabs(got - want) / std::ldexp(1.0, e - 24);
}

using F32Fn = float (*)(float);
using F64Fn = double (*)(double);

// Every 997th f32, so every exponent and both signs; an even sweep of [low, high]; the edges of that range.
void expect_within(const char* name, F32Fn f, F64Fn reference, float low, float high, double bound) {
  const base::FlushSubnormals flush;
  double worst = 0;
  float at = 0;
  const auto check = [&](float x) {
    if (std::isfinite(x) && (x < low || x > high)) return;
    if (x != 0 && std::fabs(x) < 0x1p-126f) x = 0;
    const double error = ulps(f(x), reference(static_cast<double>(x)));
    if (error > worst) worst = error, at = x;
  };
  for (uint64_t bits = 0; bits < (uint64_t{1} << 32); bits += 997) check(pw::of_bits(static_cast<uint32_t>(bits)));
  const float from = std::max(low, -200000.f), to = std::min(high, 200000.f);
  for (int i = 0; i <= 1000000; ++i) check(from + (to - from) * (static_cast<float>(i) * 1e-6f));
  float x = low, y = high;
  for (int i = 0; i < 1000; ++i) {
    check(x);
    check(y);
    x = std::nextafter(x, kInf);
    y = std::nextafter(y, -kInf);
  }
  EXPECT_LE(worst, bound) << name << " at " << std::hexfloat << at;
}

double sigmoid(double x) { return 1 / (1 + std::exp(-x)); }

#define CHECK_ULP(name, reference, low, high, bound) \
  expect_within(                                     \
      #name, [](float x) { return pw::op_##name(x); }, reference, low, high, bound)

TEST(PointwiseUlp, WholeRange) {
  const float max = std::numeric_limits<float>::max();
  CHECK_ULP(exp, std::exp, -max, max, 1);
  CHECK_ULP(expm1, std::expm1, -max, max, 2);
  CHECK_ULP(log, std::log, -max, max, 1);
  CHECK_ULP(log1p, std::log1p, -max, max, 2);
  CHECK_ULP(tanh, std::tanh, -max, max, 3);
  CHECK_ULP(sigmoid, sigmoid, -max, max, 3);
  CHECK_ULP(erf, std::erf, -max, max, 2);
}

TEST(PointwiseUlp, WhereTheyBend) {
  CHECK_ULP(exp, std::exp, -87.4f, 88.8f, 1);
  CHECK_ULP(expm1, std::expm1, -18, 18, 2);
  CHECK_ULP(expm1, std::expm1, -0.5f, 0.5f, 2);
  CHECK_ULP(log, std::log, 0.5f, 2, 1);
  CHECK_ULP(log1p, std::log1p, -1, 2, 2);
  CHECK_ULP(tanh, std::tanh, -10, 10, 3);
  CHECK_ULP(sigmoid, sigmoid, -90, 20, 3);
  CHECK_ULP(erf, std::erf, -4, 4, 2);
}

TEST(PointwiseUlp, SineAndCosine) {
  CHECK_ULP(sin, std::sin, -50000, 50000, 1);
  CHECK_ULP(cos, std::cos, -50000, 50000, 1);
  CHECK_ULP(sin, std::sin, -10, 10, 1);
  CHECK_ULP(cos, std::cos, -10, 10, 1);
}

TEST(PointwiseUlp, SineAndCosineBeyondTheirDomain) {
  const base::FlushSubnormals flush;
  for (uint64_t bits = 0x47435000; bits < 0x7f800000; bits += 997) {  // from 50000 to infinity
    const float x = pw::of_bits(static_cast<uint32_t>(bits));
    const float s = pw::op_sin(x), c = pw::op_cos(x);
    ASSERT_LE(std::fabs(s), 1) << x;
    ASSERT_LE(std::fabs(c), 1) << x;
    if (x >= 0x1p22f) {
      ASSERT_EQ(s, 0);
      ASSERT_EQ(c, 1);
    } else {
      ASSERT_NEAR(s, std::sin(static_cast<double>(x)), x * 0x1p-22) << x;
      ASSERT_NEAR(c, std::cos(static_cast<double>(x)), x * 0x1p-22) << x;
    }
  }
}

TEST(PointwiseUlp, Pow) {
  const base::FlushSubnormals flush;
  std::mt19937_64 random(7);
  std::uniform_real_distribution<double> unit(-1, 1);
  double worst = 0;
  float at_x = 0, at_y = 0;
  for (int i = 0; i < 2000000; ++i) {
    const auto any = pw::of_bits(static_cast<uint32_t>(random() & 0x7fffffff));
    const float x = i % 3 == 0 ? static_cast<float>(1 + unit(random) * unit(random)) : any;
    if (!(x >= 0x1p-126f) || std::isinf(x)) continue;
    // Exponents up to the overflow and the underflow of this x, and small ones.
    const double reach = 89 / std::log(static_cast<double>(x));
    const auto y = static_cast<float>(unit(random) * (i % 5 == 0 ? 10 : reach));
    const double error = ulps(pw::op_pow(x, y), std::pow(static_cast<double>(x), static_cast<double>(y)));
    if (error > worst) worst = error, at_x = x, at_y = y;
  }
  EXPECT_LE(worst, 6) << std::hexfloat << "pow(" << at_x << ", " << at_y << ")";
}

TEST(PointwiseUlp, PowOfSpecialValues) {
  const base::FlushSubnormals flush;
  const float values[] = {
      0.f,       1.f,  2.f,   3.f,        0.5f,       1.5f,           1e30f,         1e-30f, 0x1.fffffep127f,
      0x1p-126f, 2.5f, 1e10f, 16777215.f, 16777216.f, 0x1.fffffep-1f, 0x1.000002p0f, kInf,   kNaN};
  for (float a : values) {
    for (float b : values) {
      for (float x : {a, -a}) {
        for (float y : {b, -b}) {
          const double want = std::pow(static_cast<double>(x), static_cast<double>(y));
          const float got = pw::op_pow(x, y);
          EXPECT_LE(ulps(got, want), 6) << "pow(" << x << ", " << y << ") is " << got;
          EXPECT_TRUE(std::isnan(want) || std::signbit(got) == std::signbit(want)) << "pow(" << x << ", " << y << ")";
        }
      }
    }
  }
}

// The sign of zero, infinities and NaN, where an ulp says nothing.
TEST(PointwiseUlp, SpecialValues) {
  const base::FlushSubnormals flush;
  const struct {
    const char* name;
    F32Fn f;
    F64Fn reference;
  } rows[] = {
      {"exp", [](float x) { return pw::op_exp(x); }, std::exp},
      {"expm1", [](float x) { return pw::op_expm1(x); }, std::expm1},
      {"log", [](float x) { return pw::op_log(x); }, std::log},
      {"log1p", [](float x) { return pw::op_log1p(x); }, std::log1p},
      {"tanh", [](float x) { return pw::op_tanh(x); }, std::tanh},
      {"erf", [](float x) { return pw::op_erf(x); }, std::erf},
      {"sin", [](float x) { return pw::op_sin(x); }, std::sin},
      {"cos", [](float x) { return pw::op_cos(x); }, std::cos},
      {"sigmoid", [](float x) { return pw::op_sigmoid(x); }, sigmoid},
      {"floor", [](float x) { return pw::op_floor(x); }, std::floor},
      {"ceil", [](float x) { return pw::op_ceil(x); }, std::ceil},
      {"round", [](float x) { return pw::op_round(x); }, std::nearbyint},
      {"sqrt", [](float x) { return pw::op_sqrt(x); }, std::sqrt},
  };
  for (const auto& row : rows) {
    for (float x :
         {0.f, -0.f, 1.f, -1.f, kInf, -kInf, kNaN, 0.5f, -0.5f, 2.5f, -3.5f, -0.25f, 0x1p23f, 0x1.fffffep22f}) {
      const bool periodic =
          row.reference == static_cast<F64Fn>(std::sin) || row.reference == static_cast<F64Fn>(std::cos);
      if (periodic && std::fabs(x) > 50000 && !std::isinf(x)) continue;  // beyond their domain
      const double want = row.reference(static_cast<double>(x));
      const float got = row.f(x);
      EXPECT_LE(ulps(got, want), 3) << row.name << "(" << x << ") is " << got;
      EXPECT_TRUE(std::isnan(want) || std::signbit(got) == std::signbit(want)) << row.name << "(" << x << ")";
    }
  }
}

TEST(PointwiseUlp, SubnormalsCountAsZero) {
  const base::FlushSubnormals flush;
  volatile float given = 0x1p-140f;  // volatile: at compile time nothing is flushed
  const float tiny = given;
  EXPECT_EQ(pw::op_log(tiny), -kInf);
  EXPECT_EQ(pw::op_exp(tiny), 1);
  EXPECT_EQ(pw::op_pow(tiny, -1.f), kInf);
  EXPECT_EQ(pw::op_floor(-tiny), 0);
  EXPECT_EQ(pw::op_ceil(tiny), 0);
}

}  // namespace
}  // namespace aicf
