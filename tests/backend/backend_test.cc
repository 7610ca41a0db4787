// The CPU backend's memory, launches and floating-point state, and finding a backend by name.
#include <gtest/gtest.h>
#include <unistd.h>
#include <xmmintrin.h>

#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <memory>
#include <string>
#include <vector>

#include "aicf/error.h"
#include "backend/api.h"

namespace aicf::backend {
namespace {

TEST(CpuBackend, MemoryIsAlignedAndZero) {
  for (const size_t bytes : {size_t{0}, size_t{1}, size_t{255}, size_t{256}, size_t{1000001}}) {
    void* memory = cpu_backend().allocate(bytes);
    ASSERT_NE(memory, nullptr);
    EXPECT_EQ(reinterpret_cast<uintptr_t>(memory) % 256, 0u);
    const std::vector<unsigned char> zeros(bytes, 0);
    std::vector<unsigned char> got(bytes, 1);
    if (bytes > 0) std::memcpy(got.data(), memory, bytes);
    EXPECT_EQ(got, zeros);
    std::memset(memory, 0xFF, bytes);  // so that memory used again must be cleared again
    cpu_backend().release(memory);
  }
}

TEST(CpuBackend, TooMuchMemoryIsAnError) {
  for (const size_t bytes : {SIZE_MAX, SIZE_MAX - 300, size_t{1} << 50}) {
    try {
      cpu_backend().allocate(bytes);
      ADD_FAILURE() << bytes;
    } catch (const Error& error) {
      const std::string message = error.what();
      EXPECT_TRUE(message.starts_with("out of memory: ")) << message;
      EXPECT_NE(message.find(std::to_string(bytes)), std::string::npos) << message;
      EXPECT_FALSE(error.hint().empty());
    }
  }
}

void append_part(const KernelArgs& args, int part, int parts) {
  auto* log = static_cast<std::vector<int>*>(args.buffers[0]);
  log->push_back(*static_cast<const int*>(args.params) * 100 + parts * 10 + part);
}

PreparedKernel logging_kernel(int id, int parts) {
  return {
      .variant = "log", .phases = {{append_part, parts}, {append_part, 1}}, .params = std::make_shared<const int>(id)};
}

TEST(CpuBackend, RunsLaunchesAndPhasesInOrder) {
  std::vector<int> log;
  void* const buffers[] = {&log};
  const PreparedKernel first = logging_kernel(1, 2), second = logging_kernel(2, 1);
  const std::vector<BoundLaunch> launches = {{&first, buffers, nullptr}, {&second, buffers, nullptr}};
  run_on_cpu(launches, 1);
  EXPECT_EQ(log, (std::vector<int>{120, 121, 110, 210, 210}));
}

TEST(CpuBackend, AFalseGuardSkipsTheLaunch) {
  std::vector<int> log;
  void* const buffers[] = {&log};
  const PreparedKernel kernel = logging_kernel(1, 1);
  const uint8_t no = 0, yes = 1;
  const std::vector<BoundLaunch> launches = {{&kernel, buffers, &no}, {&kernel, buffers, &yes}};
  run_on_cpu(launches, 1);
  EXPECT_EQ(log.size(), 2u);
}

// A guard may be computed by an earlier launch of the same list.
TEST(CpuBackend, GuardsAreReadWhenTheirLaunchComes) {
  static uint8_t guard = 0;
  const PreparedKernel set = {.variant = "set", .phases = {{[](const KernelArgs&, int, int) { guard = 1; }, 1}}};
  std::vector<int> log;
  void* const buffers[] = {&log};
  const PreparedKernel kernel = logging_kernel(1, 1);
  const std::vector<BoundLaunch> launches = {{&set, buffers, nullptr}, {&kernel, buffers, &guard}};
  run_on_cpu(launches, 1);
  EXPECT_EQ(log.size(), 2u);
}

TEST(CpuBackend, FlushesSubnormalsAndRestoresTheCaller) {
  static unsigned inside = 0;
  const PreparedKernel kernel = {.variant = "state",
                                 .phases = {{[](const KernelArgs&, int, int) { inside = _mm_getcsr(); }, 1}}};
  const unsigned before = _mm_getcsr();
  const BoundLaunch launch = {&kernel, nullptr, nullptr};
  run_on_cpu({&launch, 1}, 1);
  EXPECT_EQ(inside & 0x8040u, 0x8040u);
  EXPECT_EQ(_mm_getcsr(), before);
}

TEST(CpuBackend, DescribesItself) {
  EXPECT_EQ(cpu_backend().name(), "cpu");
  EXPECT_NE(cpu_backend().description().find(" thread"), std::string::npos);
}

// The message, with the hint after a newline.
std::string failure(const char* name) {
  try {
    find(name);
  } catch (const Error& error) {
    return std::string(error.what()) + "\n" + error.hint();
  }
  return "none";
}

class FindTest : public testing::Test {
 protected:
  void SetUp() override {
    if (failure("cuda").find("was not found") == std::string::npos) {
      GTEST_SKIP() << "the plugin is next to the library, and is found first";
    }
  }
  void TearDown() override { unsetenv("AICF_PLUGIN_PATH"); }
};

TEST(Find, Cpu) { EXPECT_EQ(&find("cpu"), &cpu_backend()); }

TEST_F(FindTest, CudaSaysWhatWasLookedForAndWhere) {
  setenv("AICF_PLUGIN_PATH", "/no/such/folder::/another", 1);
  const std::string message = failure("cuda");
  for (const char* part :
       {"libaicf_cuda.so", "libaicf.so", "AICF_PLUGIN_PATH", "/no/such/folder, /another", "\nuse --backend cpu"}) {
    EXPECT_NE(message.find(part), std::string::npos) << message;
  }
  unsetenv("AICF_PLUGIN_PATH");
  EXPECT_NE(failure("cuda").find("AICF_PLUGIN_PATH (not set)"), std::string::npos);
}

TEST_F(FindTest, CudaNeverCallsAPresentFileMissing) {
  const auto folder = std::filesystem::path(testing::TempDir()) / ("aicf_plugin_" + std::to_string(getpid()));
  std::filesystem::create_directories(folder);
  std::ofstream(folder / "libaicf_cuda.so") << "not a library";
  setenv("AICF_PLUGIN_PATH", folder.c_str(), 1);
  const std::string message = failure("cuda");
  std::filesystem::remove_all(folder);
  EXPECT_NE(message.find(folder.string()), std::string::npos) << message;
  EXPECT_EQ(message.find("not found"), std::string::npos) << message;
}

TEST(Find, AnotherNameListsTheNames) {
  const std::string message = failure("rocm");
  for (const char* part : {"cpu", "cuda", "\"rocm\""}) EXPECT_NE(message.find(part), std::string::npos) << message;
}

bool accept_all(const KernelQuery&) { return true; }
bool accept_none(const KernelQuery&) { return false; }
double cost_one(const KernelQuery&) { return 1; }
double cost_two(const KernelQuery&) { return 2; }

TEST(Choose, TakesTheCheapestThatAccepts) {
  const ir::OpDef def = {.name = "op"};
  const ir::Attrs attrs;
  const KernelQuery query = {def, attrs, {}, {}};
  const std::vector<Kernel> kernels = {{"other", "free", accept_all, nullptr, nullptr},
                                       {"op", "dear", accept_all, cost_two, nullptr},
                                       {"op", "unfit", accept_none, nullptr, nullptr},
                                       {"op", "cheap", accept_all, cost_one, nullptr},
                                       {"op", "equal", accept_all, cost_one, nullptr}};
  EXPECT_EQ(choose(kernels, query), &kernels[3]);
  EXPECT_EQ(choose({kernels.data(), 1}, query), nullptr);
}

}  // namespace
}  // namespace aicf::backend
