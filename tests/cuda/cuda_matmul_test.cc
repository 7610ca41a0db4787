// matmul on CUDA, by the own kernel and by the library, against sums in double: every dtype, transposes, batches, odd
// sizes; the same bits each time; guards.
#include <gtest/gtest.h>

#include <algorithm>
#include <cfloat>
#include <cmath>
#include <cstring>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "aicf/error.h"
#include "backend/api.h"
#include "ops/defs.h"

namespace aicf::backend {
namespace {

Backend& device() { return find("cuda"); }

struct Case {
  Shape a, b;
  bool ta = false, tb = false;
};

struct Types {
  DType in = f32, out = f32;
  bool tf32 = false;
};
constexpr Types kTypes[] = {{f32, f32}, {f32, f32, true}, {bf16, bf16}, {bf16, f32}, {f16, f16}, {f16, f32}};

std::string text_of(const Case& c, const Types& t) {
  return to_string(c.a) + (c.ta ? "^T" : "") + " x " + to_string(c.b) + (c.tb ? "^T" : "") + " " +
         std::string(name_of(t.in)) + (t.tf32 ? " as tf32" : "") + " to " + std::string(name_of(t.out));
}

ir::Attrs attrs_of(const Case& c, const Types& t) {
  ir::Attrs attrs;
  if (c.ta) attrs.set("ta", true);
  if (c.tb) attrs.set("tb", true);
  if (t.tf32) attrs.set("compute", std::string("tf32"));
  if (t.in != t.out) attrs.set("out", t.out);
  return attrs;
}

const Kernel* named(const char* way, const KernelQuery& query) {
  for (const Kernel& kernel : device().kernels()) {
    if (std::string_view(kernel.op) == "matmul" && std::string_view(kernel.variant) == way && kernel.accepts(query)) {
      return &kernel;
    }
  }
  return nullptr;
}

// Those that run it: the library does nothing for sums of nothing.
std::vector<const char*> ways_of(const Case& c) {
  if (c.a.elements() == 0 || c.b.elements() == 0) return {"mma"};
  return {"mma", "cublasLt"};
}

int64_t from_end(const Shape& shape, int i) { return i <= shape.rank() ? shape[shape.rank() - i] : 1; }

double rounded(double v, DType dtype) {
  unsigned char bits[8];
  set_element(dtype, bits, 0, v);
  return element_as_double(dtype, bits, 0);
}

// One matmul ready to run on the device, its buffers between guards.
class DeviceMatmul {
 public:
  // `way`: the kernel of that name; null: the one that is chosen.
  DeviceMatmul(const Case& c, const Types& t, Tuning tuning = {}, const char* way = nullptr)
      : case_(c), attrs_(attrs_of(c, t)) {
    in_ = {{t.in, c.a}, {t.in, c.b}};
    out_ = ops::matmul_def.infer(ir::InferCtx{ops::matmul_def, in_, attrs_, nullptr});
    const KernelQuery query = {ops::matmul_def, attrs_, in_, out_, nullptr, tuning};
    const Kernel* kernel = way == nullptr ? choose(device().kernels(), query) : named(way, query);
    if (kernel == nullptr) throw Error("no kernel for " + text_of(c, t));
    prepared_ = kernel->prepare(query);
    PreparedKernel* all[] = {&prepared_};
    device().link(all);
    queue_ = device().make_queue();
    for (const TensorType& type : {in_[0], in_[1], out_[0]}) add_buffer(type.bytes());
    add_buffer(prepared_.workspace_bytes);
  }
  ~DeviceMatmul() {
    queue_.reset();
    for (void* memory : memory_) device().release(memory);
  }
  DeviceMatmul(const DeviceMatmul&) = delete;
  DeviceMatmul& operator=(const DeviceMatmul&) = delete;

  const std::string& variant() const { return prepared_.variant; }
  const TensorType& out() const { return out_[0]; }
  bool empty() const { return prepared_.empty(); }

  void feed(const Tensor& a, const Tensor& b) {
    queue_->upload(buffers_[0], a.data(), a.bytes());
    queue_->upload(buffers_[1], b.data(), b.bytes());
  }

