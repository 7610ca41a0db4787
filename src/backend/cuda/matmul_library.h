// A matmul as a call of cuBLASLt.
#pragma once

#include <cuda_runtime_api.h>

#include <functional>
#include <string>

#include "backend/api.h"

namespace aicf::backend::cuda {

inline constexpr const char* kLibrary = "cublasLt";

struct LibraryMatmul {
  // Enqueues it. Buffers: A, B, the result, workspace. Throws Error when the library refuses.
  std::function<void(cudaStream_t stream, void* const* buffers)> run;
  std::string variant;
  size_t workspace_bytes = 0;
  std::string choice;  // note_choice() of it: the variant and the algorithm, whole
};

// Whether this known_choice() is one of the library's.
bool is_of_library(const std::string& choice);

// Where there is no library, it is one that throws when it is run. Throws Error when no algorithm of the library runs.
// REQUIRES: operands and result are not empty.
LibraryMatmul library_matmul(const KernelQuery& matmul);

}  // namespace aicf::backend::cuda
