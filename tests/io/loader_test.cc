// The loader: order, resuming, padding, prefetching, shutdown.
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <limits>
#include <map>
#include <numeric>
#include <set>
#include <stdexcept>
#include <thread>

#include "aicf/data.h"
#include "io/counted_new.h"
#include "io/files.h"
#include "io/shuffle.h"

namespace aicf::tests {
namespace {

// Example i is x = {i, -i} and y = i.
Dataset counted(int64_t n) {
  std::vector<float> x;
  std::vector<int32_t> y;
  for (int64_t i = 0; i < n; ++i) {
    x.push_back(static_cast<float>(i));
    x.push_back(static_cast<float>(-i));
    y.push_back(static_cast<int32_t>(i));
  }
  NamedTensors tensors;
  tensors.emplace_back("x", Tensor::of<float>({n, 2}, x));
  tensors.emplace_back("y", Tensor::of<int32_t>({n}, y));
  return Dataset(std::move(tensors));
}

const Feed& feed(const Batch& batch, const std::string& name) {
  return *std::find_if(batch.feeds.begin(), batch.feeds.end(), [&](const Feed& f) { return f.name == name; });
}

// The batch's labels, after a check that the images belong to them.
std::vector<int32_t> labels(const Batch& batch) {
  const TensorView& y = feed(batch, "y").tensor;
  const auto* label = static_cast<const int32_t*>(y.data);
  const auto* image = static_cast<const float*>(feed(batch, "x").tensor.data);
  for (int64_t i = 0; i < y.type.shape[0]; ++i) {
    EXPECT_EQ(image[2 * i], static_cast<float>(label[i]));
    EXPECT_EQ(image[2 * i + 1], static_cast<float>(-label[i]));
  }
  return {label, label + y.type.shape[0]};
}

std::vector<int32_t> epoch_of(Loader& loader) {
  std::vector<int32_t> all;
  for (bool last = false; !last;) {
    const Batch& batch = loader.next();
    const auto some = labels(batch);
    all.insert(all.end(), some.begin(), some.begin() + batch.count);
    last = batch.last;
  }
  return all;
}

std::vector<int32_t> iota(int32_t n) {
  std::vector<int32_t> values(static_cast<size_t>(n));
  std::iota(values.begin(), values.end(), 0);
  return values;
}

TEST(Shuffle, IsAPermutationAndAFunctionOfSeedAndEpoch) {
  const auto order = [](uint64_t seed, int64_t epoch) {
    std::vector<int64_t> items(100);
    std::iota(items.begin(), items.end(), 0);
    io::shuffle(items, seed, epoch);
    return items;
  };
  auto sorted = order(1, 0);
  std::sort(sorted.begin(), sorted.end());
  for (int64_t i = 0; i < 100; ++i) EXPECT_EQ(sorted[static_cast<size_t>(i)], i);
  EXPECT_EQ(order(1, 5), order(1, 5));
  EXPECT_NE(order(1, 0), order(1, 1));
  EXPECT_NE(order(1, 0), order(2, 0));
  EXPECT_NE(order(0, 1), order(1, 0));
}

// All 24 orders of four items are equally likely: over 24,000 epochs, chi-squared with 23 degrees of freedom stays
// below 49.7, its 0.1 % point. The draws are seeded, so the outcome never varies.
TEST(Shuffle, DrawsEveryOrderEquallyOften) {
  std::map<std::array<int64_t, 4>, int> count;
  for (int64_t epoch = 0; epoch < 24000; ++epoch) {
    std::array<int64_t, 4> items = {0, 1, 2, 3};
    io::shuffle(items, 7, epoch);
    ++count[items];
  }
  ASSERT_EQ(count.size(), 24u);
  double chi_squared = 0;
  for (const auto& [order, n] : count) chi_squared += (n - 1000.0) * (n - 1000.0) / 1000.0;
  EXPECT_LT(chi_squared, 49.7);
}

TEST(Loader, EachEpochHoldsEveryExampleOnce) {
  Loader loader(counted(12), {.batch = 4, .seed = 3});
  EXPECT_EQ(loader.batches_per_epoch(), 3);
  auto first = epoch_of(loader), second = epoch_of(loader);
  EXPECT_NE(first, second);
  EXPECT_NE(first, iota(12));
  std::sort(first.begin(), first.end());
  std::sort(second.begin(), second.end());
  EXPECT_EQ(first, iota(12));
  EXPECT_EQ(second, iota(12));
}

TEST(Loader, DropsTheLastPartialBatchInTraining) {
  Loader loader(counted(10), {.batch = 4, .shuffle = false});
  EXPECT_EQ(loader.batches_per_epoch(), 2);
  EXPECT_EQ(epoch_of(loader), iota(8));
  const Batch& next = loader.next();
  EXPECT_EQ(next.at, (LoaderState{0, 1, 0}));
  EXPECT_EQ(labels(next), iota(4));
}

TEST(Loader, PadsTheLastBatchInEvaluation) {
  Loader loader(counted(10), {.batch = 4, .shuffle = false, .drop_last = false});
  EXPECT_EQ(loader.batches_per_epoch(), 3);
  loader.next();
  EXPECT_FALSE(loader.next().last);
  const Batch& last = loader.next();
  EXPECT_TRUE(last.last);
  EXPECT_EQ(last.count, 2);
  EXPECT_EQ(labels(last), (std::vector<int32_t>{8, 9, 0, 0}));
  EXPECT_EQ(loader.state(), (LoaderState{0, 1, 0}));
}

TEST(Loader, PadsADataSetSmallerThanTheBatch) {
  Loader loader(counted(3), {.batch = 8, .shuffle = false, .drop_last = false});
  EXPECT_EQ(loader.batches_per_epoch(), 1);
  for (int i = 0; i < 3; ++i) {
    const Batch& batch = loader.next();
    EXPECT_EQ(batch.count, 3);
    EXPECT_EQ(labels(batch), (std::vector<int32_t>{0, 1, 2, 0, 0, 0, 0, 0}));
  }
}

// From every point of two epochs, a new loader given the state continues exactly as the first did.
TEST(Loader, ResumesExactly) {
  for (const bool drop_last : {true, false}) {
    const LoaderOptions options = {.batch = 4, .seed = 11, .drop_last = drop_last};
    Loader straight(counted(14), options);
    std::vector<LoaderState> states = {straight.state()};
    std::vector<std::vector<int32_t>> batches;
    for (int i = 0; i < 12; ++i) {
      batches.push_back(labels(straight.next()));
      states.push_back(straight.state());
    }
    for (size_t at = 0; at < states.size(); ++at) {
      Loader resumed(counted(14), {.batch = 4, .seed = 999, .drop_last = drop_last, .prefetch = 3});
      resumed.next();
      resumed.set_state(states[at]);
      EXPECT_EQ(resumed.state(), states[at]);
      for (size_t i = at; i < batches.size(); ++i) EXPECT_EQ(labels(resumed.next()), batches[i]);
    }
  }
}

TEST(Loader, ResumesFromAPositionInsideABatch) {
  Loader loader(counted(10), {.batch = 4, .shuffle = false});
  loader.set_state({0, 2, 3});
  EXPECT_EQ(labels(loader.next()), (std::vector<int32_t>{3, 4, 5, 6}));
  EXPECT_EQ(loader.state(), (LoaderState{0, 3, 0}));
  loader.set_state({0, 2, 10});
  EXPECT_EQ(loader.state(), (LoaderState{0, 3, 0}));
}

TEST(Loader, RefusesAStateOutsideTheData) {
  Loader loader(counted(10), {.batch = 4, .shuffle = false});
  loader.next();
  for (const LoaderState& bad : {LoaderState{0, 0, 11}, LoaderState{0, 0, -1}, LoaderState{0, -1, 0},
                                 LoaderState{0, std::numeric_limits<int64_t>::max(), 0}}) {
    expect_contains(error_of([&] { loader.set_state(bad); }), "position from 0 to 10");
  }
  EXPECT_EQ(labels(loader.next()), (std::vector<int32_t>{4, 5, 6, 7}));
}

TEST(Loader, RefusesOptionsOutOfRange) {
  expect_contains(error_of([] { Loader(counted(3), {.batch = 4}); }),
                  "expected a data set of at least 4 examples, got 3");
  expect_contains(error_of([] { Loader(Dataset(), {.batch = 4, .drop_last = false}); }), "at least 1 examples, got 0");
  expect_contains(error_of([] { Loader(counted(3), {.batch = 0}); }), "batch of at least 1, got 0");
  expect_contains(error_of([] { Loader(counted(3), {.batch = 1, .prefetch = 0}); }), "prefetch of at least 1, got 0");
}

// A batch stays as it is until the next call, however long the thread has to run ahead; and the buffers are a fixed
// ring.
TEST(Loader, KeepsABatchUntilTheNextCallInAFixedRing) {
  Loader loader(counted(64), {.batch = 2, .shuffle = false, .prefetch = 3});
  std::set<const void*> buffers;
  for (int32_t i = 0; i < 100; ++i) {
    const Batch& batch = loader.next();
    const auto before = labels(batch);
    if (i % 10 == 0) std::this_thread::sleep_for(std::chrono::milliseconds(5));
    EXPECT_EQ(labels(batch), before);
    EXPECT_EQ(before[0], 2 * i % 64);
    buffers.insert(feed(batch, "x").tensor.data);
  }
  EXPECT_EQ(buffers.size(), 4u);
}

TEST(Loader, AllocatesNothingForABatch) {
  Loader loader(counted(64), {.batch = 4, .drop_last = false});
  const auto take = [&](int batches) {
    for (int i = 0; i < batches; ++i) loader.next();
  };
  take(40);
  const auto before = allocation_count();
  take(400);  // 25 epochs
  EXPECT_EQ(allocation_count(), before);
}

TEST(Loader, PreparesNoMoreThanPrefetchAhead) {
  std::atomic<int> filled = 0;
  Loader loader(counted(64), {.batch = 2, .prefetch = 3, .transform = [&](auto&, auto) { ++filled; }});
  for (int taken = 1; taken <= 5; ++taken) {
    loader.next();
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
    EXPECT_LE(filled, taken + 3);
  }
}

TEST(Loader, TransformsOnTheWay) {
  const auto transform = [](const LoaderState& at, std::span<Tensor> tensors) {
    for (int i = 0; i < 2; ++i) tensors[1].as<int32_t>()[i] += static_cast<int32_t>(100 * at.epoch);
  };
  Loader loader(counted(4), {.batch = 2, .shuffle = false, .transform = transform});
  const auto label = [&] { return static_cast<const int32_t*>(feed(loader.next(), "y").tensor.data)[0]; };
  EXPECT_EQ(label(), 0);
  EXPECT_EQ(label(), 2);
  EXPECT_EQ(label(), 100);
}

// The batches before the fault arrive; then each call throws it; a new state starts afresh.
TEST(Loader, RethrowsWhatItsThreadThrows) {
  const auto transform = [](const LoaderState& at, std::span<Tensor>) {
    if (at.position == 4) throw std::runtime_error("no augmentation today");
  };
  Loader loader(counted(8), {.batch = 2, .shuffle = false, .transform = transform});
  EXPECT_EQ(labels(loader.next())[0], 0);
  EXPECT_EQ(labels(loader.next())[0], 2);
  EXPECT_THROW(loader.next(), std::runtime_error);
  EXPECT_THROW(loader.next(), std::runtime_error);
  EXPECT_EQ(loader.state(), (LoaderState{0, 0, 4}));
  loader.set_state({0, 0, 6});
  EXPECT_EQ(labels(loader.next())[0], 6);
}

TEST(Loader, StopsAtAnyTime) {
  for (int i = 0; i < 200; ++i) {
    Loader loader(counted(8), {.batch = 2, .seed = static_cast<uint64_t>(i)});
    for (int taken = 0; taken < i % 7; ++taken) loader.next();
    if (i % 3 == 0) loader.set_state({1, 2, 3});
    if (i % 5 == 0) std::this_thread::yield();
  }
  Loader moved(counted(8), {.batch = 2});
  moved = Loader(counted(6), {.batch = 3, .shuffle = false});
  EXPECT_EQ(labels(moved.next()), (std::vector<int32_t>{0, 1, 2}));
}

TEST(Dataset, RefusesTensorsThatDoNotFit) {
  const auto make = [](NamedTensors tensors) { return error_of([&] { Dataset data(tensors); }); };
  const Tensor three(TensorType{f32, {3, 2}}), four(TensorType{i32, {4}}), scalar(TensorType{f32, {}});
  expect_contains(make({{"x", three}, {"y", four}}), "\"y\": expected 3 examples as in \"x\", got 4");
  expect_contains(make({{"x", three}, {"x", three}}), "expected unique names");
  expect_contains(make({{"x", scalar}}), "got a scalar");
  EXPECT_EQ(Dataset(NamedTensors{}).size(), 0);
  EXPECT_EQ(Dataset().tensors().size(), 0u);
}

}  // namespace
}  // namespace aicf::tests
