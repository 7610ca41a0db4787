// A step allocates nothing on the host: global operator new is counted.
#include <gtest/gtest.h>

#include <atomic>
#include <cstdlib>
#include <new>

#include "support/programs.h"

namespace {
std::atomic<bool> counting{false};
std::atomic<long> allocations{0};
void* counted(size_t size) {
  if (counting.load(std::memory_order_relaxed)) allocations.fetch_add(1, std::memory_order_relaxed);
  if (void* p = std::malloc(size ? size : 1)) return p;
  throw std::bad_alloc();
}
}  // namespace

void* operator new(size_t size) { return counted(size); }
void* operator new[](size_t size) { return counted(size); }
void operator delete(void* p) noexcept { std::free(p); }
void operator delete[](void* p) noexcept { std::free(p); }
void operator delete(void* p, size_t) noexcept { std::free(p); }
void operator delete[](void* p, size_t) noexcept { std::free(p); }

namespace aicf {
namespace {

// The demo's network: 784-256-128-10, batch 64.
TEST(NoAllocation, AStepOfTheDemosNetwork) {
  for (int threads : {1, 2}) {
    Model m(0);
    const Value x = m.input("x", {f32, {64, 784}}), y = m.input("y", {i32, {64}});
    Value h = relu(m.add(nn::Linear(256), x, "fc1"));
    h = relu(m.add(nn::Linear(128), h, "fc2"));
    const Value logits = m.add(nn::Linear(10), h, "fc3");
    Program p = compile(m, {.loss = cross_entropy(logits, y), .optimizer = optim::AdamW{}, .threads = threads});
    const Tensor images(TensorType{f32, {64, 784}}), labels(TensorType{i32, {64}});
    p.step({{"x", images}, {"y", labels}});  // the first step starts the threads and makes the first result block
    double loss = 0;
    counting = true;
    allocations = 0;
    for (int i = 0; i < 10; ++i) loss += p.step({{"x", images}, {"y", labels}}).scalar("loss");
    counting = false;
    EXPECT_EQ(allocations.load(), 0) << threads << " threads";
    EXPECT_GT(loss, 0);
  }
}

}  // namespace
}  // namespace aicf
