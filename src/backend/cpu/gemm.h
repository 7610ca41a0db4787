// The packed GEMM: how one matmul of f32 matrices is cut into phases and parts. Everything is decided from the sizes.
#pragma once

#include <cstdint>
#include <vector>

#include "backend/api.h"
#include "backend/cpu/matmul_staging.h"

namespace aicf::backend::cpu {

// A batch of products C[i] = A[a_matrix[i]]·B[b_matrix[i]], each (m × k)·(k × n). A transposed operand is stored the
// other way round.
struct MatmulDims {
  int64_t m = 0, n = 0, k = 0;
  bool ta = false, tb = false;
  std::vector<int64_t> a_matrix, b_matrix;  // by product
  int64_t a_matrices = 0, b_matrices = 0;   // stored
  MatmulStaging staging = {};
  int64_t batch() const { return static_cast<int64_t>(a_matrix.size()); }
  bool empty() const { return batch() == 0 || m == 0 || n == 0; }
};

// Phases between the staging's own.
PreparedKernel prepare_packed_matmul(const MatmulDims& dims);
// An estimate, in microseconds on one thread.
double packed_matmul_cost(const MatmulDims& dims);

}  // namespace aicf::backend::cpu
