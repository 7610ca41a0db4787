// Checkpoint files and folders: what is refused, what survives a crash or a full disk, which files are kept.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/file.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <csignal>

#include "aicf/checkpoint.h"
#include "aicf/safetensors.h"
#include "io/files.h"

namespace aicf::tests {
namespace {

Checkpoint sample(int64_t step = 5) {
  Checkpoint c;
  c.tensors = {{"w", Tensor::of<float>({3}, {1, 2, static_cast<float>(step)})},
               {"rng.offset", Tensor::scalar<int64_t>(7)},
               {"ok", Tensor::of<bool>({2}, {true, false})}};
  c.step = step;
  c.data = DataPosition{{UINT64_MAX, 2, 24}, 64};
  c.structure = 0x0123456789abcdef;
  c.backend = "AICF on cpu";
  c.kernels = {{"matmul f32[1,2] f32[2,3]", "packed"}};
  c.notes = {{"mine", "a \"b\"\n\xc3\xa9"}};
  return c;
}

class CheckpointFileTest : public ::testing::Test {
 protected:
  // The message when a file of these contents is read.
  std::string refusal(const std::string& bytes) const {
    return error_of([&] { EXPECT_EQ(checkpoint_of(parse_safetensors(as_bytes(bytes), path_), path_), sample()); });
  }
  // The same of tensors and metadata, the checksum waived.
  std::string refusal(const std::map<std::string, std::string>& metadata) const {
    write_safetensors(path_, sample().tensors, metadata);
    return error_of([&] { read_checkpoint(path_, {"checksum"}); });
  }

