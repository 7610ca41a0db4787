// The pool: every part once, no allocation, nested and concurrent callers, floating-point state, limits on CPUs.
#include "base/thread_pool.h"

#include <gtest/gtest.h>
#include <sched.h>
#include <sys/resource.h>
#include <unistd.h>
#include <xmmintrin.h>

#include <atomic>
#include <cfenv>
#include <chrono>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <limits>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "aicf/error.h"
#include "base/cpus.h"
#include "io/counted_new.h"

namespace aicf::base {
namespace {

ThreadPool& pool() { return ThreadPool::shared(); }

struct Counts {
  explicit Counts(int parts) : by_part(static_cast<size_t>(parts)) {}
  std::vector<std::atomic<int>> by_part;
  std::atomic<int> wrong_parts{0};
};

void count_part(void* ctx, int part, int parts) {
  auto* counts = static_cast<Counts*>(ctx);
  if (parts != static_cast<int>(counts->by_part.size())) ++counts->wrong_parts;
  ++counts->by_part[static_cast<size_t>(part)];
}

void expect_each_once(const Counts& counts, int times = 1) {
  EXPECT_EQ(counts.wrong_parts, 0);
  for (const auto& count : counts.by_part) EXPECT_EQ(count, times);
}

TEST(ThreadPool, RunsEveryPartOnce) {
  for (const int threads : {0, 1, 2, 3, 8}) {
    for (const int parts : {0, 1, 2, 3, 7, 64, 1000}) {
      Counts counts(parts);
      pool().run(count_part, &counts, parts, threads);
      expect_each_once(counts);
    }
  }
}

// What a part wrote is seen by the caller, and by the parts of the next run, without any lock of their own.
TEST(ThreadPool, RunsAreOrdered) {
  std::vector<int64_t> values(1 << 15, 0);  // long enough for workers to join in
  const auto add_left = [](void* ctx, int part, int parts) {
    auto& v = *static_cast<std::vector<int64_t>*>(ctx);
    const size_t half = v.size() / 2;
    const size_t n = static_cast<size_t>(part) * half / static_cast<size_t>(parts);
    const size_t end = static_cast<size_t>(part + 1) * half / static_cast<size_t>(parts);
    for (size_t i = n; i < end; ++i) v[half + i] = v[half - 1 - i] + 1;
  };
  const auto add_right = [](void* ctx, int part, int parts) {
    auto& v = *static_cast<std::vector<int64_t>*>(ctx);
    const size_t half = v.size() / 2;
    const size_t n = static_cast<size_t>(part) * half / static_cast<size_t>(parts);
    const size_t end = static_cast<size_t>(part + 1) * half / static_cast<size_t>(parts);
    for (size_t i = n; i < end; ++i) v[i] = v[2 * half - 1 - i];
  };
  constexpr int kRuns = 2000;
  for (int i = 0; i < kRuns; ++i) {
    pool().run(add_left, &values, 5, 2 + i % 3);
    pool().run(add_right, &values, 3, 2 + i % 2);
  }
  EXPECT_EQ(values, std::vector<int64_t>(values.size(), kRuns));
}

TEST(ThreadPool, AllocatesNothingOnceThreadsAreUp) {
  Counts counts(16);
  pool().run(count_part, &counts, 16, 4);
  const size_t before = tests::allocation_count();
  for (int i = 0; i < 100; ++i) pool().run(count_part, &counts, 16, 4);
  EXPECT_EQ(tests::allocation_count() - before, 0u);
  expect_each_once(counts, 101);
}

void run_nested(void* ctx, int, int) { pool().run(count_part, ctx, 10, 4); }

TEST(ThreadPool, NestedRunsAreSerial) {
  Counts counts(10);
  pool().run(run_nested, &counts, 6, 4);
  expect_each_once(counts, 6);
}

TEST(ThreadPool, ConcurrentCallersAllFinish) {
  constexpr int kCallers = 4, kRuns = 500;
  std::vector<std::unique_ptr<Counts>> counts;
  std::vector<std::thread> callers;
  for (int i = 0; i < kCallers; ++i) counts.push_back(std::make_unique<Counts>(5));
  for (int i = 0; i < kCallers; ++i) {
    callers.emplace_back([&, i] {
      for (int run = 0; run < kRuns; ++run) pool().run(count_part, counts[static_cast<size_t>(i)].get(), 5, 2 + i);
    });
  }
  for (auto& caller : callers) caller.join();
  for (const auto& count : counts) expect_each_once(*count, kRuns);
}

TEST(ThreadPool, ParkedWorkersWakeUp) {
  // All parts wait for each other, so the run ends only if every worker comes.
  std::atomic<int> arrived{0};
  const auto meet = [](void* ctx, int, int parts) {
    auto& count = *static_cast<std::atomic<int>*>(ctx);
    ++count;
    while (count.load() < parts) std::this_thread::yield();
  };
  for (int i = 0; i < 20; ++i) {
    arrived = 0;
    pool().run(meet, &arrived, 4, 4);
    EXPECT_EQ(arrived, 4);
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
}

double process_cpu_seconds() {
  rusage usage;
  getrusage(RUSAGE_SELF, &usage);
  const auto seconds = [](const timeval& t) {
    return static_cast<double>(t.tv_sec) + 1e-6 * static_cast<double>(t.tv_usec);
  };
  return seconds(usage.ru_utime) + seconds(usage.ru_stime);
}

TEST(ThreadPool, IdleWorkersUseNoCpu) {
  Counts counts(8);
  pool().run(count_part, &counts, 8, 8);
  std::this_thread::sleep_for(std::chrono::milliseconds(20));
  const double before = process_cpu_seconds();
  std::this_thread::sleep_for(std::chrono::milliseconds(200));
  // One spinning worker would use 0.2 s.
  EXPECT_LT(process_cpu_seconds() - before, 0.05);
}

constexpr float kTiny = std::numeric_limits<float>::min();

float half_of_smallest() {
  volatile float smallest = kTiny;
  return smallest * 0.5f;
}

TEST(FlushSubnormals, OnlyInItsScope) {
  EXPECT_GT(half_of_smallest(), 0);
  const unsigned before = _mm_getcsr();
  {
    const FlushSubnormals flush;
    EXPECT_EQ(half_of_smallest(), 0);
    volatile float subnormal = std::numeric_limits<float>::denorm_min();
    volatile float scaled = subnormal * 1e30f;
    EXPECT_EQ(scaled, 0);
  }
  EXPECT_EQ(_mm_getcsr(), before);
  EXPECT_GT(half_of_smallest(), 0);
}

// Parts compute alike on every thread, whatever the caller has set, and the caller's setting is still there afterwards.
TEST(ThreadPool, TasksSeeOneFloatingPointState) {
  struct Seen {
    std::atomic<int> odd{0};
  } seen;
  const auto check = [](void* ctx, int, int) {
    volatile float one = 1, three = 3;
    if ((_mm_getcsr() & 0xFFC0u) != 0x9FC0u || one / three != 1.0f / 3.0f) ++static_cast<Seen*>(ctx)->odd;
  };
  std::fesetround(FE_UPWARD);
  for (const int threads : {1, 2, 8}) pool().run(check, &seen, 100, threads);
  const int rounding = std::fegetround();
  std::fesetround(FE_TONEAREST);
  EXPECT_EQ(rounding, FE_UPWARD);
  EXPECT_EQ(seen.odd, 0);
}

TEST(ThreadPool, DefaultThreadsAreChecked) {
  for (const int bad : {0, -1, 1025}) EXPECT_THROW(pool().set_default_threads(bad), Error);
  pool().set_default_threads(3);
  EXPECT_EQ(pool().default_threads(), 3);
}

// In a process of its own: the environment is read once.
[[noreturn]] void exit_unless_environment_gives(const char* text, int expected) {
  setenv("AICF_THREADS", text, 1);
  int got = 0;
  try {
    got = pool().default_threads();
  } catch (const Error& error) {
    const std::string message = error.what();
    const bool said = message.find("AICF_THREADS") != std::string::npos && message.find(text) != std::string::npos;
    got = said && !error.hint().empty() ? -1 : -2;
  }
  std::exit(got == expected ? 0 : 1);
}

TEST(ThreadPoolDeathTest, EnvironmentOverrides) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  EXPECT_EXIT(exit_unless_environment_gives("5", 5), testing::ExitedWithCode(0), "");
  EXPECT_EXIT(exit_unless_environment_gives("", available_cpus()), testing::ExitedWithCode(0), "");
  for (const char* bad : {"0", "-2", "two", "3 ", "4x", "99999999999", "1025"}) {
    EXPECT_EXIT(exit_unless_environment_gives(bad, -1), testing::ExitedWithCode(0), "") << bad;
  }
}

TEST(AvailableCpus, FollowsTheAffinityMask) {
  const int before = available_cpus();
  EXPECT_GE(before, 1);
  int pinned = 0;
  std::thread([&] {
    cpu_set_t allowed, one;
    sched_getaffinity(0, sizeof(allowed), &allowed);
    CPU_ZERO(&one);
    for (int cpu = 0; cpu < CPU_SETSIZE; ++cpu) {
      if (!CPU_ISSET(cpu, &allowed)) continue;
      CPU_SET(cpu, &one);
      break;
    }
    sched_setaffinity(0, sizeof(one), &one);
    pinned = available_cpus();
  }).join();
  EXPECT_EQ(pinned, 1);
  EXPECT_EQ(available_cpus(), before);
}

class CgroupTest : public testing::Test {
 protected:
  void SetUp() override {
    root_ = std::filesystem::path(testing::TempDir()) / ("aicf_cgroup_" + std::to_string(getpid()));
    std::filesystem::remove_all(root_);
  }
  void TearDown() override { std::filesystem::remove_all(root_); }
  void write(const std::string& file, const std::string& text) {
    std::filesystem::create_directories((root_ / file).parent_path());
    std::ofstream(root_ / file) << text;
  }
  int limit(const std::string& membership) const { return cgroup_cpu_limit(membership, root_.string()); }

