// The CUDA backend: the device, its memory, and what the plugin exports.
#include <cublasLt.h>
#include <cuda_runtime_api.h>
#include <fmt/format.h>
#include <nvrtc.h>

#include <algorithm>

#include "aicf/error.h"
#include "backend/cuda/code.h"
#include "backend/cuda/compile.h"
#include "backend/cuda/device.h"
#include "backend/cuda/error.h"
#include "backend/cuda/kernels.h"
#include "backend/cuda/queue.h"

namespace aicf::backend::cuda {
namespace {

constexpr int kOldestArchitecture = 80;

Device find_device() {
  Device found;
  int count = 0;
  const cudaError_t status = cudaGetDeviceCount(&count);
  cudaGetLastError();
  if (status != cudaSuccess || count == 0) {
    found.unusable = "no CUDA device";
    if (status != cudaSuccess) found.unusable += fmt::format(" ({})", cudaGetErrorString(status));
    return found;
  }
  cudaDeviceProp properties{};
  if (cudaGetDeviceProperties(&properties, 0) != cudaSuccess) {
    found.unusable = "no CUDA device (its properties cannot be read)";
    return found;
  }
  found.name = properties.name;
  const int architecture = properties.major * 10 + properties.minor;
  found.architecture = fmt::format("sm_{}", architecture);
  found.multiprocessors = properties.multiProcessorCount;
  cudaDriverGetVersion(&found.driver);
  if (architecture < kOldestArchitecture) {
    found.unusable = fmt::format("{} has compute capability {}.{}, and 8.0 is the least that is supported", found.name,
                                 properties.major, properties.minor);
  }
  return found;
}

std::string version_text(int version) { return fmt::format("{}.{}", version / 1000, version % 1000 / 10); }

[[noreturn]] void out_of_memory(size_t bytes) {
  cudaGetLastError();
  size_t left = 0, total = 0;
  const bool known = cudaMemGetInfo(&left, &total) == cudaSuccess;
  throw Error(fmt::format("out of memory on the GPU: {} bytes were asked for{}", bytes,
                          known ? fmt::format(", {} of {} are free", left, total) : ""),
              "use a smaller batch or a smaller model");
}

class CudaBackend : public Backend {
 public:
  std::string_view name() const override { return "cuda"; }

  std::string description() const override {
    int runtime = 0, major = 0, minor = 0;
    cudaRuntimeGetVersion(&runtime);
    nvrtcVersion(&major, &minor);
    const auto lt = static_cast<int>(cublasLtGetVersion());
    return fmt::format("{} ({}), driver for CUDA {}, runtime {}, NVRTC {}.{}, cuBLASLt {}.{}.{}", device().name,
                       device().architecture, version_text(device().driver), version_text(runtime), major, minor,
                       lt / 10000, lt / 100 % 100, lt % 100);
  }

  std::string unusable() const override { return device().unusable; }
  std::span<const Kernel> kernels() const override { return kernel_table(); }

  bool concurrent() const override { return true; }

  void link(std::span<PreparedKernel* const> kernels) override {
    std::vector<Generated*> generated;
    for (PreparedKernel* kernel : kernels) {
      auto* code = static_cast<Code*>(kernel->code.get());
      if (code == nullptr) continue;
      for (Generated& g : code->kernels) {
        if (g.function == nullptr) generated.push_back(&g);
      }
    }
    const OnDevice scope;
    link_kernels(generated, device().architecture, device().unusable.empty());
  }

  void* allocate(size_t bytes) override {
    const OnDevice scope;
    void* memory = nullptr;
    const size_t some = std::max<size_t>(bytes, 1);
    cudaError_t status = cudaMalloc(&memory, some);
    if (status == cudaErrorMemoryAllocation) out_of_memory(bytes);
    check(status, "allocating memory");
    // On the legacy stream, which the stores' streams do not wait for.
    status = cudaMemset(memory, 0, some);
    if (status == cudaSuccess) status = cudaStreamSynchronize(cudaStreamLegacy);
    if (status != cudaSuccess) release(memory);
    check(status, "clearing memory");
    return memory;
  }
  void release(void* memory) noexcept override {
    cudaFree(memory);
    cudaGetLastError();
  }

  void* allocate_host(size_t bytes) override {
    const OnDevice scope;
    void* memory = nullptr;
    const cudaError_t status = cudaHostAlloc(&memory, std::max<size_t>(bytes, 1), cudaHostAllocDefault);
    if (status == cudaErrorMemoryAllocation) {
      cudaGetLastError();
      throw Error(fmt::format("out of memory: {} bytes of pinned host memory were asked for", bytes));
    }
    check(status, "allocating pinned memory");
    return memory;
  }
  void release_host(void* memory) noexcept override {
    cudaFreeHost(memory);
    cudaGetLastError();
  }

  std::unique_ptr<Queue> make_queue() override {
    const OnDevice scope;
    return std::make_unique<CudaQueue>();
  }
};

}  // namespace

Backend& backend() {
  // Never destroyed: a store of static storage may still release memory at exit.
  static Backend& instance = *new CudaBackend;
  return instance;
}

const Device& device() {
  static const Device& found = *new Device(find_device());
  return found;
}

OnDevice::OnDevice() {
  if (cudaGetDevice(&callers_) != cudaSuccess || callers_ != 0) cudaSetDevice(0);
  cudaGetLastError();
}
OnDevice::~OnDevice() {
  if (callers_ != 0) cudaSetDevice(callers_);
}

}  // namespace aicf::backend::cuda

extern "C" __attribute__((visibility("default")))
const aicf::backend::PluginEntry aicf_plugin = {AICF_BUILD_ID, [] { return &aicf::backend::cuda::backend(); }};