  TempFolder folder_;
  const std::string path_ = folder_ / "c.safetensors";
};

TEST_F(CheckpointFileTest, ComesBackWhole) {
  write_checkpoint(path_, sample());
  EXPECT_EQ(read_checkpoint(path_), sample());
  EXPECT_EQ(folder_.entries(), 1u);
  Checkpoint bare;
  bare.tensors = sample().tensors;
  write_checkpoint(path_, bare);
  EXPECT_EQ(read_checkpoint(path_), bare);
  EXPECT_EQ(read_safetensors(path_).tensors, bare.tensors) << "a safetensors file like any other";
}

TEST_F(CheckpointFileTest, EveryFlippedBitIsSeen) {
  write_checkpoint(path_, sample());
  const std::string good = read_file(path_);
  for (size_t i = 0; i < good.size(); ++i) {
    for (int bit = 0; bit < 8; ++bit) {
      std::string bad = good;
      bad[i] = static_cast<char>(bad[i] ^ (1 << bit));
      const std::string message = refusal(bad);
      // White space of the header is no content: a blank may become another.
      if (message.empty()) {
        EXPECT_EQ(good[i], ' ') << i << " " << bit;
      } else {
        expect_contains(message, path_);
      }
    }
  }
}

TEST_F(CheckpointFileTest, EveryShorterFileIsRefused) {
  write_checkpoint(path_, sample());
  const std::string good = read_file(path_);
  for (size_t i = 0; i < good.size(); ++i) EXPECT_NE(refusal(good.substr(0, i)), "") << i;
  EXPECT_NE(refusal(good + '\0'), "");
}

TEST_F(CheckpointFileTest, ContentsEditedByAnotherProgramNeedTheWaiver) {
  write_checkpoint(path_, sample());
  Safetensors file = read_safetensors(path_);
  file.tensors[0].second.as<float>()[0] = 9;
  write_safetensors(path_, file.tensors, file.metadata);
  expect_contains(error_of([&] { read_checkpoint(path_); }), "damaged");
  EXPECT_EQ(read_checkpoint(path_, {"checksum"}).tensors[0].second.at(0), 9);
  file.metadata.erase("aicf.checksum");
  write_safetensors(path_, file.tensors, file.metadata);
  expect_contains(error_of([&] { read_checkpoint(path_); }), "aicf.checksum is missing");
}

TEST_F(CheckpointFileTest, MetadataThatIsNotACheckpoints) {
  expect_contains(refusal(std::map<std::string, std::string>{}), "not a checkpoint");
  expect_contains(refusal({{"format", "pt"}}), "not a checkpoint");
  for (const char* version : {"", "0", "2", "1 ", "01", "99999999999999999999"}) {
    expect_contains(refusal({{"aicf.checkpoint", version}}), "of version 1");
  }
  const std::map<std::string, std::string> data = {{"aicf.checkpoint", "1"},
                                                   {"aicf.data.seed", "0"},
                                                   {"aicf.data.epoch", "0"},
                                                   {"aicf.data.position", "0"},
                                                   {"aicf.data.examples", "0"}};
  ASSERT_EQ(refusal(data), "");
  const auto with = [&](const std::string& key, const std::string& value) {
    auto changed = data;
    changed[key] = value;
    return refusal(changed);
  };
  for (const char* value : {"", " ", "-1", "+1", "1.0", "1e3", "0x1", " 1", "1 ", "18446744073709551616", "nan"}) {
    for (const char* key : {"aicf.step", "aicf.data.seed", "aicf.data.epoch", "aicf.data.position"}) {
      expect_contains(with(key, value), key);
    }
  }
  for (const char* key : {"aicf.step", "aicf.data.epoch", "aicf.data.position", "aicf.data.examples"}) {
    expect_contains(with(key, "4611686018427387905"), key);
    EXPECT_EQ(with(key, "4611686018427387904"), "");
  }
  for (const char* value : {"", "g", "-1", "0x1", "10000000000000000"}) {
    expect_contains(with("aicf.structure", value), "aicf.structure");
  }
  expect_contains(with("aicf.stpe", "1"), "aicf.stpe");
  expect_contains(with("aicf.", "1"), "aicf.");
  for (const auto& [key, value] : data) {
    auto fewer = data;
    fewer.erase(key);
    EXPECT_NE(refusal(fewer), "") << key;
  }
}

TEST_F(CheckpointFileTest, WhatTheFormatCannotHoldIsNotWritten) {
  Checkpoint c = sample();
  c.notes = {{"aicf.mine", "x"}};
  expect_contains(error_of([&] { write_checkpoint(path_, c); }), "aicf.mine");
  c = sample();
  c.step = -1;
  expect_contains(error_of([&] { write_checkpoint(path_, c); }), "aicf.step");
  c = sample();
  c.tensors.push_back(c.tensors[0]);
  expect_contains(error_of([&] { write_checkpoint(path_, c); }), "unique names");
  EXPECT_EQ(folder_.entries(), 0u);
}

// --- folders --------------------------------------------------------------------------------------------------

std::vector<int64_t> steps_in(const CheckpointFolder& folder) {
  std::vector<int64_t> steps;
  for (const CheckpointFile& file : folder.files()) steps.push_back(file.step);
  return steps;
}

TEST(Checkpoints, TheNewestAreKept) {
  const TempFolder folder;
  CheckpointFolder checkpoints(folder / "run/deep", 2);
  for (int64_t step : {8, 9, 10, 100000000, 100000001}) checkpoints.save(sample(step));
  EXPECT_EQ(steps_in(checkpoints), (std::vector<int64_t>{100000001, 100000000}));
  EXPECT_EQ(checkpoints.newest().checkpoint, sample(100000001));
  checkpoints.save(sample(3));
  EXPECT_EQ(steps_in(checkpoints), (std::vector<int64_t>{100000001, 3})) << "what was just written stays";
  CheckpointFolder all(folder / "all", 0);
  for (int64_t step = 0; step < 12; ++step) all.save_in_background(sample(step));
  all.wait();
  EXPECT_EQ(steps_in(all).size(), 12u);
  EXPECT_NE(error_of([&] { CheckpointFolder(folder / "x", -1); }), "");
  Checkpoint stepless = sample();
  stepless.step.reset();
  expect_contains(error_of([&] { all.save(stepless); }), "step");
}

TEST(Checkpoints, OtherFilesAreLeftAlone) {
  const TempFolder folder;
  CheckpointFolder checkpoints(folder.path(), 1);
  const std::vector<std::string> others = {"checkpoint-1.safetensors",
                                           "checkpoint-00000001.safetensors.damaged",
                                           "checkpoint-0000000x.safetensors",
                                           "checkpoint-.safetensors",
                                           "checkpoint--0000001.safetensors",
                                           "notes.txt",
                                           ".aicf-1-0.txt"};
  for (const std::string& name : others) write_file(folder / name, "mine");
  for (int64_t step = 5; step < 9; ++step) checkpoints.save(sample(step));
  EXPECT_EQ(steps_in(checkpoints), (std::vector<int64_t>{8}));
  EXPECT_EQ(folder.entries(), others.size() + 1);
}

TEST(Checkpoints, ADamagedNewestIsNamedSetAsideAndTheOneBeforeIsTaken) {
  const TempFolder folder;
  CheckpointFolder checkpoints(folder.path(), 3);
  for (int64_t step : {1, 2, 3}) checkpoints.save(sample(step));
  const std::string newest = checkpoints.files()[0].path, second = checkpoints.files()[1].path;
  std::string bytes = read_file(newest);
  bytes[bytes.size() - 1] ^= 1;
  write_file(newest, bytes);
  write_file(second, bytes.substr(0, 100));
  const CheckpointFolder::Newest found = checkpoints.newest();
  EXPECT_EQ(found.checkpoint, sample(1));
  ASSERT_EQ(found.damaged.size(), 2u);
  expect_contains(found.damaged[0], newest);
  expect_contains(found.damaged[0], "checksum");
  expect_contains(found.damaged[1], second);
  EXPECT_EQ(read_file(newest + ".damaged"), bytes);
  checkpoints.save(sample(2));
  EXPECT_EQ(steps_in(checkpoints), (std::vector<int64_t>{2, 1})) << "what is saved from here on is the newest";
}

TEST(Checkpoints, WithoutOneThatReadsNothingIsTouched) {
  const TempFolder folder;
  CheckpointFolder checkpoints(folder.path());
  expect_contains(error_of([&] { checkpoints.newest(); }), "got none");
  write_file(folder / "checkpoint-00000004.safetensors", "");
  write_checkpoint(folder / "checkpoint-00000003.safetensors", sample(2));
  expect_contains(error_of([&] { checkpoints.newest(); }), "checkpoint-00000004.safetensors");
  std::filesystem::remove(folder / "checkpoint-00000004.safetensors");
  expect_contains(error_of([&] { checkpoints.newest(); }), "expected step 3 as the name says, got 2");
  EXPECT_EQ(folder.entries(), 1u);
}

TEST(Checkpoints, OneProcessHasAFolder) {
  const TempFolder folder;
  {
    CheckpointFolder first(folder.path());
    expect_contains(error_of([&] { CheckpointFolder second(folder.path()); }), "another process");
    first.save(sample());
  }
  CheckpointFolder third(folder.path());
  EXPECT_EQ(steps_in(third).size(), 1u);
  write_file(folder / "file", "");
  EXPECT_NE(error_of([&] { CheckpointFolder(folder / "file"); }), "");
  EXPECT_NE(error_of([&] { CheckpointFolder("/proc/none/x"); }), "");
}

// A killed writer's temporary goes at the next start; that of a writer at work stays.
TEST(Checkpoints, LeftoversOfAKilledProcessAreRemoved) {
  const TempFolder folder;
  for (int round = 0; round < 50; ++round) {
    const pid_t child = fork();
    ASSERT_GE(child, 0);
    if (child == 0) {
      Checkpoint large = sample();
      large.tensors.emplace_back("large", Tensor(TensorType{f32, {1 << 18}}));
      for (;;) write_checkpoint(folder / "other.safetensors", large);
    }
    usleep(static_cast<useconds_t>(5000 + 300 * round));
    kill(child, SIGKILL);
    waitpid(child, nullptr, 0);
  }
  const size_t left = folder.entries() - 1;
  EXPECT_GT(left, 0u) << "none of 50 kills met a file half written";
  const int held = open((folder / ".aicf-1-0.tmp").c_str(), O_WRONLY | O_CREAT, 0666);
  ASSERT_EQ(flock(held, LOCK_EX), 0);
  { CheckpointFolder checkpoints(folder.path()); }
  EXPECT_EQ(folder.entries(), 2u) << "other.safetensors, and the file that is held";
  close(held);
  { CheckpointFolder checkpoints(folder.path()); }
  EXPECT_EQ(folder.entries(), 1u);
}

// A limit on the size of files fails a write as a full disk does: in the middle.
class Full {
 public:
  explicit Full(rlim_t bytes) {
    getrlimit(RLIMIT_FSIZE, &before_);
    rlimit small = before_;
    small.rlim_cur = bytes;
    handler_ = std::signal(SIGXFSZ, SIG_IGN);
    setrlimit(RLIMIT_FSIZE, &small);
  }
  ~Full() {
    setrlimit(RLIMIT_FSIZE, &before_);
    std::signal(SIGXFSZ, handler_);
  }

