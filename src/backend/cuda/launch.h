// Enqueues the work of a bound launch on a stream.
#pragma once

#include <cuda_runtime_api.h>

#include "backend/api.h"

namespace aicf::backend::cuda {

// Neither waits nor allocates. Throws Error when CUDA or a library refuses.
void enqueue(const BoundLaunch& launch, cudaStream_t stream);

}  // namespace aicf::backend::cuda
