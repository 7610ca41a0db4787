// CUDA and library status codes as errors.
#pragma once

#include <cuda_runtime_api.h>

#include <string>

namespace aicf::backend::cuda {

// Throws Error "CUDA: WHAT: …" unless success. An error that the driver will repeat for ever says that the process must
// be restarted; any other is cleared, so that the process stays usable.
void check(cudaError_t status, const char* what);

}  // namespace aicf::backend::cuda
