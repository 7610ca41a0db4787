// aicf train stopped and resumed: by the end, a signal, a damaged file, a full disk.
#include <gtest/gtest.h>

#include "aicf/safetensors.h"
#include "cli/run.h"

namespace aicf {
namespace {

using Resume = RunTest;

bool has(const std::string& text, const std::string& part) { return text.find(part) != std::string::npos; }

TEST_F(Resume, ARunInPiecesIsTheRunInOne) {
  for (const std::string mode : {"graph", "eager"}) {
    SCOPED_TRACE(mode);
    const std::string whole = "whole-" + mode, parts = "parts-" + mode;
    train({"--out", path(whole), "--steps", "48", "--mode", mode});
    train({"--out", path(parts), "--steps", "16", "--checkpoint-every", "5", "--mode", mode});
    EXPECT_EQ(checkpoints(parts).size(), 3u) << "10, 15 and 16";
    for (const char* until : {"24", "32", "48"}) {
      train({"--resume", path(parts), "--steps", until, "--checkpoint-every", "7", "--keep", "1", "--mode", mode});
      EXPECT_EQ(checkpoints(parts).size(), 1u);
      std::ofstream(path(parts + "/.aicf-1-1.tmp")) << "left by a crash";
    }
    const std::string again = train({"--resume", path(parts), "--steps", "48", "--keep", "1", "--mode", mode});
    EXPECT_TRUE(has(again, "0 steps in")) << again;
    EXPECT_FALSE(fs::exists(path(parts + "/.aicf-1-1.tmp")));
    // The end of each piece was an evaluation, which belongs to no later run: the resumed one has cut it off.
    expect_same(whole, parts);
  }
}

// On the data set kept with the program, many steps a call: the bits of batches fed one by one, whichever way the run
// began and goes on, from the middle of an epoch (8 steps) too.
TEST_F(Resume, AnAttachedDataSetIsTheFedOne) {
  const auto in_pieces = [&](const std::string& run, const std::string& mode, const std::vector<std::string>& attach) {
    const std::vector<std::string> until = {"13", "30", "47", "75"};
    for (size_t i = 0; i < until.size(); ++i) {
      const std::string said = train({i == 0 ? "--out" : "--resume", path(run), "--steps", until[i], "--mode", mode,
                                      "--checkpoint-every", "5", "--attach", attach[i]});
      const bool on = attach[i] == "on";
      EXPECT_TRUE(has(said, on ? "data: 64 examples, 6.2 KiB in the memory of " : "fed batch by batch")) << said;
      EXPECT_EQ(newest(run).step, std::stoi(until[i]));
    }
  };
  train({"--out", path("straight"), "--steps", "75", "--attach", "on"});
  in_pieces("fed", "graph", {"off", "off", "off", "off"});
  EXPECT_EQ(newest("straight").tensors, newest("fed").tensors);
  EXPECT_EQ(newest("straight").data, newest("fed").data);
  in_pieces("attached", "graph", {"on", "on", "on", "on"});
  expect_same("fed", "attached");
  in_pieces("mixed", "graph", {"on", "off", "on", "off"});
  expect_same("fed", "mixed");
  in_pieces("eager", "eager", {"off", "on", "on", "off"});
  expect_same("fed", "eager");
}

TEST_F(Resume, ARecordOfAnAttachedDataSetIsThatOfAFedOne) {
  for (const char* attach : {"on", "off"}) {
    train({"--steps", "301", "--record", path(attach), "--attach", attach});
  }
  EXPECT_EQ(read_safetensors(path("on")).tensors, read_safetensors(path("off")).tensors);
  refuses("train " + path("r.toml") + " --attach maybe", {"--attach", "maybe"});
}

TEST_F(Resume, ASignalFinishesTheStepSavesAndExits130) {
  struct Case {
    int signal;
    const char* attach;
  };
  for (const auto& [signal, attach] : {Case{SIGINT, "off"}, Case{SIGTERM, "off"}, Case{SIGINT, "on"}}) {
    const std::string run = std::string("run") + attach + std::to_string(signal), whole = "whole-" + run;
    const pid_t child = start({"--out", path(run), "--checkpoint-every", "10", "--attach", attach});
    ASSERT_NO_FATAL_FAILURE(wait_for_checkpoint(child, run));
    usleep(20000);
    kill(child, signal);
    const int status = wait_for(child);
    EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 130) << contents(path("log"));
    EXPECT_TRUE(has(contents(path("log")), "--resume " + path(run))) << contents(path("log"));
    const int64_t done = newest(run).step.value();
    EXPECT_TRUE(has(contents(path("log")), "interrupted after step " + std::to_string(done)));
    EXPECT_EQ(read_safetensors(path(run + "/weights.safetensors")).metadata.at("step"), std::to_string(done));
    const std::string until = std::to_string(done + 20);
    EXPECT_TRUE(has(train({"--resume", path(run), "--steps", until}), "resumed after step " + std::to_string(done)));
    train({"--out", path(whole), "--steps", until});
    expect_same(whole, run);
  }
}

TEST_F(Resume, ADamagedNewestIsSaidAndTheOneBeforeContinued) {
  train({"--out", path("whole"), "--steps", "40"});
  train({"--out", path("run"), "--steps", "30", "--checkpoint-every", "6"});
  const std::string damaged = checkpoints("run")[0];
  fs::resize_file(damaged, fs::file_size(damaged) - 1);
  const std::string said = train({"--resume", path("run"), "--steps", "40"});
  EXPECT_TRUE(has(said, "damaged, set aside: ") && has(said, damaged)) << said;
  EXPECT_TRUE(has(said, "falling back to " + path("run/checkpoint-00000024.safetensors"))) << said;
  EXPECT_TRUE(has(said, "resumed after step 24")) << said;
  expect_same("whole", "run");

  for (const std::string& file : checkpoints("run")) fs::resize_file(file, 10);
  refuses("train " + path("r.toml") + " --resume " + path("run"), {"none of its 3 checkpoints", "00000040"});
  EXPECT_EQ(checkpoints("run").size(), 3u);
}

TEST_F(Resume, AFullDiskIsOneErrorAndTheRunGoesOnLater) {
  train({"--out", path("whole"), "--steps", "40"});
  train({"--out", path("run"), "--steps", "16"});
  const std::string before = contents(checkpoints("run")[0]);
  // Blocks of 512 bytes: less than a checkpoint, more than all else that is written.
  const std::string limited = "sh -c 'trap \"\" XFSZ; ulimit -f 12; exec " AICF_CLI " train " + path("r.toml") +
                              " --resume " + path("run") + " --steps 40 --checkpoint-every 4' >" + path("out") + " 2>" +
                              path("err");
  const int status = std::system(limited.c_str());
  const std::string error = contents(path("err"));
  EXPECT_EQ(WEXITSTATUS(status), 2) << error;
  EXPECT_EQ(std::count(error.begin(), error.end(), '\n'), 1) << error;
  EXPECT_TRUE(has(error, path("run/checkpoint-00000020.safetensors")) && has(error, "File too large")) << error;
  ASSERT_EQ(checkpoints("run").size(), 1u);
  EXPECT_EQ(contents(checkpoints("run")[0]), before);
  train({"--resume", path("run"), "--steps", "40"});
  expect_same("whole", "run");
}

// Whatever would be chosen now, a resumed run computes its products as the saved one; unless it is told not to.
TEST_F(Resume, TheSavedKernelsGoOn) {
  const auto on_cpu = [&](std::vector<std::string> arguments) {
    arguments.insert(arguments.end(), {"--backend", "cpu"});  // whose variants are named here
    return train(arguments);
  };
  on_cpu({"--out", path("whole"), "--steps", "16"});
  const auto usual = newest("whole").kernels;
  Checkpoint other = newest("whole");
  for (auto& [product, choice] : other.kernels) choice = choice == "packed" ? "reference" : "packed";
  ASSERT_FALSE(other.kernels.empty());
  write_checkpoint(checkpoints("whole")[0], other);
  for (const char* run : {"parts", "retuned"}) fs::copy(path("whole"), path(run));

  const std::string said = on_cpu({"--resume", path("whole"), "--steps", "40"});
  EXPECT_FALSE(has(said, "other kernels")) << said;
  EXPECT_EQ(newest("whole").kernels, other.kernels);
  on_cpu({"--resume", path("parts"), "--steps", "24"});
  on_cpu({"--resume", path("parts"), "--steps", "40"});
  expect_same("whole", "parts");

  const std::string retuned = on_cpu({"--resume", path("retuned"), "--steps", "40", "--retune"});
  EXPECT_TRUE(has(retuned, "--retune: ") && has(retuned, "not bit for bit")) << retuned;
  EXPECT_TRUE(has(retuned, "run by other kernels than when saved")) << retuned;
  EXPECT_EQ(newest("retuned").kernels, usual);
  EXPECT_NE(newest("retuned").tensors, newest("whole").tensors);
  refuses("train " + path("r.toml") + " --retune", {"--retune", "--resume"});
}

TEST_F(Resume, SavedHyperParametersWinAndAreTold) {
  train({"--out", path("run"), "--steps", "10"});
  const std::string said = train({"--resume", path("run"), "--steps", "20", "--set", "optimizer.lr=0.5"});
  EXPECT_TRUE(has(said, "optimizer.lr is 0.001 as saved, not 0.5")) << said;
  train({"--out", path("whole"), "--steps", "20"});
  EXPECT_EQ(newest("run").tensors, newest("whole").tensors);
  EXPECT_FALSE(has(train({"--resume", path("run"), "--steps", "21"}), "as saved"));
}

TEST_F(Resume, WhatCannotBeResumedIsRefusedAndLeftAlone) {
  train({"--out", path("run"), "--steps", "10"});
  const std::string before = contents(checkpoints("run")[0]), metrics = contents(path("run/metrics.jsonl"));
  const std::string command = "train " + path("r.toml");
  refuses(command + " --out " + path("run"), {"run", "step 10", "--resume"});
  refuses(command + " --resume " + path("none"), {"--resume", "none"});
  EXPECT_FALSE(fs::exists(path("none")));
  fs::create_directory(path("empty"));
  refuses(command + " --resume " + path("empty"), {"empty", "got none"});
  refuses(command + " --resume " + path("run") + " --out " + path("x"), {"--resume", "--out"});
  refuses(command + " --resume " + path("run") + " --record " + path("x"), {"--resume", "--record"});
  refuses(command + " --checkpoint-every 5", {"--checkpoint-every", "--out"});
  refuses(command + " --out " + path("x") + " --checkpoint-every 0", {"--checkpoint-every"});
  refuses(command + " --out " + path("x") + " --keep -1", {"--keep"});
  refuses(command + " --waive rng", {"--waive", "--resume"});
  refuses(command + " --resume " + path("run") + " --waive rgn", {"rgn", "did you mean rng"});
  refuses(command + " --resume " + path("run") + " --set model.fc1.out=8", {"fc1.weight", "f32[8,24]", "f32[16,24]"});
  refuses(command + " --resume " + path("run") + " --set optimizer.kind=adam", {"structure"});
  refuses(command + " --resume " + path("run") + " --set data.examples=128", {"128 examples", "of 64"});
  EXPECT_EQ(contents(checkpoints("run")[0]), before);
  EXPECT_EQ(contents(path("run/metrics.jsonl")), metrics);
  const std::string steps = " --steps 12 --resume " + path("run");
  EXPECT_EQ(run(command + steps + " --set optimizer.kind=adam --waive structure").code, 0);
}

TEST_F(Resume, ACheckpointIsEvaluatedLikeItsWeights) {
  train({"--out", path("run"), "--steps", "10"});
  const std::string eval = "eval " + path("r.toml") + " --weights ";
  const Result weights = run(eval + path("run/weights.safetensors")), checkpoint = run(eval + checkpoints("run")[0]);
  EXPECT_EQ(weights.code, 0) << weights.err;
  EXPECT_EQ(checkpoint.code, 0) << checkpoint.err;
  EXPECT_EQ(checkpoint.out, weights.out);
}

}  // namespace
}  // namespace aicf