  std::filesystem::path root_;
};

TEST_F(CgroupTest, NoQuota) {
  EXPECT_EQ(limit(""), 0);
  EXPECT_EQ(limit("garbage\n1:\n:::\n"), 0);
  EXPECT_EQ(limit("0::/somewhere\n"), 0);
  write("a/cpu.max", "max 100000\n");
  EXPECT_EQ(limit("0::/a\n"), 0);
  write("cpu/b/cpu.cfs_quota_us", "-1\n");
  write("cpu/b/cpu.cfs_period_us", "100000\n");
  EXPECT_EQ(limit("3:cpu,cpuacct:/b\n"), 0);
}

TEST_F(CgroupTest, Version2TakesTheTightestAncestor) {
  write("a/cpu.max", "200000 100000\n");
  write("a/b/cpu.max", "max 100000\n");
  write("a/b/c/cpu.max", "800000 100000\n");
  EXPECT_EQ(limit("0::/a/b/c\n"), 2);
  write("a/b/c/cpu.max", "50000 100000\n");
  EXPECT_EQ(limit("0::/a/b/c\n"), 1);
}

TEST_F(CgroupTest, PathOfAnotherNamespaceFallsBackToTheRoot) {
  write("cpu.max", "350000 100000\n");
  EXPECT_EQ(limit("0::/docker/abc\n"), 3);
}

TEST_F(CgroupTest, Version1) {
  write("cpu/job/cpu.cfs_quota_us", "400000\n");
  write("cpu/job/cpu.cfs_period_us", "100000\n");
  EXPECT_EQ(limit("9:name=systemd:/job\n4:cpuset:/job\n3:cpu,cpuacct:/job\n0::/job\n"), 4);
  EXPECT_EQ(limit("4:cpuset:/job\n5:cpuacct:/job\n"), 0);
}

}  // namespace
}  // namespace aicf::base
