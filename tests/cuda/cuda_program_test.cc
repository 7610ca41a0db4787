// What only a GPU can show of a program: steps that return early, staged feeds, the ring of results, streams of the
// caller, sticky input errors, and an orderly end with work in flight.
#include <cuda_runtime_api.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cmath>
#include <cstring>
#include <fstream>
#include <thread>

#include "backend/api.h"
#include "runtime/program.h"
#include "support/programs.h"

namespace aicf {
namespace {

size_t resident_bytes() {
  std::ifstream file("/proc/self/statm");
  size_t total = 0, resident = 0;
  file >> total >> resident;
  return resident * 4096;
}

size_t free_device_bytes() {
  size_t left = 0, total = 0;
  EXPECT_EQ(cudaMemGetInfo(&left, &total), cudaSuccess);
  return left;
}

Tensor filled(const Shape& shape, float value) {
  Tensor t(TensorType{f32, shape});
  std::fill_n(t.as<float>(), t.elements(), value);
  return t;
}

// Some milliseconds of work a step: y = x·w·w…
struct SlowModel {
  Model model{1};
  Value x, loss;
  explicit SlowModel(int products = 8, int64_t size = 2048) {
    x = model.input("x", {f32, {size, size}});
    const Value w = model.param("w", {f32, {size, size}}, Init::value(1.0 / static_cast<double>(size)));
    Value h = x;
    for (int i = 0; i < products; ++i) h = matmul(h, w);
    loss = mean(h);
  }
};

// --- feeds ------------------------------------------------------------------------------------------------------

// Case B5: what is fed is what is read, however large and however early the caller reuses its array.
TEST(CaseB5, EveryStepSeesItsOwnFeed) {
  constexpr int64_t kElements = 1 << 20;
  Model m;
  const Value x = m.input("x", {f32, {kElements}});
  m.output("low", min(x, {0}));
  m.output("high", max(x, {0}));
  Program p = compile(m, {.backend = "cuda"});
  Tensor feed(TensorType{f32, {kElements}});
  std::vector<StepResult> results;
  for (int i = 0; i < 500; ++i) {
    std::fill_n(feed.as<float>(), kElements, static_cast<float>(i));
    results.push_back(p.step({{"x", feed}}));
    std::memset(feed.data(), 0xFF, feed.bytes());
  }
  for (int i = 0; i < 500; ++i) {
    ASSERT_EQ(results[static_cast<size_t>(i)].scalar("low"), i);
    ASSERT_EQ(results[static_cast<size_t>(i)].scalar("high"), i);
  }
}

TEST(Feeds, SmallAndLargeInputsTogetherAndRepeated) {
  Model m;
  const Value a = m.input("a", {f32, {3}}), b = m.input("b", {i32, {}}), c = m.input("c", {u8, {5000}});
  m.output("a2", a * 2.0);
  m.output("b2", b + 1);
  m.output("c2", sum(cast(c, i32), {0}));
  Program p = compile(m, {.backend = "cuda"});
  EXPECT_NE(test::error_of([&] { p.repeat(); }).find("never fed"), std::string::npos);
  for (int i = 0; i < 5; ++i) {
    Tensor bytes(TensorType{u8, {5000}});
    std::memset(bytes.data(), i, bytes.bytes());
    const float f = static_cast<float>(i);
    const StepResult r =
        p.step({{"a", Tensor::of<float>({3}, {f, f + 1, f + 2})}, {"b", Tensor::scalar(int32_t{i})}, {"c", bytes}});
    const StepResult again = p.repeat();
    for (const StepResult& seen : {r, again}) {
      EXPECT_EQ(seen["a2"], Tensor::of<float>({3}, {2 * f, 2 * f + 2, 2 * f + 4}));
      EXPECT_EQ(seen.scalar("b2"), i + 1);
      EXPECT_EQ(seen.scalar("c2"), 5000 * i);
    }
  }
}

// All three ways to run, changed between steps: each stages and delivers alike.
TEST(Feeds, ModesMayChangeBetweenSteps) {
  Model m;
  const Value x = m.input("x", {f32, {4}});
  m.output("y", x + 1);
  Program p = compile(m, {.backend = "cuda"});
  const Mode modes[] = {Mode::graph, Mode::eager, Mode::replay, Mode::eager, Mode::graph, Mode::replay, Mode::graph};
  for (int i = 0; i < 21; ++i) {
    p.set_mode(modes[i % 7]);
    EXPECT_EQ(p.step({{"x", filled({4}, static_cast<float>(i))}})["y"], filled({4}, static_cast<float>(i) + 1)) << i;
  }
}

// --- results ----------------------------------------------------------------------------------------------------

TEST(Results, ThreeThousandKeptResultsStayRight) {
  Model m;
  const Value x = m.input("x", {f32, {}});
  m.output("y", x * 2.0);
  m.output("v", broadcast(x, {300}) + 1);  // larger than a ring piece
  Program p = compile(m, {.backend = "cuda"});
  std::vector<StepResult> kept;
  for (int i = 0; i < 3000; ++i) kept.push_back(p.step({{"x", Tensor::scalar(static_cast<float>(i))}}));
  for (int i = 0; i < 3000; ++i) {
    ASSERT_EQ(kept[static_cast<size_t>(i)].scalar("y"), 2 * i);
    ASSERT_EQ(kept[static_cast<size_t>(i)]["v"].at(299), i + 1);
  }
}

TEST(Results, OutliveTheirProgramAndAreReadFromAnotherThread) {
  std::vector<StepResult> kept;
  {
    SlowModel slow;
    Program p = compile(slow.model, {.outputs = {{"loss", slow.loss}}, .backend = "cuda"});
    for (int i = 0; i < 20; ++i) kept.push_back(p.step({{"x", filled({2048, 2048}, static_cast<float>(i))}}));
    std::thread([&] { EXPECT_NEAR(kept[19].scalar("loss"), 19, 1e-2); }).join();
  }
  for (int i = 0; i < 20; ++i) EXPECT_NEAR(kept[static_cast<size_t>(i)].scalar("loss"), i, 1e-2);
}

TEST(Results, AStepReturnsBeforeItIsDone) {
  SlowModel slow(64);
  Program p = compile(slow.model, {.outputs = {{"loss", slow.loss}}, .backend = "cuda"});
  const Tensor feed = filled({2048, 2048}, 1);
  p.step({{"x", feed}}).scalar("loss");
  const auto seconds = [](auto from) {
    return std::chrono::duration<double>(std::chrono::steady_clock::now() - from).count();
  };
  const auto start = std::chrono::steady_clock::now();
  const StepResult r = p.repeat();
  const double returned = seconds(start);
  EXPECT_NEAR(r.scalar("loss"), 1, 1e-3);
  const double read = seconds(start);
  EXPECT_LT(returned, read / 2) << "returned after " << returned << " s, read after " << read << " s";
}

// --- input errors -----------------------------------------------------------------------------------------------

TEST(InputErrors, AreStickyNamedAndTakenOnce) {
  test::SmallMlp m;
  Program p = compile(m.model, {.loss = m.loss, .optimizer = optim::AdamW{.lr = 0.1}, .backend = "cuda"});
  NamedTensors good = test::small_mlp_batch(0), bad = test::small_mlp_batch(1);
  p.step(test::feeds_of(good));
  const NamedTensors before = p.snapshot();
  for (auto& [name, tensor] : bad) {
    if (name == "y") tensor.as<int32_t>()[2] = 99;
  }
  std::vector<StepResult> results;
  std::string error;
  results.push_back(p.step(test::feeds_of(bad)));  // returns: nobody waited
  for (int i = 0; i < 50 && error.empty(); ++i) {
    error = test::error_of([&] { results.push_back(p.step(test::feeds_of(good))); });
  }
  if (error.empty()) error = test::error_of([&] { p.wait(); });
  for (const char* part : {"cross_entropy", "'y'", "at step 2", "nothing was updated"}) {
    EXPECT_NE(error.find(part), std::string::npos) << error;
  }
  EXPECT_EQ(p.snapshot(), before) << "steps after the bad one change nothing until it is told";
  for (const StepResult& r : results) EXPECT_EQ(test::error_of([&] { r.scalar("loss"); }), error);
  p.step(test::feeds_of(good));
  p.wait();
  EXPECT_NE(p.snapshot(), before);
}

TEST(InputErrors, ReadingAResultTells) {
  test::SmallMlp m;
  Program p = compile(m.model, {.loss = m.loss, .optimizer = optim::SGD{.lr = 0.1}, .backend = "cuda"});
  NamedTensors batch = test::small_mlp_batch(0);
  const StepResult fine = p.step(test::feeds_of(batch));
  for (auto& [name, tensor] : batch) {
    if (name == "y") tensor.as<int32_t>()[0] = -1;
  }
  const StepResult r = p.step(test::feeds_of(batch));
  EXPECT_NE(test::error_of([&] { r.scalar("loss"); }).find("'y'"), std::string::npos);
  EXPECT_NE(test::error_of([&] { r.scalar("loss"); }), "") << "a failed step never yields a number";
  EXPECT_GT(fine.scalar("loss"), 0);
  EXPECT_EQ(test::error_of([&] { p.wait(); }), "") << "told once";
}

// A failed step never yields a number: not when its program is gone before the result is read …
TEST(InputErrors, AFailedResultOutlivesItsProgramAsAnError) {
  StepResult bad;
  {
    test::SmallMlp m;
    Program p = compile(m.model, {.loss = m.loss, .optimizer = optim::SGD{.lr = 0.1}, .backend = "cuda"});
    NamedTensors batch = test::small_mlp_batch(0);
    batch[1].second.as<int32_t>()[0] = 77;
    bad = p.step(test::feeds_of(batch));
  }
  EXPECT_NE(test::error_of([&] { bad.scalar("loss"); }).find("'y'"), std::string::npos);
}

// … nor when the ring comes round to it before anyone noticed.
TEST(InputErrors, AFailedResultIsOneWhenTheRingComesRound) {
  test::SmallMlp m;
  Program p = compile(m.model, {.loss = m.loss, .optimizer = optim::SGD{.lr = 0.1}, .backend = "cuda"});
  const NamedTensors good = test::small_mlp_batch(0);
  NamedTensors bad = good;
  bad[1].second.as<int32_t>()[0] = 77;
  std::vector<StepResult> kept;
  for (int i = 1; i <= 1022; ++i) kept.push_back(p.step(test::feeds_of(good)));
  std::string error;
  for (int i = 0; i < 8 && error.empty(); ++i) {
    error = test::error_of([&] { kept.push_back(p.step(test::feeds_of(i == 0 ? bad : good))); });
  }
  if (error.empty()) error = test::error_of([&] { p.wait(); });
  EXPECT_NE(error.find("at step 1023"), std::string::npos) << error;
  for (size_t i = 0; i < kept.size(); ++i) {
    const std::string told = test::error_of([&] { kept[i].scalar("loss"); });
    EXPECT_EQ(told.empty(), i < 1022) << i << ": " << told;
  }
}

// --- the caller's streams ---------------------------------------------------------------------------------------

struct Stream {
  Stream() { EXPECT_EQ(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking), cudaSuccess); }
  ~Stream() { cudaStreamDestroy(stream); }
  cudaStream_t stream = nullptr;
};

// The caller makes each feed on its own stream, behind a delay, and reads the parameter there: nobody waits on the
// host.
TEST(Streams, FeedsOnTheDeviceInTheCallersOrder) {
  constexpr int64_t kElements = 1 << 18;
  Model m;
  const Value x = m.input("x", {f32, {kElements}});
  const Value total = m.state("total", {f32, {}});
  m.update(total, total + max(x, {0}));
  m.output("low", min(x, {0}));
  Program p = compile(m, {.backend = "cuda"});
  Stream caller;
  float *device = nullptr, *seen = nullptr, *host = nullptr;
  ASSERT_EQ(cudaMalloc(reinterpret_cast<void**>(&device), kElements * 4), cudaSuccess);
  ASSERT_EQ(cudaMalloc(reinterpret_cast<void**>(&seen), 64 * 4), cudaSuccess);
  ASSERT_EQ(cudaHostAlloc(reinterpret_cast<void**>(&host), kElements * 4, 0), cudaSuccess);
  void* const total_address = p.address("total");
  std::vector<StepResult> results;
  for (int i = 0; i < 32; ++i) {
    // The host's array is the caller's own to guard; the device's is ordered by the stream.
    ASSERT_EQ(cudaStreamSynchronize(caller.stream), cudaSuccess);
    for (int64_t k = 0; k < kElements; ++k) host[k] = static_cast<float>(i);
    for (int delay = 0; delay < 50; ++delay) cudaMemsetAsync(device, 0xFF, kElements * 4, caller.stream);
    cudaMemcpyAsync(device, host, kElements * 4, cudaMemcpyHostToDevice, caller.stream);
    results.push_back(
        p.step({{"x", TensorView({f32, {kElements}}, device), true}}, StepOptions{.stream = caller.stream}));
    cudaMemcpyAsync(seen + i, total_address, 4, cudaMemcpyDeviceToDevice, caller.stream);
    cudaMemsetAsync(device, 0xFF, kElements * 4, caller.stream);  // after the step read it
  }
  float totals[32];
  ASSERT_EQ(cudaMemcpyAsync(totals, seen, sizeof totals, cudaMemcpyDeviceToHost, caller.stream), cudaSuccess);
  ASSERT_EQ(cudaStreamSynchronize(caller.stream), cudaSuccess);
  float want = 0;
  for (int i = 0; i < 32; ++i) {
    want += static_cast<float>(i);
    EXPECT_EQ(totals[i], want) << i;
    EXPECT_EQ(results[static_cast<size_t>(i)].scalar("low"), i);
  }
  cudaFree(device);
  cudaFree(seen);
  cudaFreeHost(host);
}

TEST(Streams, MistakesAreRefused) {
  Model m;
  m.output("y", m.input("x", {f32, {4}}) + 1);
  Program p = compile(m, {.backend = "cuda"});
  float* device = nullptr;
  ASSERT_EQ(cudaMalloc(reinterpret_cast<void**>(&device), 16), cudaSuccess);
  const Feed feed = {"x", TensorView({f32, {4}}, device), true};
  EXPECT_NE(test::error_of([&] { p.step({feed}); }).find("on the device"), std::string::npos);
  {
    Stream caller;
    ASSERT_EQ(cudaStreamBeginCapture(caller.stream, cudaStreamCaptureModeThreadLocal), cudaSuccess);
    const std::string error = test::error_of([&] { p.step({feed}, StepOptions{.stream = caller.stream}); });
    EXPECT_NE(error.find("being captured"), std::string::npos) << error;
    cudaGraph_t graph = nullptr;
    EXPECT_EQ(cudaStreamEndCapture(caller.stream, &graph), cudaSuccess) << "the caller's capture goes on";
    cudaGraphDestroy(graph);
  }
  EXPECT_EQ(p.step({{"x", filled({4}, 1)}})["y"], filled({4}, 2));
  cudaFree(device);
}

// --- the graph --------------------------------------------------------------------------------------------------

TEST(Graph, BranchesRunSideBySide) {
  Model m;
  const Value x = m.input("x", {f32, {64}});
  Value sum = x;
  for (int branch = 0; branch < 4; ++branch) {
    Value h = x * (branch + 2.0);
    for (int i = 0; i < 5; ++i) h = tanh(h);
    sum = sum + h;
  }
  m.output("y", sum);
  // One launch an op.
  Program p = compile(m, {.backend = "cuda", .disable_passes = {"fuse", "merge_launches"}});
  const GraphInfo info = p.graph();
  EXPECT_TRUE(info.captured);
  EXPECT_EQ(info.nodes, info.launches + 2) << "feeds and results are the runner's";
  EXPECT_LE(info.critical_path, 2 + 6 + 4);
  EXPECT_EQ(info.launches, 4 * 6 + 4);
  EXPECT_NE(p.dump("graph").find("tanh"), std::string::npos);
}

TEST(Graph, AProgramWithoutInputsIsCapturedToo) {
  Model m;
  const Value count = m.state("count", {i64, {}});
  m.update(count, count + 1);
  m.output("seen", count);
  Program p = compile(m, {.backend = "cuda"});
  EXPECT_TRUE(p.graph().captured);
  for (int i = 0; i < 5; ++i) EXPECT_EQ(p.step({}).scalar("seen"), i);
  EXPECT_EQ(p.repeat().scalar("seen"), 5);
}

// A stream that is being captured may not be asked anything, and reading a result asks the store's.
TEST(Graph, CompilingDoesNotDisturbReadersOfTheStore) {
  SlowModel slow(64);
  Program p = compile(slow.model, {.outputs = {{"loss", slow.loss}}, .backend = "cuda"});
  p.step({{"x", filled({2048, 2048}, 1)}}).scalar("loss");
  std::atomic<bool> stop = false;
  std::thread reading([&] {
    while (!stop) EXPECT_NEAR(p.repeat().scalar("loss"), 1, 1e-3);
  });
  for (int i = 0; i < 20; ++i) {
    const Value output = slow.loss * (i + 2.0);
    Program other = compile(slow.model, {.outputs = {{"other", output}}, .backend = "cuda", .share = p});
  }
  stop = true;
  reading.join();
}

// Cases C1 and C4: compiling changes nothing, and the same state gives the same step, a hundred times.
TEST(CaseC4, AHundredReplaysFromOneStateAreEqual) {
  test::SmallMlp m;
  Program p = compile(m.model, {.loss = m.loss,
                                .optimizer = optim::AdamW{.lr = 0.1},
                                .fetch = {"fc1.weight.grad", "fc2.bias.grad"},
                                .backend = "cuda"});
  const NamedTensors start = p.snapshot();
  const NamedTensors batch = test::small_mlp_batch(3);
  NamedTensors first_state, first_results;
  for (int i = 0; i < 100; ++i) {
    p.load(start);
    const StepResult r = p.step(test::feeds_of(batch));
    NamedTensors results;
    for (const std::string& name : r.names()) results.emplace_back(name, r[name]);
    if (i == 0) {
      first_results = results;
      first_state = p.snapshot();
    }
    ASSERT_EQ(results, first_results) << i;
    ASSERT_EQ(p.snapshot(), first_state) << i;
  }
}

TEST(CaseC1, CompilingRunsNothing) {
  test::SmallMlp m;
  const CompileOptions options = {.loss = m.loss, .optimizer = optim::Adam{.lr = 0.1}, .backend = "cuda", .tune = true};
  Program p = compile(m.model, options);
  const NamedTensors start = p.snapshot();
  CompileOptions again = options;
  again.share = p;
  Program second = compile(m.model, again);  // captured over live state
  EXPECT_EQ(p.snapshot(), start);
  p.step(test::feeds_of(test::small_mlp_batch(0)));
  EXPECT_EQ(p.read("optimizer.step").item(), 1);
  const NamedTensors one = p.snapshot();
  Program third = compile(m.model, again);
  EXPECT_EQ(p.snapshot(), one);
}

// --- memory and life --------------------------------------------------------------------------------------------

TEST(Memory, TooLargeAModelIsOneErrorAndTheProcessGoesOn) {
  Model big;
  const Value w = big.param("w", {f32, {1 << 20, 1 << 20}}, Init::zeros());  // 4 TiB
  const Value v = big.input("v", {f32, {1 << 20, 1}});
  const std::string error = test::error_of([&] {
    compile(big, {.outputs = {{"y", mean(matmul(w, v))}}, .backend = "cuda"});
  });
  EXPECT_NE(error.find("out of memory"), std::string::npos) << error;
  Model small;
  const Value x = small.input("x", {f32, {2}});
  small.output("y", x + 1);
  Program p = compile(small, {.backend = "cuda"});
  EXPECT_EQ(p.step({{"x", filled({2}, 1)}})["y"], filled({2}, 2));
}

TEST(Memory, AHundredThousandReplaysDoNotGrow) {
  test::SmallMlp m;
  Program p = compile(m.model, {.loss = m.loss, .optimizer = optim::AdamW{.lr = 1e-4}, .backend = "cuda"});
  const NamedTensors batch = test::small_mlp_batch(0);
  const std::vector<Feed> feeds = test::feeds_of(batch);
  const auto run = [&](int steps) {
    StepResult last;
    for (int i = 0; i < steps; ++i) last = p.step(feeds);
    return last.scalar("loss");
  };
  run(5000);
  const size_t device = free_device_bytes(), host = resident_bytes();
  run(100000);
  EXPECT_EQ(free_device_bytes(), device);
  EXPECT_LE(resident_bytes(), host + (1 << 20));
  EXPECT_EQ(p.read("steps.applied").item(), 105000);
}

TEST(Life, ProgramsDestroyedInFlightLeakNothing) {
  const auto once = [] {
    SlowModel slow(16, 1024);
    Program p = compile(slow.model, {.loss = slow.loss, .optimizer = optim::SGD{.lr = 0.1}, .backend = "cuda"});
    const Tensor feed = filled({1024, 1024}, 1);
    // Large outputs too, whose copies nobody waits for.
    Program eval = compile(slow.model, {.outputs = {{"twice", slow.x * 2.0}}, .backend = "cuda", .share = p});
    for (int i = 0; i < 10; ++i) {
      p.step({{"x", feed}});
      eval.step({{"x", feed}});
    }
  };
  for (int i = 0; i < 3; ++i) once();
  const size_t device = free_device_bytes();
  for (int i = 0; i < 10; ++i) once();
  EXPECT_EQ(free_device_bytes(), device);
}

TEST(Life, TwoProgramsOfOneStoreFromTwoThreads) {
  test::SmallMlp m;
  Program train = compile(m.model, {.loss = m.loss, .optimizer = optim::SGD{.lr = 0.1}, .backend = "cuda"});
  Program eval = compile(m.model, {.outputs = {{"logits", m.logits}}, .backend = "cuda", .share = train});
  const NamedTensors batch = test::small_mlp_batch(0);
  const std::vector<Feed> feeds = test::feeds_of(batch);
  std::vector<Feed> eval_feeds;
  for (const Feed& feed : feeds) {
    if (feed.name == "x") eval_feeds.push_back(feed);
  }
  std::atomic<bool> stop = false;
  std::thread evaluating([&] {
    while (!stop) {
      const StepResult r = eval.step(eval_feeds);
      for (double v : r["logits"].to_doubles()) ASSERT_TRUE(std::isfinite(v));
    }
  });
  for (int i = 0; i < 2000; ++i) train.step(feeds);
  train.wait();
  stop = true;
  evaluating.join();
  // The same steps alone give the same bits.
  test::SmallMlp other;
  Program alone = compile(other.model, {.loss = other.loss, .optimizer = optim::SGD{.lr = 0.1}, .backend = "cuda"});
  for (int i = 0; i < 2000; ++i) alone.step(feeds);
  EXPECT_EQ(train.snapshot(), alone.snapshot());
}

TEST(Life, StoresRunConcurrentlyFromSeveralThreads) {
  const auto train = [] {
    test::SmallMlp m;
    Program p = compile(m.model, {.loss = m.loss, .optimizer = optim::AdamW{.lr = 0.1}, .backend = "cuda"});
    for (int i = 0; i < 200; ++i) p.step(test::feeds_of(test::small_mlp_batch(i)));
    return p.snapshot();
  };
  const NamedTensors want = train();
  std::vector<NamedTensors> got(4);
  std::vector<std::thread> threads;
  for (NamedTensors& g : got) threads.emplace_back([&g, &train] { g = train(); });
  for (std::thread& t : threads) t.join();
  for (const NamedTensors& g : got) EXPECT_EQ(g, want);
}

}  // namespace
}  // namespace aicf
