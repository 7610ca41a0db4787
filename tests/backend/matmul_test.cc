// Kernels of matmul against sums in double, on every instruction set here; threads, part order, guard bytes, NaN.
#include <gtest/gtest.h>

#include <algorithm>
#include <cfloat>
#include <cmath>
#include <cstring>
#include <limits>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "aicf/error.h"
#include "backend/cpu/kernels.h"
#include "hwy/highway.h"
#include "support/every_target.h"

namespace aicf::backend {
namespace {

using test::on_every_target;

struct Case {
  Shape a, b;
  bool ta = false, tb = false;
};

std::string name_of(const Case& c) {
  return to_string(c.a) + (c.ta ? "^T" : "") + " x " + to_string(c.b) + (c.tb ? "^T" : "");
}

int64_t axis_from_end(const Shape& shape, int i) { return shape[shape.rank() - i]; }
int64_t rows_of(const Case& c) { return axis_from_end(c.a, c.ta ? 1 : 2); }
int64_t depth_of(const Case& c) { return axis_from_end(c.a, c.ta ? 2 : 1); }
int64_t cols_of(const Case& c) { return axis_from_end(c.b, c.tb ? 2 : 1); }

Shape out_shape(const Case& c) {
  const int rank = std::max(c.a.rank(), c.b.rank());
  std::vector<int64_t> dims;
  for (int i = rank; i > 2; --i) {
    const int64_t from_a = i <= c.a.rank() ? axis_from_end(c.a, i) : 1,
                  from_b = i <= c.b.rank() ? axis_from_end(c.b, i) : 1;
    dims.push_back(from_a == 1 ? from_b : from_a);
  }
  dims.push_back(rows_of(c));
  dims.push_back(cols_of(c));
  return Shape(std::span<const int64_t>(dims));
}

// The matrix of `shape` that product `index` of the broadcast leading axes of `out` reads, by numpy's rules.
int64_t matrix_index(const Shape& shape, const Shape& out, int64_t index) {
  int64_t matrix = 0, stride = 1;
  for (int i = 3; i <= out.rank(); ++i) {
    const int64_t at = index % axis_from_end(out, i);
    index /= axis_from_end(out, i);
    if (i > shape.rank()) continue;
    if (axis_from_end(shape, i) != 1) matrix += at * stride;
    stride *= axis_from_end(shape, i);
  }
  return matrix;
}

struct Expected {
  std::vector<double> value;
  std::vector<double> magnitude;  // the sum of |a·b|
};

template <class T>
Expected expected(const Case& c, const std::vector<T>& a, const std::vector<T>& b) {
  const Shape out = out_shape(c);
  const int64_t m = rows_of(c), n = cols_of(c), k = depth_of(c);
  Expected e;
  const int64_t products = m * n == 0 ? 0 : out.elements() / (m * n);
  for (int64_t p = 0; p < products; ++p) {
    const T* am = a.data() + matrix_index(c.a, out, p) * m * k;
    const T* bm = b.data() + matrix_index(c.b, out, p) * k * n;
    for (int64_t i = 0; i < m; ++i) {
      for (int64_t j = 0; j < n; ++j) {
        double sum = 0, magnitude = 0;
        for (int64_t d = 0; d < k; ++d) {
          const double term = static_cast<double>(c.ta ? am[d * m + i] : am[i * k + d]) *
                              static_cast<double>(c.tb ? bm[j * k + d] : bm[d * n + j]);
          sum += term;
          magnitude += std::abs(term);
        }
        e.value.push_back(sum);
        e.magnitude.push_back(magnitude);
      }
    }
  }
  return e;
}

// Memory with a margin of known bytes on both sides, the inside filled with 0xFF (NaN as float and double).
class Guarded {
 public:
  explicit Guarded(size_t bytes)
      : bytes_(bytes), memory_(static_cast<unsigned char*>(cpu_backend().allocate(bytes + 2 * kMargin))) {
    std::memset(memory_, 0xA5, bytes + 2 * kMargin);
    std::memset(data(), 0xFF, bytes);
  }
  ~Guarded() { cpu_backend().release(memory_); }
  Guarded(const Guarded&) = delete;
  Guarded& operator=(const Guarded&) = delete;

