// The main of tests that need a GPU: without one, or without the plugin, they say so and exit with 77, which is neither
// passed nor failed. With AICF_COMPILE_ONLY set, tests that can compile their kernels do that alone.
#include <gtest/gtest.h>

#include <cstdio>
#include <cstdlib>

#include "aicf/error.h"
#include "backend/api.h"

int main(int argc, char** argv) {
  ::testing::InitGoogleTest(&argc, argv);
  try {
    if (std::getenv("AICF_COMPILE_ONLY") != nullptr) {
      aicf::backend::find_compiler("cuda");
    } else {
      aicf::backend::find("cuda");
    }
  } catch (const aicf::Error& error) {
    std::printf("no CUDA device: %s\n", error.what());
    return 77;
  }
  return RUN_ALL_TESTS();
}