  // The result and the workspace hold NaN before; the guards are looked at after.
  Tensor operator()() {
    const std::vector<unsigned char> poison(std::max(bytes_[2], bytes_[3]), 0xff);
    queue_->upload(buffers_[2], poison.data(), bytes_[2]);
    queue_->upload(buffers_[3], poison.data(), bytes_[3]);
    if (!prepared_.empty()) {
      const BoundLaunch launch = {&prepared_, buffers_.data(), nullptr};
      queue_->run({&launch, 1}, 1);
      queue_->wait();
    }
    for (size_t i = 0; i < memory_.size(); ++i) EXPECT_TRUE(intact(i)) << "wrote outside buffer " << i;
    Tensor result(out_[0]);
    queue_->download(result.data(), buffers_[2], result.bytes());
    return result;
  }

 private:
  static constexpr size_t kMargin = 4096;

  static size_t whole(size_t bytes) { return bytes + 2 * kMargin; }

  void add_buffer(size_t bytes) {
    memory_.push_back(device().allocate(whole(bytes)));
    bytes_.push_back(bytes);
    buffers_.push_back(static_cast<char*>(memory_.back()) + kMargin);
    const std::vector<unsigned char> pattern(whole(bytes), 0xa5);
    queue_->upload(memory_.back(), pattern.data(), pattern.size());
  }

  bool intact(size_t i) {
    std::vector<unsigned char> margin(kMargin);
    const auto holds = [&](void* at) {
      queue_->download(margin.data(), at, kMargin);
      return std::all_of(margin.begin(), margin.end(), [](unsigned char byte) { return byte == 0xa5; });
    };
    return holds(memory_[i]) && holds(static_cast<char*>(buffers_[i]) + bytes_[i]);
  }

