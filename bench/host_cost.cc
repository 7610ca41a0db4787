// What a step costs the host: the time inside the call, with nothing of the device's to wait for; and, with --replays
// N, that N steps one by one leave no memory behind and end on the bits of as many by steps(1000).
//   bench_host_cost RECIPE [--replays N]
#include <fmt/core.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <string>
#include <thread>
#include <vector>

#include "aicf/aicf.h"
#include "aicf/recipe.h"

namespace aicf {
namespace {

using Clock = std::chrono::steady_clock;

double microseconds_since(Clock::time_point start) {
  return std::chrono::duration<double, std::micro>(Clock::now() - start).count();
}

constexpr int kCalls = 10000;
constexpr int kBetweenWaits = 16;  // calls in flight at most: no queue is ever full

template <class Call>
void report(Program& program, const char* name, const Call& call) {
  for (int i = 0; i < 100; ++i) call();
  program.wait();
  std::vector<double> times;
  for (int i = 0; i < kCalls; ++i) {
    const auto start = Clock::now();
    call();
    times.push_back(microseconds_since(start));
    if (i % kBetweenWaits == kBetweenWaits - 1) program.wait();
  }
  program.wait();
  std::sort(times.begin(), times.end());
  fmt::print("{:<44} median {:6.2f} us, 99 % within {:6.2f}, most {:8.2f}\n", name, times[kCalls / 2],
             times[kCalls * 99 / 100], times.back());
}

double us_per_step(Program& program, int64_t n, double* inside = nullptr) {
  const auto start = Clock::now();
  const std::vector<StepResult> results = program.steps(n);
  if (inside != nullptr) *inside = microseconds_since(start) / static_cast<double>(n);
  program.wait();
  return microseconds_since(start) / static_cast<double>(n);
}

// With every processor busy: what runs is on the device already.
double us_beside_busy_threads(Program& program, int64_t n) {
  std::atomic<bool> stop = false;
  std::vector<std::thread> threads;
  for (unsigned i = 0; i < std::thread::hardware_concurrency(); ++i) {
    threads.emplace_back([&stop] {
      while (!stop) {
      }
    });
  }
  const double us = us_per_step(program, n);
  stop = true;
  for (std::thread& t : threads) t.join();
  return us;
}

size_t resident_kib() {
  std::ifstream file("/proc/self/statm");
  size_t total = 0, resident = 0;
  file >> total >> resident;
  return resident * 4;
}

// As the driver's tool says; "unknown" where there is none.
std::string device_memory() {
  std::FILE* pipe = popen("nvidia-smi --query-gpu=memory.used --format=csv,noheader 2>/dev/null", "r");
  if (pipe == nullptr) return "unknown";
  char line[128] = {};
  const bool any = std::fgets(line, sizeof line, pipe) != nullptr;
  pclose(pipe);
  return any ? std::string(line, std::strcspn(line, "\n")) : "unknown";
}

bool replays_hold(const std::function<Program()>& make, int64_t replays) {
  constexpr int64_t kAtOnce = 1000;
  Program one = make(), many = make();
  double loss = 0;
  const auto run = [&](int64_t n) {
    StepResult last;
    for (int64_t i = 0; i < n; ++i) last = one.steps(1)[0];
    loss = last.scalar("loss");
  };
  const int64_t first = std::min<int64_t>(replays / 2, 10000);
  run(first);
  const size_t host = resident_kib();
  const std::string device = device_memory();
  run(replays - first);
  const bool grown = resident_kib() > host + 1024 || device_memory() != device;
  fmt::print("{} steps one by one: loss {:.9g}; host {} KiB, {} KiB after the first {}; device {}, {}{}\n", replays,
             loss, resident_kib(), host, first, device_memory(), device, grown ? ": GROWN" : "");
  double loss_of_many = 0;
  for (int64_t i = 0; i < replays; i += kAtOnce) {
    loss_of_many = many.steps(std::min(kAtOnce, replays - i)).back().scalar("loss");
  }
  const bool same = loss == loss_of_many && one.snapshot() == many.snapshot();
  fmt::print("the same by steps({}): loss {:.9g}, {}\n", kAtOnce, loss_of_many, same ? "bit-equal" : "OTHER BITS");
  return same && !grown;
}

int run(int argc, char** argv) {
  if (argc != 2 && !(argc == 4 && std::strcmp(argv[2], "--replays") == 0)) {
    fmt::print(stderr, "usage: bench_host_cost RECIPE [--replays N]\n");
    return 2;
  }
  const Recipe recipe = load_recipe(argv[1]);
  const Dataset data = load_data(recipe, true);
  const LoaderOptions order = {.batch = recipe.train.batch, .seed = static_cast<uint64_t>(recipe.train.seed)};
  const auto make = [&] {
    RecipeModel model = build_model(recipe, recipe.train.batch);
    CompileOptions options;
    options.loss = model.loss;
    options.optimizer = build_optimizer(recipe, data.size() / recipe.train.batch);
    options.outputs = {{"loss", model.loss}};
    options.precision = recipe.precision;
    Program program = compile(model.model, options);
    program.attach(data, order);
    return program;
  };
  Program program = make();
  Loader loader(data, order);
  const Batch& batch = loader.next();
  size_t bytes = 0;
  for (const Feed& feed : batch.feeds) bytes += feed.tensor.type.bytes();
  program.step(batch.feeds);
  fmt::print("{}, backend {}, {} steps a launch of steps()\n", recipe.name, program.backend(),
             program.graph().unrolled);
  report(program, "steps(1), data set on the device", [&] { program.steps(1); });
  report(program, "repeat(), batch on the device", [&] { program.repeat(); });
  report(program, fmt::format("step(), fed {:.1f} KiB", static_cast<double>(bytes) / 1024).c_str(),
         [&] { program.step(batch.feeds); });
  double inside = 0;
  us_per_step(program, 1000);
  const double alone = us_per_step(program, 1000, &inside);
  fmt::print("steps(1000): {:.2f} us a step, {:.2f} inside the call; every processor busy elsewhere: {:.2f}\n", alone,
             inside, us_beside_busy_threads(program, 1000));
  return argc == 4 && !replays_hold(make, std::atoll(argv[3])) ? 1 : 0;
}

}  // namespace
}  // namespace aicf

int main(int argc, char** argv) {
  try {
    return aicf::run(argc, argv);
  } catch (const aicf::Error& e) {
    fmt::print(stderr, "{}\n", e.what());
    return 2;
  }
}