 private:
  rlimit before_;
  void (*handler_)(int);
};

TEST(Checkpoints, AFullDiskIsOneErrorAndThePreviousOneSurvives) {
  const TempFolder folder;
  CheckpointFolder checkpoints(folder.path(), 1);
  checkpoints.save(sample(1));
  std::string saved, background, after;
  {
    const Full full(100);
    saved = error_of([&] { checkpoints.save(sample(2)); });
    EXPECT_EQ(error_of([&] { checkpoints.save_in_background(sample(3)); }), "");
    background = error_of([&] { checkpoints.wait(); });
    checkpoints.save_in_background(sample(4));
    after = error_of([&] { checkpoints.save_in_background(sample(5)); });
  }
  expect_contains(saved, folder / "checkpoint-00000002.safetensors");
  expect_contains(saved, "cannot write: File too large");
  expect_contains(background, folder / "checkpoint-00000003.safetensors");
  expect_contains(after, folder / "checkpoint-00000004.safetensors");
  EXPECT_EQ(folder.entries(), 1u) << "no temporary is left";
  EXPECT_EQ(checkpoints.newest().checkpoint, sample(1));
  checkpoints.save(sample(6));
  EXPECT_EQ(checkpoints.newest().checkpoint, sample(6)) << "each error is told once, and it goes on";
}

}  // namespace
}  // namespace aicf::tests
