// The cache on disk. The file under test needs nothing of CUDA and is built in here.
#include <gtest/gtest.h>

#include <cstdlib>
#include <fstream>
#include <string>
#include <vector>

#include "backend/cuda/cache.cc"
#include "support/cache_folder.h"

namespace aicf::backend::cuda {
namespace {

namespace fs = std::filesystem;

using CudaCache = test::CacheFolderTest;

TEST_F(CudaCache, KeepsBytesByKindAndKey) {
  const std::string bytes("a\0b\n\xff", 5);
  EXPECT_EQ(read_cache("cubin", "key"), "");
  write_cache("cubin", "key", bytes);
  EXPECT_EQ(read_cache("cubin", "key"), bytes);
  EXPECT_EQ(read_cache("matmul", "key"), "");
  EXPECT_EQ(read_cache("cubin", "another key"), "");
  write_cache("cubin", "key", "new");
  EXPECT_EQ(read_cache("cubin", "key"), "new");
  EXPECT_EQ(entries().size(), 1u) << "a temporary file is left";
}

TEST_F(CudaCache, IgnoresWhatIsTornOrChanged) {
  write_cache("cubin", "key", "content");
  const fs::path file = entries().at(0);
  const auto size = static_cast<int64_t>(fs::file_size(file));
  std::string all(static_cast<size_t>(size), '\0');
  std::ifstream(file, std::ios::binary).read(all.data(), size);
  for (size_t cut = 0; cut < all.size(); ++cut) {
    std::ofstream(file, std::ios::binary) << all.substr(0, cut);
    EXPECT_EQ(read_cache("cubin", "key"), "") << "cut to " << cut << " bytes";
  }
  for (size_t i = 0; i < all.size(); ++i) {
    std::string changed = all;
    changed[i] = static_cast<char>(changed[i] ^ 1);
    std::ofstream(file, std::ios::binary) << changed;
    EXPECT_EQ(read_cache("cubin", "key"), "") << "byte " << i << " changed";
  }
  std::ofstream(file, std::ios::binary) << all;
  EXPECT_EQ(read_cache("cubin", "key"), "content");
}

// Another key's entry in the place of this one's, as where hashes collide.
TEST_F(CudaCache, TakesNoOtherKeysEntry) {
  write_cache("cubin", "one", "content");
  const fs::path one = entries().at(0);
  write_cache("cubin", "two", "other");
  for (const fs::path& file : entries()) {
    if (file != one) fs::copy_file(one, file, fs::copy_options::overwrite_existing);
  }
  EXPECT_EQ(read_cache("cubin", "one"), "content");
  EXPECT_EQ(read_cache("cubin", "two"), "");
}

TEST_F(CudaCache, AFolderThatCannotBeUsedIsDoneWithout) {
  std::ofstream(folder_) << "a file";
  write_cache("cubin", "key", "content");
  EXPECT_EQ(read_cache("cubin", "key"), "");
  fs::remove(folder_);
}

TEST_F(CudaCache, LiesWhereTheEnvironmentSays) {
  EXPECT_EQ(cache_folder(), folder_);
  unsetenv("AICF_CACHE_DIR");
  setenv("XDG_CACHE_HOME", "/elsewhere", 1);
  EXPECT_EQ(cache_folder(), "/elsewhere/aicf");
  unsetenv("XDG_CACHE_HOME");
  EXPECT_TRUE(cache_folder().empty() || cache_folder().filename() == "aicf");
}

}  // namespace
}  // namespace aicf::backend::cuda
