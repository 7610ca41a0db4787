// Pointwise ops: every vector target against the scalar instance, bit for bit; casts; and the driver: broadcasting,
// aliasing, 16-bit floats, partition.
#include <gtest/gtest.h>
#include <hwy/highway.h>

#include <cmath>
#include <cstring>
#include <functional>
#include <limits>
#include <random>
#include <tuple>

#include "backend/cpu/pointwise.h"
#include "backend/cpu/pointwise_tables.h"
#include "base/thread_pool.h"
#include "ops/defs.h"
#include "ops/kernel_run.h"
#include "ops/pointwise_printer.h"
#include "ops/pointwise_scalar.h"
#include "support/every_target.h"

namespace aicf {
namespace {

using namespace ops::pointwise;  // op_NAME on float
using backend::cpu::find_cast;
using backend::cpu::find_tile;
using backend::cpu::Pointwise;
using backend::cpu::TileFn;
using test::on_every_target;
constexpr float kInf = std::numeric_limits<float>::infinity();
constexpr float kQuiet = std::numeric_limits<float>::quiet_NaN();

std::vector<float> special_values() {
  return {0.f,
          -0.f,
          1.f,
          -1.f,
          0.5f,
          -0.5f,
          2.f,
          3.f,
          -3.f,
          1.5f,
          2.5f,
          kInf,
          -kInf,
          kQuiet,
          -kQuiet,
          0x1p-126f,
          -0x1p-126f,
          0x1p-149f,
          -0x1p-130f,
          88.72f,
          -87.33f,
          1e10f,
          1e-10f,
          50000.f,
          8388607.5f,
          8388608.f,
          0x1.fffffep127f,
          -0x1.fffffep127f,
          0x1.fffffep-1f,
          0x1.000002p0f};
}

// All pairs of special values, then random bits and random numbers of moderate size.
void fill_inputs(std::vector<float>& a, std::vector<float>& b) {
  for (float x : special_values()) {
    for (float y : special_values()) a.push_back(x), b.push_back(y);
  }
  std::mt19937_64 random(3);
  std::uniform_real_distribution<float> moderate(-20, 20);
  for (int i = 0; i < 20000; ++i) {
    a.push_back(of_bits(static_cast<uint32_t>(random())));
    b.push_back(of_bits(static_cast<uint32_t>(random())));
    a.push_back(moderate(random));
    b.push_back(moderate(random));
  }
}

// Which NaN comes out of two is left open; everything else is not.
bool same(float a, float b) { return bits_of(a) == bits_of(b) || (std::isnan(a) && std::isnan(b)); }
bool same(uint8_t a, uint8_t b) { return a == b; }

template <int kArity, class Out, class Op>
void expect_tile_equals_scalar(const char* target, const char* name, Pointwise which, Op op) {
  static std::vector<float> a, b;
  if (a.empty()) fill_inputs(a, b);
  const TileFn tile = backend::cpu::find_f32_tile(which);
  ASSERT_NE(tile, nullptr) << name;
  const base::FlushSubnormals flush;
  // Whole, and every short length, at addresses of every alignment.
  std::vector<std::pair<size_t, size_t>> runs = {{0, a.size()}};
  for (size_t n = 1; n <= 70; ++n) runs.push_back({n * 7, n});
  for (const auto& [from, n] : runs) {
    std::vector<Out> got(n + 2, Out{77});
    const void* in[] = {a.data() + from, b.data() + from};
    tile(in, got.data() + 1, n);
    ASSERT_TRUE(got[0] == Out{77} && got[n + 1] == Out{77})
        << name << " wrote beyond " << n << " elements on " << target;
    for (size_t i = 0; i < n; ++i) {
      const float x = a[from + i], y = b[from + i];
      Out want;
      if constexpr (kArity == 1) {
        want = op(x);
      } else {
        want = op(x, y);
      }
      ASSERT_TRUE(same(got[i + 1], want)) << target << " " << name << "(" << std::hexfloat << x << ", " << y << ") is "
                                          << +got[i + 1] << ", scalar " << +want;
    }
  }
}

TEST(Pointwise, VectorTilesHaveTheBitsOfTheScalarInstance) {
  on_every_target([](const char* target) {
#define CHECK_real(name, arity)                                           \
  expect_tile_equals_scalar<arity, float>(target, #name, Pointwise::name, \
                                          [](auto... x) -> float { return op_##name(x...); });
#define CHECK_arith(name, arity) CHECK_real(name, arity)
#define CHECK_compare(name, arity)                                          \
  expect_tile_equals_scalar<arity, uint8_t>(target, #name, Pointwise::name, \
                                            [](auto... x) -> uint8_t { return op_##name(x...); });
#define CHECK_test(name, arity) CHECK_compare(name, arity)
#define CHECK_choose(name, arity)
#define CHECK_logic(name, arity)
#define CHECK_convert(name, arity)
#define AICF_POINTWISE(name, arity, domain) CHECK_##domain(name, arity)
#include "ops/ops.def"
  });
}

TEST(Pointwise, ExtremesAreIeee2019) {
  EXPECT_FALSE(std::signbit(op_maximum(0.f, -0.f)) || std::signbit(op_maximum(-0.f, 0.f)));
  EXPECT_TRUE(std::signbit(op_minimum(0.f, -0.f)) && std::signbit(op_minimum(-0.f, 0.f)));
  for (float x : {1.f, kInf, -kInf, kQuiet}) {
    EXPECT_TRUE(std::isnan(op_maximum(x, kQuiet)) && std::isnan(op_maximum(kQuiet, x)));
    EXPECT_TRUE(std::isnan(op_minimum(x, kQuiet)) && std::isnan(op_minimum(kQuiet, x)));
  }
  EXPECT_TRUE(std::isnan(op_relu(kQuiet)));
}

template <class T>
T run_tile(const ir::OpDef& def, DType dtype, T a, T b = {}) {
  const void* in[] = {&a, &b};
  T out{};
  find_tile(def, dtype)(in, &out, 1);
  return out;
}

TEST(Pointwise, IntegersWrap) {
  constexpr int32_t kMin = std::numeric_limits<int32_t>::min(), kMax = std::numeric_limits<int32_t>::max();
  EXPECT_EQ(run_tile(ops::add_def, i32, kMax, 1), kMin);
  EXPECT_EQ(run_tile(ops::sub_def, i32, kMin, 1), kMax);
  EXPECT_EQ(run_tile(ops::abs_def, i32, kMin), kMin);
  EXPECT_EQ(run_tile(ops::neg_def, i32, kMin), kMin);
  EXPECT_EQ(run_tile(ops::mul_def, i32, 65537, 65537), 131073);
  EXPECT_EQ(run_tile(ops::maximum_def, i32, kMin, -1), -1);
  EXPECT_EQ(run_tile(ops::sign_def, i32, -7), -1);
  EXPECT_EQ(run_tile<int64_t>(ops::mul_def, i64, int64_t{1} << 40, int64_t{1} << 40), 0);
  EXPECT_EQ(run_tile<int64_t>(ops::minimum_def, i64, -5, int64_t{1} << 40), -5);
}

TEST(Pointwise, DoublesUseLibm) {
  EXPECT_EQ(run_tile(ops::exp_def, f64, 0.7), std::exp(0.7));
  EXPECT_EQ(run_tile(ops::pow_def, f64, 1.3, 2.7), std::pow(1.3, 2.7));
  EXPECT_EQ(run_tile(ops::erf_def, f64, 0.3), std::erf(0.3));
}

// --- casts ------------------------------------------------------------------------------------------------------

template <class To, class From>
std::vector<To> cast(DType from, DType to, const std::vector<From>& x) {
  std::vector<To> y(x.size());
  const void* in[] = {x.data()};
  const base::FlushSubnormals flush;
  find_cast(from, to)(in, y.data(), x.size());
  return y;
}

TEST(Cast, HalvesAreExactUnderFlushToZero) {
  std::vector<uint16_t> all(65536);
  for (size_t i = 0; i < all.size(); ++i) all[i] = static_cast<uint16_t>(i);
  on_every_target([&](const char* target) {
    const auto h = cast<float>(f16, f32, all), b = cast<float>(bf16, f32, all);
    for (size_t i = 0; i < all.size(); ++i) {
      ASSERT_EQ(bits_of(h[i]), bits_of(f16_to_f32(all[i]))) << target << " f16 " << i;
      ASSERT_EQ(bits_of(b[i]), bits_of(bf16_to_f32(all[i]))) << target << " bf16 " << i;
    }
  });
}

TEST(Cast, RoundsToHalvesAsTheScalarConversion) {
  std::vector<float> x = special_values();
  for (uint64_t i = 0; i < (uint64_t{1} << 32); i += 4999) x.push_back(of_bits(static_cast<uint32_t>(i)));
  for (uint32_t h = 0; h < 0x7c00; ++h) {  // the ties between f16 neighbours, and next to them
    const uint32_t middle =
        bits_of((f16_to_f32(static_cast<uint16_t>(h)) + f16_to_f32(static_cast<uint16_t>(h + 1))) / 2);
    for (uint32_t bits : {middle - 1, middle, middle + 1}) x.push_back(of_bits(bits));
  }
  on_every_target([&](const char* target) {
    const auto h = cast<uint16_t>(f32, f16, x), b = cast<uint16_t>(f32, bf16, x);
    for (size_t i = 0; i < x.size(); ++i) {
      ASSERT_EQ(h[i], f32_to_f16(x[i])) << target << std::hexfloat << " f16 of " << x[i];
      ASSERT_EQ(b[i], f32_to_bf16(x[i])) << target << std::hexfloat << " bf16 of " << x[i];
    }
  });
}

TEST(Cast, WideNumbersRoundOnceToHalves) {
  // Just above the tie between 1 and the next bf16, by less than an f32 shows: two roundings would give 1.
  EXPECT_EQ(cast<uint16_t>(f64, bf16, std::vector<double>{1 + 0x1p-8 + 0x1p-40})[0], 0x3f81);
  EXPECT_EQ(cast<uint16_t>(f64, bf16, std::vector<double>{1 + 0x1p-8 - 0x1p-40, -(1 + 0x1p-8 + 0x1p-40)}),
            (std::vector<uint16_t>{0x3f80, 0xbf81}));
  EXPECT_EQ(cast<uint16_t>(f64, f16, std::vector<double>{1 + 0x1p-11 + 0x1p-40, 0x1p-25 + 0x1p-60, INFINITY}),
            (std::vector<uint16_t>{0x3c01, 1, 0x7c00}));
  const int64_t big = int64_t{1} << 62;
  EXPECT_EQ(
      cast<uint16_t>(i64, bf16, std::vector<int64_t>{big + (big >> 8) + 1, big + (big >> 8), -(big + (big >> 8) + 1)}),
      (std::vector<uint16_t>{0x5e81, 0x5e80, 0xde81}));
}

TEST(Cast, ToIntegersTruncatesAndSaturates) {
  const std::vector<float> x = {1.9f, -1.9f, 3e9f, -3e9f, kQuiet, kInf, 2147483520.f};
  EXPECT_EQ(cast<int32_t>(f32, i32, x),
            (std::vector<int32_t>{1, -1, 2147483647, -2147483647 - 1, 0, 2147483647, 2147483520}));
  EXPECT_EQ(cast<uint8_t>(f32, u8, x), (std::vector<uint8_t>{1, 0, 255, 0, 0, 255, 255}));
  EXPECT_EQ(cast<int64_t>(f64, i64, std::vector<double>{-1e30, 1e30, 0.99})[1], std::numeric_limits<int64_t>::max());
  EXPECT_EQ(cast<int32_t>(i64, i32, std::vector<int64_t>{(int64_t{1} << 32) + 5})[0], 5);
  EXPECT_EQ(cast<uint8_t>(f32, boolean, std::vector<float>{0.f, -0.f, 0.1f, kQuiet, 256.f}),
            (std::vector<uint8_t>{0, 0, 1, 1, 1}));
  EXPECT_EQ(cast<uint8_t>(i32, boolean, std::vector<int32_t>{0, 256, -1}), (std::vector<uint8_t>{0, 1, 1}));
  // A subnormal is not 0.
  on_every_target([&](const char* target) {
    EXPECT_EQ(cast<uint8_t>(f32, boolean, std::vector<float>(40, 0x1p-149f)), std::vector<uint8_t>(40, 1)) << target;
  });
  EXPECT_EQ(cast<uint8_t>(f64, boolean, std::vector<double>{0x1p-1074, -0x1p-1030, -0.0}),
            (std::vector<uint8_t>{1, 1, 0}));
  EXPECT_EQ(cast<uint8_t>(bf16, boolean, std::vector<uint16_t>{1, 0x8001, 0x8000}), (std::vector<uint8_t>{1, 1, 0}));
}

TEST(Cast, EveryPairExists) {
  for (int from = 0; from < kDTypeCount; ++from) {
    for (int to = 0; to < kDTypeCount; ++to) {
      const TileFn tile = find_cast(static_cast<DType>(from), static_cast<DType>(to));
      ASSERT_NE(tile, nullptr);
      alignas(8) unsigned char x[8 * 37] = {}, y[8 * 37 + 1];
      std::memset(y, 0xAB, sizeof y);
      const void* in[] = {x};
      tile(in, y, 37);
      const size_t bytes = 37 * size_of(static_cast<DType>(to));
      for (size_t i = 0; i < bytes; ++i) ASSERT_EQ(y[i], 0) << from << " to " << to;
      ASSERT_EQ(y[bytes], 0xAB) << from << " to " << to;
    }
  }
}

// --- the driver -------------------------------------------------------------------------------------------------

Tensor random_tensor(DType dtype, const Shape& shape, unsigned seed) {
  Tensor t(TensorType{dtype, shape});
  std::mt19937 random(seed);
  for (int64_t i = 0; i < t.elements(); ++i) {
    set_element(
        dtype, t.data(), i,
        dtype == boolean ? static_cast<int>(random() % 2) : static_cast<int>(random() % 41) - (dtype == u8 ? 0 : 20));
  }
  return t;
}

// The element of a broadcast operand for linear index `i` of the result, by numpy's rule.
int64_t source_index(const Shape& from, const Shape& to, int64_t i) {
  int64_t index = 0, stride = 1;
  for (int b = to.rank() - 1, a = from.rank() - 1; a >= 0; --b, --a) {
    if (from[a] != 1) index += i % to[b] * stride;
    i /= to[b];
    stride *= from[a];
  }
  return index;
}

Tensor run(const ir::OpDef& def, const std::vector<Tensor>& in, const TensorType& out, test::RunMode mode = {}) {
  test::BoundOp op{&def, {}, {}, {out}};
  std::vector<const Tensor*> operands;
  for (const Tensor& t : in) op.in.push_back(t.type()), operands.push_back(&t);
  backend::cpu::KernelTable table;
  backend::cpu::register_pointwise(table);
  const backend::Kernel* kernel = nullptr;
  for (const backend::Kernel& k : table) {
    if (std::string_view(k.op) == def.name && k.accepts(op.query())) kernel = &k;
  }
  if (!kernel) throw InternalError(op.text() + ": no kernel");
  return test::run_kernel(op, *kernel, operands, mode)[0];
}

struct Broadcasting {
  Shape a, b, out;
};
const Broadcasting kBroadcasting[] = {
    {{}, {}, {}},
    {{1}, {1}, {1}},
    {{3}, {}, {3}},
    {{1023}, {1023}, {1023}},
    {{1025}, {1}, {1025}},
    {{40000}, {}, {40000}},
    {{70, 10}, {10}, {70, 10}},      // a row over rows
    {{70, 10}, {70, 1}, {70, 10}},   // a column
    {{70, 1}, {1, 10}, {70, 10}},    // an outer sum
    {{5, 3000}, {3000}, {5, 3000}},  // a row longer than a tile
    {{5, 3000}, {5, 1}, {5, 3000}},
    {{100, 1024}, {1024}, {100, 1024}},  // exactly a tile
    {{100, 1000}, {1000}, {100, 1000}},  // several parts, each in another phase
    {{4, 5, 6}, {5, 1}, {4, 5, 6}},
    {{4, 1, 6}, {1, 5, 1}, {4, 5, 6}},
    {{2, 33, 1, 7}, {33, 50, 1}, {2, 33, 50, 7}},
    {{2, 1, 50, 1}, {1, 33, 1, 7}, {2, 33, 50, 7}},
    {{1, 2, 1, 2, 1, 2, 1, 2}, {2, 1, 2, 1, 2, 1, 2, 1}, {2, 2, 2, 2, 2, 2, 2, 2}},
};

class Driver : public ::testing::TestWithParam<DType> {};

TEST_P(Driver, BroadcastsByNumpysRule) {
  const DType dtype = GetParam();
  for (const Broadcasting& c : kBroadcasting) {
    const Tensor a = random_tensor(dtype, c.a, 1), b = random_tensor(dtype, c.b, 2);
    for (const bool swapped : {false, true}) {
      const Tensor y = swapped ? run(ops::sub_def, {b, a}, {dtype, c.out}) : run(ops::sub_def, {a, b}, {dtype, c.out});
      for (int64_t i = 0; i < y.elements(); ++i) {
        const double d = a.at(source_index(c.a, c.out, i)) - b.at(source_index(c.b, c.out, i));
        ASSERT_EQ(y.at(i), swapped ? -d : d) << to_string(c.a) << " " << to_string(c.b) << " at " << i;
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Types, Driver, ::testing::Values(f32, f64, bf16, f16, i64, i32),
                         [](const auto& info) { return std::string(name_of(info.param)); });

TEST(Pointwise, SelectsOfEveryType) {
  const Shape out = {3, 70, 11};
  for (int d = 0; d < kDTypeCount; ++d) {
    const auto dtype = static_cast<DType>(d);
    const Tensor c = random_tensor(boolean, {70, 1}, 3);
    const Tensor a = random_tensor(dtype, out, 4), b = random_tensor(dtype, {11}, 5);
    const Tensor y = run(ops::select_def, {c, a, b}, {dtype, out});
    for (int64_t i = 0; i < y.elements(); ++i) {
      const bool first = c.at(source_index(c.shape(), out, i)) != 0;
      ASSERT_EQ(y.at(i), first ? a.at(i) : b.at(source_index(b.shape(), out, i))) << name_of(dtype);
    }
  }
}

TEST(Pointwise, ComparesEveryType) {
  for (int d = 0; d < kDTypeCount; ++d) {
    const auto dtype = static_cast<DType>(d);
    const Tensor a = random_tensor(dtype, {5, 300}, 4), b = random_tensor(dtype, {300}, 5);
    const Tensor y = run(ops::less_equal_def, {a, b}, {boolean, {5, 300}});
    for (int64_t i = 0; i < y.elements(); ++i) ASSERT_EQ(y.at(i) != 0, a.at(i) <= b.at(i % 300)) << name_of(dtype);
  }
}

TEST(Pointwise, HalvesAreComputedInF32AndRoundedOnce) {
  for (DType dtype : {bf16, f16}) {
    const Shape shape = {3000};
    Tensor x(TensorType{dtype, shape}), wide(TensorType{f32, shape});
    std::mt19937 random(9);
    for (int64_t i = 0; i < 3000; ++i) {
      set_element(dtype, x.data(), i,
                  std::ldexp(static_cast<double>(random() % 2000), -static_cast<int>(random() % 24)));
      wide.as<float>()[i] = static_cast<float>(x.at(i));
    }
    const Tensor y = run(ops::log1p_def, {x}, {dtype, shape}), exact = run(ops::log1p_def, {wide}, {f32, shape});
    Tensor want(TensorType{dtype, shape});
    for (int64_t i = 0; i < 3000; ++i) {
      const float v = exact.as<float>()[i];
      want.as<uint16_t>()[i] = dtype == f16 ? f32_to_f16(v) : f32_to_bf16(v);
    }
    EXPECT_TRUE(y == want) << name_of(dtype);
  }
}

TEST(Pointwise, AnyThreadCountAndPartOrderGivesTheSameBits) {
  const Shape out = {100, 1000};
  const Tensor a = random_tensor(f32, out, 1), b = random_tensor(f32, {1000}, 2);
  const Tensor y = run(ops::mul_def, {a, b}, {f32, out});
  for (const test::RunMode& mode : {test::RunMode{.threads = 1}, test::RunMode{.threads = 2},
                                    test::RunMode{.threads = 8}, test::RunMode{.last_part_first = true}}) {
    EXPECT_TRUE(run(ops::mul_def, {a, b}, {f32, out}, mode) == y);
  }
}

TEST(Pointwise, InPlaceGivesTheSameBits) {
  const Shape out = {50, 1000};
  for (DType dtype : {f32, f64, bf16, f16, i32, i64}) {
    const Tensor a = random_tensor(dtype, out, 1), b = random_tensor(dtype, {50, 1}, 2);
    const Tensor apart = run(ops::sub_def, {a, b}, {dtype, out});
    EXPECT_TRUE(run(ops::sub_def, {a, b}, {dtype, out}, {.alias_out = 0, .alias_in = 0}) == apart) << name_of(dtype);
    const Tensor swapped = run(ops::sub_def, {b, a}, {dtype, out});
    EXPECT_TRUE(run(ops::sub_def, {b, a}, {dtype, out}, {.alias_out = 0, .alias_in = 1}) == swapped) << name_of(dtype);
  }
}

// Large results are written past the cache, unless in place.
TEST(Pointwise, LargeResults) {
  const int64_t n = (int64_t{20} << 20) / 4 + 3;
  const Tensor a = random_tensor(f32, {n}, 1), b = random_tensor(f32, {n}, 2), h = random_tensor(f16, {2 * n}, 3);
  Tensor want(TensorType{f32, {n}}), double_h(TensorType{f16, {2 * n}});
  for (int64_t i = 0; i < n; ++i) want.as<float>()[i] = a.as<float>()[i] - b.as<float>()[i];
  for (int64_t i = 0; i < 2 * n; ++i) double_h.as<uint16_t>()[i] = f32_to_f16(2 * f16_to_f32(h.as<uint16_t>()[i]));
  EXPECT_TRUE(run(ops::sub_def, {a, b}, {f32, {n}}, {.threads = 2}) == want);
  EXPECT_TRUE(run(ops::sub_def, {a, b}, {f32, {n}}, {.alias_out = 0, .alias_in = 1}) == want);
  EXPECT_TRUE(run(ops::add_def, {h, h}, {f16, {2 * n}}, {.threads = 2}) == double_h);
}

TEST(Pointwise, EmptyTensorsLaunchNothing) {
  for (const Shape& shape : {Shape{0}, Shape{3, 0}, Shape{0, 5}}) {
    EXPECT_EQ(run(ops::add_def, {random_tensor(f32, shape, 1), random_tensor(f32, {1}, 2)}, {f32, shape}).elements(),
              0);
  }
}

namespace print = ops::pointwise::printing;

// The statements of an expression on operands called a, b, …
template <class... T, class Op>
std::string printed(Op op) {
  print::Printer printer;
  char name = 'a';
  std::tuple<print::Text<T>...> operands{print::Text<T>{&printer, std::string(1, name++)}...};
  const auto y = std::apply(op, operands);
  EXPECT_NE(printer.statements().find(" " + y.name + " = "), std::string::npos) << printer.statements();
  return printer.statements();
}

TEST(Pointwise, PrintsAsCuda) {
#define OP(name) [](auto... x) { return print::op_##name(x...); }
  // Choices and signs are on bits.
  EXPECT_EQ(printed<float>(OP(relu)),
            "const bool t0 = a < 0x0p+0f;\n"
            "const float t1 = __uint_as_float(t0 ? __float_as_uint(0x0p+0f) : __float_as_uint(a));\n");
  EXPECT_EQ(printed<float>(OP(neg)), "const float t0 = __uint_as_float(__float_as_uint(a) ^ 0x80000000u);\n");
  // Integers wrap.
  EXPECT_EQ((printed<int32_t, int32_t>(OP(add))), "const int t0 = (int)((unsigned int)a + (unsigned int)b);\n");
  EXPECT_EQ((printed<int64_t>(OP(neg))),
            "const long long t0 = (long long)((unsigned long long)0 - (unsigned long long)a);\n");
  EXPECT_EQ((printed<bool, uint8_t, uint8_t>(OP(select))), "const unsigned char t0 = a ? b : c;\n");
  // Every expression prints, for every type of its domain.
#define TYPES_1(T) T
#define TYPES_2(T) T, T
#define PRINT(name, arity, T) printed<TYPES_##arity(T)>(OP(name));
#define PRINT_real(name, arity) PRINT(name, arity, float)
#define PRINT_test(name, arity) PRINT(name, arity, float)
#define PRINT_arith(name, arity) PRINT(name, arity, float) PRINT(name, arity, int32_t) PRINT(name, arity, int64_t)
#define PRINT_compare(name, arity) PRINT_arith(name, arity) PRINT(name, arity, uint8_t)
#define PRINT_logic(name, arity) PRINT(name, arity, bool)
#define PRINT_choose(name, arity) printed<bool, float, float>(OP(name));
#define PRINT_convert(name, arity)
#define AICF_POINTWISE(name, arity, domain) PRINT_##domain(name, arity)
#include "ops/ops.def"
}

}  // namespace
}  // namespace aicf