  Case case_;
  ir::Attrs attrs_;
  std::vector<TensorType> in_, out_;
  PreparedKernel prepared_;
  std::unique_ptr<Queue> queue_;
  std::vector<void*> memory_, buffers_;
  std::vector<size_t> bytes_;
};

// Whole numbers from -4 to 4: exact in every dtype, and so is every f32 sum here.
Tensor whole_numbers(const TensorType& type, uint32_t seed) {
  std::minstd_rand random(seed);
  Tensor tensor(type);
  for (int64_t i = 0; i < tensor.elements(); ++i) {
    set_element(type.dtype, tensor.data(), i, static_cast<double>(random() % 9) - 4);
  }
  return tensor;
}

Tensor fractions(const TensorType& type, uint32_t seed) {
  std::minstd_rand random(seed);
  std::uniform_real_distribution<double> uniform(-1, 1);
  Tensor tensor(type);
  for (int64_t i = 0; i < tensor.elements(); ++i) set_element(type.dtype, tensor.data(), i, uniform(random));
  return tensor;
}

struct Expected {
  std::vector<double> value, magnitude;  // the sum of a·b, and of |a·b|
};

// By numpy's rules, written apart from the kernel's own batching.
Expected expected(const Case& c, const Tensor& a, const Tensor& b, const Shape& out) {
  const int64_t m = from_end(out, 2), n = from_end(out, 1), k = from_end(c.a, c.ta ? 2 : 1);
  const std::vector<double> x = a.to_doubles(), y = b.to_doubles();
  const auto matrix = [&](const Shape& shape, int64_t index) {
    int64_t at = 0, stride = 1;
    for (int i = 3; i <= out.rank(); ++i) {
      const int64_t here = index % from_end(out, i);
      index /= from_end(out, i);
      if (from_end(shape, i) != 1) at += here * stride;
      stride *= from_end(shape, i);
    }
    return at;
  };
  Expected e;
  const int64_t products = m * n == 0 ? 0 : out.elements() / (m * n);
  for (int64_t p = 0; p < products; ++p) {
    const double* am = x.data() + matrix(c.a, p) * m * k;
    const double* bm = y.data() + matrix(c.b, p) * k * n;
    for (int64_t i = 0; i < m; ++i) {
      for (int64_t j = 0; j < n; ++j) {
        double sum = 0, magnitude = 0;
        for (int64_t d = 0; d < k; ++d) {
          const double term = (c.ta ? am[d * m + i] : am[i * k + d]) * (c.tb ? bm[j * k + d] : bm[d * n + j]);
          sum += term;
          magnitude += std::fabs(term);
        }
        e.value.push_back(sum);
        e.magnitude.push_back(magnitude);
      }
    }
  }
  return e;
}

// The f32 sums are exact, so the result is their one rounding.
void expect_exact(const Case& c, const Types& t, DeviceMatmul& run) {
  SCOPED_TRACE(text_of(c, t));
  const Tensor a = whole_numbers({t.in, c.a}, 1), b = whole_numbers({t.in, c.b}, 2);
  run.feed(a, b);
  const Tensor got = run();
  const Expected want = expected(c, a, b, run.out().shape);
  EXPECT_EQ(run.empty(), got.elements() == 0);
  for (int64_t i = 0; i < got.elements(); ++i) {
    ASSERT_EQ(got.at(i), rounded(want.value[static_cast<size_t>(i)], t.out)) << run.variant() << " at " << i;
  }
}

void expect_exact(const Case& c, const Types& t) {
  for (const char* way : ways_of(c)) {
    DeviceMatmul run(c, t, {}, way);
    ASSERT_NO_FATAL_FAILURE(expect_exact(c, t, run));
  }
}

void expect_exact(const Case& c, const Types& t, Tuning tuning) {
  DeviceMatmul run(c, t, tuning);
  expect_exact(c, t, run);
}

// λ·√K·u·Σ|a·b| with λ = 4, u = 2^-24, as for the CPU's kernels. Tensor cores cut off, rather than round, what they
// align away while adding about eight products: an error that may grow with K/8, each at most 2u. tf32: the operands
// lose what is below 2^-10 of them. Then the result's own rounding.
void expect_close(const Case& c, const Types& t, const char* way) {
  SCOPED_TRACE(text_of(c, t));
  DeviceMatmul run(c, t, {}, way);
  const Tensor a = fractions({t.in, c.a}, 3), b = fractions({t.in, c.b}, 4);
  run.feed(a, b);
  const Tensor got = run();
  const Expected want = expected(c, a, b, run.out().shape);
  const auto k = static_cast<double>(from_end(c.a, c.ta ? 2 : 1));
  const bool tensor_cores = t.tf32 || t.in != f32;
  const double bound =
      (4 * std::sqrt(k + 1) + (tensor_cores ? k / 4 : 0)) * 0x1p-24 + (t.tf32 ? 2 * 0x1p-10 + 0x1p-20 : 0);
  const double last = t.out == bf16 ? 0x1p-8 : t.out == f16 ? 0x1p-11 : 0x1p-24;
  const double least = t.out == f16 ? 0x1p-25 : FLT_MIN;
  for (int64_t i = 0; i < got.elements(); ++i) {
    const auto at = static_cast<size_t>(i);
    ASSERT_NEAR(got.at(i), want.value[at],
                bound * want.magnitude[at] * (1 + last) + last * std::fabs(want.value[at]) + least)
        << run.variant() << " at " << i;
  }
}

void expect_close(const Case& c, const Types& t) {
  for (const char* way : ways_of(c)) ASSERT_NO_FATAL_FAILURE(expect_close(c, t, way));
}

std::vector<Case> transposes(int64_t m, int64_t n, int64_t k) {
  std::vector<Case> cases;
  for (const bool ta : {false, true}) {
    for (const bool tb : {false, true}) {
      cases.push_back({ta ? Shape{k, m} : Shape{m, k}, tb ? Shape{n, k} : Shape{k, n}, ta, tb});
    }
  }
  return cases;
}

std::vector<Case> batches() {
  std::vector<Case> cases = {{{3, 5, 7}, {3, 7, 9}},        {{3, 5, 7}, {7, 9}},
                             {{5, 7}, {3, 7, 9}},           {{1, 5, 7}, {3, 7, 9}},
                             {{2, 1, 5, 8}, {1, 3, 8, 16}}, {{2, 3, 5, 8}, {3, 8, 16}},
                             {{2, 3, 5, 8}, {2, 1, 8, 16}}, {{4, 1, 2, 5, 3}, {3, 1, 3, 4}},
                             {{0, 5, 7}, {7, 9}},           {{16, 64, 32}, {16, 32, 64}}};
  for (const Case& c : std::vector<Case>{{{3, 7, 5}, {3, 7, 9}, true, false},
                                         {{3, 5, 7}, {3, 9, 7}, false, true},
                                         {{3, 7, 5}, {3, 9, 7}, true, true},
                                         {{2, 3, 7, 5}, {7, 9}, true, false},
                                         {{2, 3, 5, 7}, {9, 7}, false, true},
                                         {{7, 5}, {2, 3, 9, 7}, true, true}}) {
    cases.push_back(c);
  }
  return cases;
}

TEST(CudaMatmul, IsExactOnWholeNumbers) {
  for (const Types& t : kTypes) {
    for (const auto& [m, n, k] : std::vector<std::array<int64_t, 3>>{{1, 1, 1},
                                                                     {1, 17, 5},
                                                                     {33, 1, 7},
                                                                     {7, 9, 1},
                                                                     {8, 8, 8},
                                                                     {15, 31, 63},
                                                                     {64, 128, 64},
                                                                     {64, 10, 784},
                                                                     {3, 5, 0},
                                                                     {0, 5, 3},
                                                                     {5, 0, 3},
                                                                     {128, 256, 512},
                                                                     {129, 67, 33}}) {
      for (const Case& c : transposes(m, n, k)) ASSERT_NO_FATAL_FAILURE(expect_exact(c, t));
    }
    ASSERT_NO_FATAL_FAILURE(expect_exact({{1000, 513}, {513, 37}}, t));
    for (const Case& c : batches()) ASSERT_NO_FATAL_FAILURE(expect_exact(c, t));
  }
}

TEST(CudaMatmul, ErrorsStayWithinTheirBound) {
  for (const Types& t : kTypes) {
    for (const Case& c : transposes(1000, 513, 37)) ASSERT_NO_FATAL_FAILURE(expect_close(c, t));
    for (const Case& c : transposes(61, 47, 2000)) ASSERT_NO_FATAL_FAILURE(expect_close(c, t));
    for (const Case& c : transposes(256, 128, 512)) ASSERT_NO_FATAL_FAILURE(expect_close(c, t));
    for (const Case& c : batches()) ASSERT_NO_FATAL_FAILURE(expect_close(c, t));
  }
}

// Long inner axes and small results are what a library splits.
TEST(CudaMatmul, TwentyRunsGiveTheSameBits) {
  double budget = 20;
  for (const Types& t : kTypes) {
    for (const Case& c : std::vector<Case>{{{64, 16384}, {16384, 64}},
                                           {{8, 30000}, {30000, 8}},
                                           {{4096, 64}, {4096, 128}, true, false},
                                           {{513, 1000}, {1000, 511}}}) {
      for (const char* way : {"mma", "cublasLt", "measured"}) {
        SCOPED_TRACE(text_of(c, t) + " " + way);
        const bool measure = std::string_view(way) == "measured";
        DeviceMatmul run(c, t, {measure, &budget}, measure ? nullptr : way);
        run.feed(fractions({t.in, c.a}, 5), fractions({t.in, c.b}, 6));
        const Tensor first = run();
        for (int i = 1; i < 20; ++i) ASSERT_TRUE(run() == first) << run.variant() << ", run " << i;
      }
    }
  }
}

TEST(CudaMatmul, MeasuredChoicesAreRightAndStay) {
  double budget = 10;
  const Tuning tuning = {true, &budget};
  for (const Types& t : kTypes) {
    const Case c = {{256, 300}, {300, 200}};
    ASSERT_NO_FATAL_FAILURE(expect_exact(c, t, tuning));
    EXPECT_EQ(DeviceMatmul(c, t, tuning).variant(), DeviceMatmul(c, t, tuning).variant());
  }
  EXPECT_LT(budget, 10);
}

TEST(CudaMatmul, WithoutTimeLeftTheEstimateIsTaken) {
  double budget = 0;
  ASSERT_NO_FATAL_FAILURE(expect_exact({{96, 80}, {80, 72}}, {bf16, bf16}, {true, &budget}));
}

TEST(CudaMatmul, TakesNoOtherOperands) {
  const auto accepts = [](std::vector<TensorType> in, TensorType out, const ir::Attrs& attrs = {}) {
    return choose(device().kernels(), {ops::matmul_def, attrs, in, {&out, 1}}) != nullptr;
  };
  EXPECT_TRUE(accepts({{f32, {2, 2}}, {f32, {2, 2}}}, {f32, {2, 2}}));
  EXPECT_FALSE(accepts({{f64, {2, 2}}, {f64, {2, 2}}}, {f64, {2, 2}}));
  EXPECT_FALSE(accepts({{f32, {2, 2}}, {bf16, {2, 2}}}, {f32, {2, 2}}, {{"compute", std::string("bf16")}}));
  EXPECT_FALSE(accepts({{f32, {2, 2}}, {f32, {2, 2}}}, {f32, {2, 2}}, {{"compute", std::string("bf16")}}));
}

}  // namespace
}  // namespace aicf::backend
