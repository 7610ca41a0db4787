// Checkpoints of a program that another thread steps: each is of one moment between two steps, and none disturbs a bit.
#include <gtest/gtest.h>

#include <atomic>
#include <thread>

#include "aicf/checkpoint.h"
#include "io/files.h"
#include "support/programs.h"

namespace aicf {
namespace {

constexpr int kSteps = 60;

Program compiled(test::SmallMlp& m) { return compile(m.model, {.loss = m.loss, .optimizer = optim::AdamW{.lr = 0.1}}); }

TEST(CheckpointThreads, SavingWhileStepping) {
  std::vector<NamedTensors> states;  // by steps done
  {
    test::SmallMlp m;
    Program p = compiled(m);
    for (int i = 0; i <= kSteps; ++i) {
      states.push_back(p.snapshot());
      if (i < kSteps) p.step(test::feeds_of(test::small_mlp_batch(i)));
    }
  }
  const tests::TempFolder folder;
  CheckpointFolder checkpoints(folder.path(), 0);
  test::SmallMlp m;
  Program p = compiled(m);
  std::atomic<bool> done = false;
  std::thread trainer([&] {
    for (int i = 0; i < kSteps; ++i) {
      p.step(test::feeds_of(test::small_mlp_batch(i)));
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
    done = true;
  });
  while (!done) checkpoints.save_in_background(take_checkpoint(p));
  trainer.join();
  checkpoints.save(take_checkpoint(p));
  EXPECT_EQ(p.snapshot(), states[kSteps]);
  const std::vector<CheckpointFile> files = checkpoints.files();
  EXPECT_GT(files.size(), 3u);
  for (const CheckpointFile& file : files) {
    EXPECT_EQ(read_checkpoint(file.path).tensors, states.at(static_cast<size_t>(file.step))) << file.step;
  }
}

// The snapshot is the writer's own: steps, writes and resets that follow do not reach it.
TEST(CheckpointThreads, ASnapshotIsOfItsMoment) {
  const tests::TempFolder folder;
  CheckpointFolder checkpoints(folder.path(), 0);
  test::SmallMlp m;
  Program p = compiled(m);
  std::vector<NamedTensors> states;
  for (int i = 0; i < 20; ++i) {
    states.push_back(p.snapshot());
    checkpoints.save_in_background(take_checkpoint(p));
    p.step(test::feeds_of(test::small_mlp_batch(i)));
  }
  checkpoints.wait();
  const std::vector<CheckpointFile> files = checkpoints.files();
  ASSERT_EQ(files.size(), states.size());
  for (const CheckpointFile& file : files) {
    EXPECT_EQ(read_checkpoint(file.path).tensors, states[static_cast<size_t>(file.step)]) << file.step;
  }
}

}  // namespace
}  // namespace aicf