  void* data() const { return memory_ + kMargin; }
  bool intact() const {
    const auto is_margin = [](unsigned char byte) { return byte == 0xA5; };
    return std::all_of(memory_, memory_ + kMargin, is_margin) &&
           std::all_of(memory_ + kMargin + bytes_, memory_ + 2 * kMargin + bytes_, is_margin);
  }

 private:
  static constexpr size_t kMargin = 1024;
  size_t bytes_;
  unsigned char* memory_;
};

enum class Order { forward, backward, pool };

const ir::OpDef& matmul_record() {
  static const ir::OpDef def = {.name = "matmul"};
  return def;
}

const cpu::KernelTable& kernels() {
  static const cpu::KernelTable table = [] {
    cpu::KernelTable t;
    cpu::register_matmul(t);
    return t;
  }();
  return table;
}

template <class T>
std::vector<T> run(const std::string& variant, const Case& c, const std::vector<T>& a, const std::vector<T>& b,
                   Order order = Order::pool, int threads = 1) {
  ir::Attrs attrs;
  if (c.ta) attrs.set("ta", true);
  if (c.tb) attrs.set("tb", true);
  const std::vector<TensorType> in = {{kDTypeOf<T>, c.a}, {kDTypeOf<T>, c.b}}, out = {{kDTypeOf<T>, out_shape(c)}};
  const KernelQuery query = {matmul_record(), attrs, in, out};
  const auto kernel =
      std::find_if(kernels().begin(), kernels().end(), [&](const Kernel& k) { return k.variant == variant; });
  EXPECT_TRUE(kernel != kernels().end() && kernel->accepts(query));
  const PreparedKernel prepared = kernel->prepare(query);
  const Guarded result(out[0].bytes()), workspace(prepared.workspace_bytes);
  void* const buffers[] = {const_cast<T*>(a.data()), const_cast<T*>(b.data()), result.data(), workspace.data()};
  if (order == Order::pool) {
    const BoundLaunch launch = {&prepared, buffers, nullptr};
    run_on_cpu({&launch, 1}, threads);
  } else {
    for (const CpuPhase& phase : prepared.phases) {
      for (int i = 0; i < phase.parts; ++i) {
        phase.fn({buffers, prepared.params.get()}, order == Order::forward ? i : phase.parts - 1 - i, phase.parts);
      }
    }
  }
  EXPECT_TRUE(result.intact()) << name_of(c);
  EXPECT_TRUE(workspace.intact()) << name_of(c);
  EXPECT_EQ(prepared.phases.empty(), out[0].bytes() == 0);
  const T* elements = static_cast<const T*>(result.data());
  return std::vector<T>(elements, elements + out[0].shape.elements());
}

// Whole numbers from -4 to 4: every product and sum here is exact, in any order.
template <class T>
std::vector<T> whole_numbers(const Shape& shape, uint32_t seed) {
  std::minstd_rand random(seed);
  std::vector<T> values(static_cast<size_t>(shape.elements()));
  for (T& value : values) value = static_cast<T>(static_cast<int>(random() % 9) - 4);
  return values;
}

template <class T>
std::vector<T> fractions(const Shape& shape, uint32_t seed) {
  std::minstd_rand random(seed);
  std::uniform_real_distribution<T> uniform(-1, 1);
  std::vector<T> values(static_cast<size_t>(shape.elements()));
  for (T& value : values) value = uniform(random);
  return values;
}

template <class T>
void expect_exact(const std::string& variant, const Case& c) {
  const auto a = whole_numbers<T>(c.a, 1), b = whole_numbers<T>(c.b, 2);
  const auto got = run(variant, c, a, b, Order::forward);
  const std::vector<double> want = expected(c, a, b).value;
  ASSERT_EQ(got.size(), want.size()) << name_of(c);
  for (size_t i = 0; i < got.size(); ++i)
    ASSERT_EQ(static_cast<double>(got[i]), want[i]) << variant << " " << name_of(c) << " at " << i;
}

// Rounding errors of a sum of K terms add up like a random walk: with high probability they stay below λ·√K·u·Σ|a·b|
// for a small λ (Higham and Mary 2019, "A new approach to probabilistic rounding error analysis"); λ = 4, u = eps / 2.
// FLT_MIN for what flushing subnormals drops.
template <class T>
void expect_close(const std::string& variant, const Case& c) {
  const auto a = fractions<T>(c.a, 3), b = fractions<T>(c.b, 4);
  const auto got = run(variant, c, a, b);
  const Expected want = expected(c, a, b);
  const double unit = sizeof(T) == 4 ? FLT_EPSILON / 2 : DBL_EPSILON / 2;
  // The double reference rounds as the f64 kernel does: both errors count.
  const double bound = (sizeof(T) == 4 ? 4 : 8) * std::sqrt(static_cast<double>(depth_of(c)) + 1) * unit;
  ASSERT_EQ(got.size(), want.value.size()) << name_of(c);
  for (size_t i = 0; i < got.size(); ++i) {
    ASSERT_NEAR(static_cast<double>(got[i]), want.value[i], bound * want.magnitude[i] + FLT_MIN)
        << variant << " " << name_of(c) << " at " << i;
  }
}

std::vector<Case> matrices() {
  std::vector<Case> cases;
  for (const int64_t m : {0, 1, 2, 6, 7, 14, 15, 29, 65}) {
    for (const int64_t n : {0, 1, 3, 8, 16, 17, 32, 33, 70}) {
      for (const int64_t k : {0, 1, 2, 5, 31, 64, 385}) {
        for (const bool ta : {false, true}) {
          for (const bool tb : {false, true}) {
            cases.push_back({ta ? Shape{k, m} : Shape{m, k}, tb ? Shape{n, k} : Shape{k, n}, ta, tb});
          }
        }
      }
    }
  }
  return cases;
}

// Enough work for several parts, tiles and blocks; odd on every side.
std::vector<Case> large() {
  return {{{157, 413}, {413, 299}},
          {{413, 157}, {413, 299}, true, false},
          {{157, 413}, {299, 413}, false, true},
          {{413, 157}, {299, 413}, true, true},
          {{64, 784}, {256, 784}, false, true},
          {{64, 256}, {64, 784}, true, false},
          {{3, 2000}, {2000, 517}},
          {{1, 784}, {256, 784}, false, true},
          {{517, 900}, {900, 1}},
          {{40, 33, 70}, {40, 70, 49}}};
}

std::vector<Case> batches() {
  std::vector<Case> cases;
  for (const bool ta : {false, true}) {
    for (const bool tb : {false, true}) {
      const auto add = [&](std::vector<int64_t> a_lead, std::vector<int64_t> b_lead) {
        for (const int64_t m : {5, 20}) {
          const int64_t k = 33, n = 19;
          for (const int64_t extent : {ta ? k : m, ta ? m : k}) a_lead.push_back(extent);
          for (const int64_t extent : {tb ? n : k, tb ? k : n}) b_lead.push_back(extent);
          cases.push_back({Shape(std::span<const int64_t>(a_lead)), Shape(std::span<const int64_t>(b_lead)), ta, tb});
          a_lead.resize(a_lead.size() - 2);
          b_lead.resize(b_lead.size() - 2);
        }
      };
      add({3}, {3});
      add({3}, {});
      add({}, {3});
      add({1}, {3});
      add({3}, {1});
      add({2, 1}, {1, 3});
      add({2, 3}, {3});
      add({2, 3}, {2, 1});
      add({4, 1, 2}, {3, 1});
      add({0}, {1});
      add({2, 0}, {});
      add({1, 1}, {1});
    }
  }
  return cases;
}

TEST(Matmul, ReferenceIsExactOnWholeNumbers) {
  for (const auto& cases : {matrices(), batches()}) {
    for (const Case& c : cases) {
      ASSERT_NO_FATAL_FAILURE(expect_exact<float>("reference", c));
      ASSERT_NO_FATAL_FAILURE(expect_exact<double>("reference", c));
    }
  }
}

TEST(Matmul, PackedIsExactOnWholeNumbers) {
  on_every_target([](const char*) {
    for (const auto& cases : {matrices(), batches(), large()}) {
      for (const Case& c : cases) ASSERT_NO_FATAL_FAILURE(expect_exact<float>("packed", c));
    }
  });
}

TEST(Matmul, ErrorsStayWithinTheirBound) {
  for (const auto& cases : {large(), batches()}) {
    for (const Case& c : cases) {
      ASSERT_NO_FATAL_FAILURE(expect_close<float>("reference", c));
      ASSERT_NO_FATAL_FAILURE(expect_close<double>("reference", c));
    }
  }
  on_every_target([](const char*) {
    for (const auto& cases : {large(), batches()}) {
      for (const Case& c : cases) ASSERT_NO_FATAL_FAILURE(expect_close<float>("packed", c));
    }
  });
}

template <class T>
bool same_bits(const std::vector<T>& a, const std::vector<T>& b) {
  return a.size() == b.size() && (a.empty() || std::memcmp(a.data(), b.data(), a.size() * sizeof(T)) == 0);
}

template <class T>
void expect_same_for_any_threads(const std::string& variant, const Case& c) {
  const auto a = fractions<T>(c.a, 5), b = fractions<T>(c.b, 6);
  const auto one = run(variant, c, a, b, Order::pool, 1);
  for (const int threads : {2, 8})
    EXPECT_TRUE(same_bits(run(variant, c, a, b, Order::pool, threads), one)) << name_of(c);
  EXPECT_TRUE(same_bits(run(variant, c, a, b, Order::backward), one)) << name_of(c);
}

TEST(Matmul, BitsDependOnNeitherThreadsNorPartOrder) {
  for (const auto& cases : {large(), batches()}) {
    for (const Case& c : cases) {
      expect_same_for_any_threads<float>("packed", c);
      expect_same_for_any_threads<float>("reference", c);
      expect_same_for_any_threads<double>("reference", c);
    }
  }
}

// A row of A or a column of B that holds NaN or infinity marks that row or column of C and nothing else.
TEST(Matmul, NonFiniteValuesStayInTheirRowOrColumn) {
  on_every_target([](const char*) {
    for (const float special : {std::numeric_limits<float>::quiet_NaN(), std::numeric_limits<float>::infinity()}) {
      for (const int flags : {0, 1, 2, 3}) {
        const bool ta = (flags & 1) != 0, tb = (flags & 2) != 0;
        const int64_t m = 17, k = 21, n = 37, row = 16, col = 35, at = 20;
        const Case c = {ta ? Shape{k, m} : Shape{m, k}, tb ? Shape{n, k} : Shape{k, n}, ta, tb};
        for (const std::string variant : {"packed", "reference"}) {
          auto a = whole_numbers<float>(c.a, 7), b = whole_numbers<float>(c.b, 8);
          a[static_cast<size_t>(ta ? at * m + row : row * k + at)] = special;
          b[static_cast<size_t>(tb ? col * k + at : at * n + col)] = special;
          const std::vector<double> want = expected(c, a, b).value;
          const auto got = run(variant, c, a, b);
          for (size_t i = 0; i < got.size(); ++i) {
            const auto value = static_cast<double>(got[i]);
            ASSERT_TRUE(std::isnan(want[i]) ? std::isnan(value) : value == want[i])
                << variant << " " << name_of(c) << " at " << i;
            const bool marked = static_cast<int64_t>(i) / n == row || static_cast<int64_t>(i) % n == col;
            ASSERT_TRUE(marked || std::isfinite(value));
          }
        }
      }
    }
  });
}

TEST(Matmul, PackedIsForF32Only) {
  const std::vector<TensorType> in = {{f64, {2, 2}}, {f64, {2, 2}}};
  const ir::Attrs attrs;
  const KernelQuery query = {matmul_record(), attrs, in, {in.data(), 1}};
  const Kernel* chosen = choose(kernels(), query);
  ASSERT_NE(chosen, nullptr);
  EXPECT_STREQ(chosen->variant, "reference");
}

TEST(Matmul, LargeProductsArePacked) {
  const std::vector<TensorType> in = {{f32, {64, 128}}, {f32, {128, 256}}}, out = {{f32, {64, 256}}};
  const ir::Attrs attrs;
  const Kernel* chosen = choose(kernels(), {matmul_record(), attrs, in, out});
  ASSERT_NE(chosen, nullptr);
  EXPECT_STREQ(chosen->variant, "packed");
}

TEST(Matmul, NoKernelForIntegers) {
  const std::vector<TensorType> in = {{i32, {2, 2}}, {i32, {2, 2}}};
  const ir::Attrs attrs;
  EXPECT_EQ(choose(kernels(), {matmul_record(), attrs, in, {in.data(), 1}}), nullptr);
}

}  // namespace
}  // namespace aicf::backend
