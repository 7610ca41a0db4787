// A training process killed at any moment: its checkpoints read, and the run goes on to the bits of one that was never
// disturbed. AICF_KILLS says how often (25).
#include <gtest/gtest.h>

#include <chrono>
#include <random>

#include "cli/run.h"

namespace aicf {
namespace {

using Crash = RunTest;

TEST_F(Crash, KilledAtRandomMoments) {
  const char* asked = std::getenv("AICF_KILLS");
  const int kills = asked != nullptr ? std::atoi(asked) : 25;
  std::mt19937 random(kills);
  using Clock = std::chrono::steady_clock;
  const Clock::time_point begin = Clock::now();
  const pid_t first = start({"--out", path("run"), "--steps", "100000000", "--checkpoint-every", "1"});
  ASSERT_NO_FATAL_FAILURE(wait_for_checkpoint(first, "run"));
  const auto start_up = std::chrono::duration_cast<std::chrono::microseconds>(Clock::now() - begin).count();
  kill(first, SIGKILL);
  wait_for(first);

  int64_t reached = 0;
  int advanced = 0, early = 0;
  for (int i = 0; i < kills; ++i) {
    const bool begun = !checkpoints("run").empty();
    const pid_t child = start({begun ? "--resume" : "--out", path("run"), "--steps", "100000000", "--checkpoint-every",
                               std::to_string(1 + random() % 3), "--keep", std::to_string(1 + random() % 3)});
    // From before the first step to well into the steps, on a machine of any speed.
    usleep(static_cast<useconds_t>(random() % static_cast<uint64_t>(3 * start_up)));
    kill(child, SIGKILL);
    const int status = wait_for(child);
    ASSERT_TRUE(WIFSIGNALED(status)) << contents(path("log"));
    // Each one there, not the newest alone, is whole.
    int64_t newest_step = -1;
    for (const std::string& file : checkpoints("run")) newest_step = std::max(newest_step, *read_checkpoint(file).step);
    ASSERT_GE(newest_step, begun ? reached : -1) << "after kill " << i;
    advanced += newest_step > reached;
    early += newest_step <= reached;
    reached = std::max(reached, newest_step);
  }
  std::printf("%d kills: %d after a new checkpoint, %d before one; step %lld\n", kills, advanced, early,
              static_cast<long long>(reached));
  ASSERT_GT(advanced, kills / 8) << "kills that came too early tell little";
  const std::string until = std::to_string(reached + 13);
  const std::string said = train({"--resume", path("run"), "--steps", until});
  EXPECT_EQ(said.find("damaged"), std::string::npos) << said;
  train({"--out", path("whole"), "--steps", until});
  expect_same("whole", "run");
  for (const auto& entry : fs::directory_iterator(path("run"))) {
    EXPECT_FALSE(entry.path().filename().string().starts_with(".aicf-")) << entry.path();
  }
}

}  // namespace
}  // namespace aicf
