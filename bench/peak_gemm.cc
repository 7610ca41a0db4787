// The f32 multiply-add peak of this machine, measured beside the GEMM that is compared with it.
#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <vector>

#include "backend/api.h"
#include "backend/cpu/gemm.h"
#include "base/thread_pool.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "../bench/peak_gemm.cc"
#include "hwy/foreach_target.h"
#include "hwy/highway.h"

HWY_BEFORE_NAMESPACE();
namespace aicf::peak {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

// Twelve independent chains of multiply-adds in registers, each from its own start (equal ones would be computed once).
// Returns the floating-point operations done.
double multiply_adds(int64_t steps, float* out) {
  const hn::ScalableTag<float> d;
  const auto m = hn::Set(d, out[12]), c = hn::Set(d, out[13]);
  auto s0 = hn::Set(d, out[0]), s1 = hn::Set(d, out[1]), s2 = hn::Set(d, out[2]), s3 = hn::Set(d, out[3]);
  auto s4 = hn::Set(d, out[4]), s5 = hn::Set(d, out[5]), s6 = hn::Set(d, out[6]), s7 = hn::Set(d, out[7]);
  auto s8 = hn::Set(d, out[8]), s9 = hn::Set(d, out[9]), s10 = hn::Set(d, out[10]), s11 = hn::Set(d, out[11]);
  for (int64_t i = 0; i < steps; ++i) {
    s0 = hn::MulAdd(s0, m, c), s1 = hn::MulAdd(s1, m, c), s2 = hn::MulAdd(s2, m, c), s3 = hn::MulAdd(s3, m, c);
    s4 = hn::MulAdd(s4, m, c), s5 = hn::MulAdd(s5, m, c), s6 = hn::MulAdd(s6, m, c), s7 = hn::MulAdd(s7, m, c);
    s8 = hn::MulAdd(s8, m, c), s9 = hn::MulAdd(s9, m, c), s10 = hn::MulAdd(s10, m, c), s11 = hn::MulAdd(s11, m, c);
  }
  const auto low = hn::Add(hn::Add(hn::Add(s0, s1), hn::Add(s2, s3)), hn::Add(s4, s5));
  const auto high = hn::Add(hn::Add(hn::Add(s6, s7), hn::Add(s8, s9)), hn::Add(s10, s11));
  hn::StoreU(hn::Add(low, high), d, out);
  return 2.0 * 12 * static_cast<double>(hn::Lanes(d)) * static_cast<double>(steps);
}
const char* target() { return hwy::TargetName(HWY_TARGET); }

}  // namespace HWY_NAMESPACE
}  // namespace aicf::peak
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace aicf::peak {
HWY_EXPORT(multiply_adds);
HWY_EXPORT(target);

namespace {

constexpr int64_t kSteps = 1 << 17;
constexpr int kRounds = 15;

struct Case {
  const char* what;
  int64_t m, n, k;
  bool ta, tb;
};

constexpr Case kCases[] = {
    {"512 cubed", 512, 512, 512, false, false},
    {"512 cubed, b transposed", 512, 512, 512, false, true},
    {"512 cubed, a transposed", 512, 512, 512, true, false},
    {"fc1 forward", 64, 256, 784, false, true},
    {"fc1 weight gradient", 256, 784, 64, true, false},
    {"fc2 forward", 64, 128, 256, false, true},
    {"fc2 input gradient", 64, 256, 128, false, false},
    {"fc2 weight gradient", 128, 256, 64, true, false},
    {"fc3 forward", 64, 10, 128, false, true},
    {"fc3 input gradient", 64, 128, 10, false, false},
    {"fc3 weight gradient", 10, 128, 64, true, false},
    {"batch 1 forward", 1, 256, 784, false, true},
};

double seconds_now() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

struct Spread {
  double best = 0, median = 0;
};
Spread spread(std::vector<double> rates) {
  std::sort(rates.begin(), rates.end());
  return {rates.back(), rates[rates.size() / 2]};
}

void peak_part(void* ctx, int part, int) {
  float out[hwy::kMaxVectorSize / sizeof(float)] = {};
  for (int i = 0; i < 12; ++i) out[i] = static_cast<float>(i + part);
  out[12] = 0.999f;
  out[13] = 0.001f;
  static_cast<double*>(ctx)[part] = HWY_DYNAMIC_DISPATCH(multiply_adds)(kSteps, out);
}

double peak_rate(int threads) {
  double flops[2] = {};
  const double start = seconds_now();
  base::ThreadPool::shared().run(peak_part, flops, threads, threads);
  return (flops[0] + flops[1]) / (seconds_now() - start) / 1e9;
}

// One product with buffers of its own.
class Product {
 public:
  explicit Product(const Case& c) : flops_(2.0 * static_cast<double>(c.m * c.n) * static_cast<double>(c.k)) {
    kernel_ = backend::cpu::prepare_packed_matmul({.m = c.m,
                                                   .n = c.n,
                                                   .k = c.k,
                                                   .ta = c.ta,
                                                   .tb = c.tb,
                                                   .a_matrix = {0},
                                                   .b_matrix = {0},
                                                   .a_matrices = 1,
                                                   .b_matrices = 1});
    for (const int64_t elements :
         {c.m * c.k, c.k * c.n, c.m * c.n, static_cast<int64_t>(kernel_.workspace_bytes / 4)}) {
      auto* data = static_cast<float*>(backend::cpu_backend().allocate(static_cast<size_t>(elements) * sizeof(float)));
      for (int64_t i = 0; i < elements; ++i) data[i] = static_cast<float>(i % 17) * 0.125f - 1;
      buffers_.push_back(data);
    }
  }
  ~Product() {
    for (void* data : buffers_) backend::cpu_backend().release(data);
  }
  Product(const Product&) = delete;
  Product& operator=(const Product&) = delete;

  int parts() const { return kernel_.phases.back().parts; }
  double flops() const { return flops_; }

  double rate(int threads) {
    const int repeats = std::max(1, static_cast<int>(5e7 / flops_));
    const backend::BoundLaunch launch = {&kernel_, buffers_.data(), nullptr};
    const std::vector<backend::BoundLaunch> launches(static_cast<size_t>(repeats), launch);
    const double start = seconds_now();
    backend::run_on_cpu(launches, threads);
    return flops_ * repeats / (seconds_now() - start) / 1e9;
  }

 private:
  backend::PreparedKernel kernel_;
  std::vector<void*> buffers_;
  double flops_;
};

// The best seen on one and on two threads: on a shared machine a single measurement may be far below it.
double best_peak[3] = {};

void measure(const Case& c) {
  Product product(c);
  const std::string shape = fmt::format("{}x{}x{}", c.m, c.n, c.k);
  fmt::print("{:24} {:14} {:3} parts", c.what, shape, product.parts());
  for (const int threads : {1, 2}) {
    product.rate(threads);
    std::vector<double> rates;
    for (int round = 0; round < kRounds; ++round) {
      best_peak[threads] = std::max(best_peak[threads], peak_rate(threads));
      rates.push_back(product.rate(threads));
    }
    const Spread rate = spread(rates);
    fmt::print(" | {} thread{}: {:6.1f} GFLOP/s best, {:6.1f} median, {:8.1f} us, {:3.0f} % of peak {:5.1f}", threads,
               threads == 1 ? " " : "s", rate.best, rate.median, product.flops() / rate.median / 1e3,
               100 * rate.best / best_peak[threads], best_peak[threads]);
  }
  fmt::print("\n");
}

}  // namespace
}  // namespace aicf::peak

int main() {
  using namespace aicf::peak;
  fmt::print("{}, multiply-adds on {}\n", aicf::backend::cpu_backend().description(), HWY_DYNAMIC_DISPATCH(target)());
  for (const int threads : {1, 2}) {
    std::vector<double> rates;
    for (int round = 0; round < kRounds; ++round) rates.push_back(peak_rate(threads));
    const Spread peak = spread(rates);
    best_peak[threads] = peak.best;
    fmt::print("f32 peak, {} thread{}: {:.1f} GFLOP/s best, {:.1f} median\n", threads, threads == 1 ? "" : "s",
               peak.best, peak.median);
  }
  for (const Case& c : kCases) measure(c);
}
#endif
