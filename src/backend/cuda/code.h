// What the CUDA backend runs for a kernel: generated kernels, compiled by NVRTC when a plan is linked, or a library
// call.
#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "backend/api.h"

namespace aicf::backend::cuda {

struct Module;

// One generated kernel and how it is launched. The text may use everything in prelude.h and nothing else; sizes and
// strides are constants in it. Kernels with equal text are compiled once.
struct Generated {
  // A parameter and the launch's buffer it takes, from a byte on: {"const float* x", 0}. The guard is added by the
  // linker, and with the guard false no thread runs the body.
  struct Param {
    std::string declaration;
    int buffer = 0;
    size_t offset = 0;
  };
  std::string what;  // "add(f32[3], f32[3])": for messages
  std::vector<Param> params;
  bool table = false;   // the parameters come as one, `table.at[i]`, a void* each
  std::string body;     // of the __global__ function
  std::string helpers;  // device functions of its own, put into the kernel's own namespace
  int64_t blocks = 0;
  int threads = 256;
  // Blocks that are to fit a multiprocessor; 0: as many as the compiler sees fit. 1 gives each thread all the registers
  // that it can use, so that many loads are in flight.
  int min_blocks = 0;
  // Of shared memory, 16-byte aligned, that the text knows as the u8* `pool`: kernels merged into one share it.
  int pool_bytes = 0;

  // Filled in by the linker.
  const void* function = nullptr;  // of a kernel loaded on the device
  std::shared_ptr<const Module> module = nullptr;
};

struct Code : DeviceCode {
  // Run one after another, after the library's work if there is any.
  std::vector<Generated> kernels;
  // Enqueues work on the stream and nothing else. Throws Error when the library refuses. Buffers are as in KernelArgs.
  std::function<void(cudaStream_t stream, void* const* buffers)> library;
};

// A prepared kernel of generated code. An empty list is nothing to do.
PreparedKernel prepared(std::vector<Generated> kernels, size_t workspace_bytes = 0);

}  // namespace aicf::backend::cuda
