// Case O1: the same products give the same bits at 1, 2 and 8 threads, run after run, while other threads keep the
// machine and the pool busy.
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cmath>
#include <cstring>
#include <random>
#include <thread>
#include <vector>

#include "backend/cpu/kernels.h"

namespace aicf::backend {
namespace {

// Forward and weight gradients of a three-layer perceptron, as a list of matmuls each reading earlier results.
class Chain {
 public:
  Chain() {
    const int x = add_values({64, 256}), w1 = add_values({192, 256}), w2 = add_values({128, 192});
    const int w3 = add_values({10, 128});
    const int h1 = multiply(x, w1, false, true), h2 = multiply(h1, w2, false, true);
    const int y = multiply(h2, w3, false, true);
    const int dh2 = multiply(y, w3, false, false), dh1 = multiply(dh2, w2, false, false);
    multiply(y, h2, true, false);
    multiply(dh2, h1, true, false);
    multiply(dh1, x, true, false);
    bind();
  }
  ~Chain() {
    for (const Buffer& buffer : buffers_) cpu_backend().release(buffer.data);
  }
  Chain(const Chain&) = delete;
  Chain& operator=(const Chain&) = delete;

  void run(int threads) {
    for (const int result : results_) std::memset(buffer(result).data, 0xFF, buffer(result).type.bytes());
    run_on_cpu(launches_, threads);
  }
  std::vector<float> results() const {
    std::vector<float> all;
    for (const int result : results_) {
      const Buffer& b = buffers_[static_cast<size_t>(result)];
      const auto* data = static_cast<const float*>(b.data);
      all.insert(all.end(), data, data + b.type.shape.elements());
    }
    return all;
  }
  int most_parts() const {
    int most = 0;
    for (const Step& step : steps_) {
      for (const CpuPhase& phase : step.kernel.phases) most = std::max(most, phase.parts);
    }
    return most;
  }

 private:
  struct Buffer {
    TensorType type;
    void* data = nullptr;
  };
  struct Step {
    PreparedKernel kernel;
    std::vector<void*> buffers;
  };

  Buffer& buffer(int index) { return buffers_[static_cast<size_t>(index)]; }

  int add_buffer(TensorType type) {
    buffers_.push_back({type, cpu_backend().allocate(type.bytes())});
    return static_cast<int>(buffers_.size()) - 1;
  }

  // Values whose products neither grow nor vanish along the chain.
  int add_values(const Shape& shape) {
    const int index = add_buffer({f32, shape});
    std::minstd_rand random(static_cast<uint32_t>(index) + 1);
    const float limit = std::sqrt(3.0f / static_cast<float>(shape[1]));
    std::uniform_real_distribution<float> uniform(-limit, limit);
    auto* data = static_cast<float*>(buffer(index).data);
    for (int64_t i = 0; i < shape.elements(); ++i) data[i] = uniform(random);
    return index;
  }

  int multiply(int a, int b, bool ta, bool tb) {
    static const ir::OpDef def = {.name = "matmul"};
    static const cpu::KernelTable table = [] {
      cpu::KernelTable t;
      cpu::register_matmul(t);
      return t;
    }();
    const std::vector<TensorType> in = {buffer(a).type, buffer(b).type};
    const std::vector<TensorType> out = {{f32, {in[0].shape[ta ? 1 : 0], in[1].shape[tb ? 0 : 1]}}};
    const ir::Attrs attrs = {{"ta", ta}, {"tb", tb}};
    const KernelQuery query = {def, attrs, in, out};
    const int result = add_buffer(out[0]);
    Step step = {choose(table, query)->prepare(query), {buffer(a).data, buffer(b).data, buffer(result).data}};
    if (step.kernel.workspace_bytes > 0) {
      step.buffers.push_back(buffer(add_buffer({u8, {static_cast<int64_t>(step.kernel.workspace_bytes)}})).data);
    }
    steps_.push_back(std::move(step));
    results_.push_back(result);
    return result;
  }

  void bind() {
    for (const Step& step : steps_) launches_.push_back({&step.kernel, step.buffers.data(), nullptr});
  }

  std::vector<Buffer> buffers_;
  std::vector<Step> steps_;
  std::vector<int> results_;
  std::vector<BoundLaunch> launches_;
};

// One thread computes without pause; another calls the pool, so that some runs find it taken.
class Load {
 public:
  Load() : threads_{std::thread([this] { compute(); }), std::thread([this] { call_pool(); })} {}
  ~Load() {
    stop_ = true;
    for (std::thread& thread : threads_) thread.join();
  }
  Load(const Load&) = delete;
  Load& operator=(const Load&) = delete;

 private:
  void compute() {
    for (volatile double x = 1; !stop_;) x = std::sqrt(x + 1);
  }
  void call_pool() {
    Chain chain;
    while (!stop_) {
      chain.run(3);
      std::this_thread::sleep_for(std::chrono::microseconds(500));
    }
  }

  std::atomic<bool> stop_{false};
  std::thread threads_[2];
};

TEST(O1Threads, BitsAreTheSameAtAnyThreadCountUnderLoad) {
  Chain chain;
  ASSERT_GE(chain.most_parts(), 8);
  chain.run(1);
  const std::vector<float> want = chain.results();
  for (const float value : want) ASSERT_TRUE(std::isfinite(value));
  const Load load;
  for (int run = 0; run < 200; ++run) {
    for (const int threads : {2, 8}) {
      chain.run(threads);
      const std::vector<float> got = chain.results();
      ASSERT_EQ(std::memcmp(got.data(), want.data(), want.size() * sizeof(float)), 0)
          << "run " << run << " at " << threads << " threads";
    }
  }
}

}  // namespace
}  // namespace aicf::backend
