// A small run with all that a checkpoint must carry, started as a process that can be killed.
#pragma once

#include <fcntl.h>

#include <csignal>
#include <nlohmann/json.hpp>

#include "aicf/checkpoint.h"
#include "cli/cli.h"

namespace aicf {

// Dropout, a schedule and 8 batches an epoch. The schedule is over after 20 steps, so runs of any length agree.
constexpr const char* kRun = R"(
[data]
kind = "synthetic"
shape = [24]
classes = 10
examples = 64
[[model]]
layer = "linear"
name = "fc1"
out = 16
activation = "relu"
[[model]]
layer = "dropout"
p = 0.3
[[model]]
layer = "linear"
name = "fc2"
out = 10
[optimizer]
kind = "adamw"
lr = 1e-3
[schedule]
kind = "warmup"
warmup_steps = 20
[train]
epochs = 100000
batch = 8
)";

class RunTest : public Cli {
 protected:
  // Starts `aicf train` with kRun and these arguments, its output in the file `log`.
  pid_t start(const std::vector<std::string>& arguments) const {
    std::vector<std::string> words = {AICF_CLI, "train", recipe(kRun)};
    words.insert(words.end(), arguments.begin(), arguments.end());
    std::vector<char*> argv;
    for (std::string& word : words) argv.push_back(word.data());
    argv.push_back(nullptr);
    const std::string log = path("log");
    const pid_t child = fork();
    if (child == 0) {
      const int file = open(log.c_str(), O_WRONLY | O_CREAT | O_TRUNC, 0666);
      dup2(file, STDOUT_FILENO);
      dup2(file, STDERR_FILENO);
      execv(argv[0], argv.data());
      _exit(127);
    }
    EXPECT_GT(child, 0);
    return child;
  }
  static int wait_for(pid_t child) {
    int status = -1;
    EXPECT_EQ(waitpid(child, &status, 0), child);
    return status;
  }
  // Until the run has a checkpoint; fails when the process ends without one.
  void wait_for_checkpoint(pid_t child, const std::string& run) const {
    while (checkpoints(run).empty()) {
      siginfo_t ended{};
      ASSERT_EQ(waitid(P_PID, static_cast<id_t>(child), &ended, WEXITED | WNOHANG | WNOWAIT), 0);
      ASSERT_EQ(ended.si_pid, 0) << contents(path("log"));
      usleep(200);
    }
  }
  // To the end; its output.
  std::string train(const std::vector<std::string>& arguments, int code = 0) const {
    const int status = wait_for(start(arguments));
    EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == code) << contents(path("log"));
    return contents(path("log"));
  }

  // The checkpoints in a folder, newest first.
  std::vector<std::string> checkpoints(const std::string& run) const {
    std::vector<std::string> found;
    if (!fs::exists(path(run))) return found;
    for (const auto& entry : fs::directory_iterator(path(run))) {
      const std::string name = entry.path().filename().string();
      if (name.starts_with("checkpoint-") && name.ends_with(".safetensors")) found.push_back(entry.path());
    }
    std::sort(found.rbegin(), found.rend());
    return found;
  }
  Checkpoint newest(const std::string& run) const {
    const std::vector<std::string> all = checkpoints(run);
    EXPECT_FALSE(all.empty()) << run;
    return all.empty() ? Checkpoint() : read_checkpoint(all[0]);
  }
  // Lines of metrics.jsonl but for the speed.
  std::vector<nlohmann::json> metrics(const std::string& run) const {
    std::vector<nlohmann::json> lines;
    std::istringstream text(contents(path(run + "/metrics.jsonl")));
    for (std::string line; std::getline(text, line);) {
      lines.push_back(nlohmann::json::parse(line));
      lines.back().erase("steps_per_second");
    }
    return lines;
  }
  // The two runs ended in the same bits, and logged the same.
  void expect_same(const std::string& a, const std::string& b) const {
    const Checkpoint first = newest(a), second = newest(b);
    EXPECT_EQ(first.tensors, second.tensors);
    EXPECT_EQ(first.step, second.step);
    EXPECT_EQ(first.data, second.data);
    for (const char* note : {"train.smooth_loss", "train.loss_sum", "train.loss_count"}) {
      EXPECT_EQ(first.notes.at(note), second.notes.at(note)) << note;
    }
    EXPECT_EQ(metrics(a), metrics(b));
    EXPECT_EQ(contents(path(a + "/weights.safetensors")), contents(path(b + "/weights.safetensors")));
  }
};

}  // namespace aicf
