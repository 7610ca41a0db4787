// Running the command line in a folder of its own, and what it said.
#pragma once

#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <functional>
#include <sstream>
#include <string>
#include <vector>

#include "aicf/data.h"

namespace aicf {

namespace fs = std::filesystem;

const std::string kRecipe = AICF_SOURCE_DIR "/recipes/fashion-mlp.toml";

struct Result {
  int code = -1;
  std::string out, err;
};

inline std::string contents(const fs::path& path) {
  std::ifstream file(path, std::ios::binary);
  std::stringstream text;
  text << file.rdbuf();
  return text.str();
}

class Cli : public testing::Test {
 protected:
  void SetUp() override {
    folder_ = fs::temp_directory_path() / ("aicf_cli_" + std::to_string(getpid()));
    fs::create_directories(folder_);
  }
  void TearDown() override { fs::remove_all(folder_); }

  std::string path(const std::string& name) const { return (folder_ / name).string(); }

  Result run(const std::string& arguments) const {
    const std::string command =
        std::string(AICF_CLI) + " " + arguments + " >" + path("out") + " 2>" + path("err") + " </dev/null";
    const int status = std::system(command.c_str());
    return {WIFEXITED(status) ? WEXITSTATUS(status) : -1, contents(path("out")), contents(path("err"))};
  }

  // Exit code 2 and one line on standard error holding all the words.
  void refuses(const std::string& arguments, const std::vector<std::string>& words) const {
    const Result r = run(arguments);
    EXPECT_EQ(r.code, 2) << arguments << "\n" << r.err;
    EXPECT_EQ(std::count(r.err.begin(), r.err.end(), '\n'), 1) << r.err;
    for (const std::string& word : words)
      EXPECT_NE(r.err.find(word), std::string::npos) << arguments << "\n" << r.err << "lacks " << word;
  }

  std::string recipe(const std::string& text) const {
    std::ofstream(path("r.toml")) << text;
    return path("r.toml");
  }

  // A copy of the data set with one file changed.
  std::string data_with(const std::string& file, const std::function<std::string(std::string)>& change) const {
    const fs::path to = folder_ / "data";
    fs::remove_all(to);
    fs::create_directories(to);
    for (const auto& entry : fs::directory_iterator(kFashionMnistFolder)) {
      const std::string name = entry.path().filename().string();
      if (name == file) {
        std::ofstream(to / name, std::ios::binary) << change(contents(entry.path()));
      } else {
        fs::create_symlink(entry.path(), to / name);
      }
    }
    return "--set data.path=" + to.string();
  }

  fs::path folder_;
};

}  // namespace aicf
