// A cache of one's own for each test: what it holds is what the test put there.
#pragma once

#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <vector>

namespace aicf::test {

class CacheFolderTest : public ::testing::Test {
 protected:
  void SetUp() override {
    folder_ = std::filesystem::path(::testing::TempDir()) / "aicf_cache";
    std::filesystem::remove_all(folder_);
    setenv("AICF_CACHE_DIR", folder_.c_str(), 1);
  }
  void TearDown() override {
    unsetenv("AICF_CACHE_DIR");
    std::filesystem::remove_all(folder_);
  }

  std::vector<std::filesystem::path> entries() const {
    std::vector<std::filesystem::path> found;
    if (!std::filesystem::exists(folder_)) return found;
    for (const auto& entry : std::filesystem::recursive_directory_iterator(folder_)) {
      if (entry.is_regular_file()) found.push_back(entry.path());
    }
    return found;
  }

  std::filesystem::path folder_;
};

}  // namespace aicf::test
