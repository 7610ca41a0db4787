// Copies of a strided view into a dense result: what transpose, slice and broadcast come down to.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "backend/api.h"

namespace aicf::backend::cpu {

// Result element (i0, i1, …) is source element offset + Σ ik·strides[k].
struct StridedCopy {
  int64_t element = 0;           // bytes
  std::vector<int64_t> dims;     // of the result: no extent 1, neighbours merged where the source allows; at least one
  std::vector<int64_t> strides;  // in elements; 0 repeats
  int64_t offset = 0;
};

// The copy kernel for this view of operand 0. An axis along which the source is dense but the result is not is walked
// in tiles, so that both sides use whole cache lines. An empty result has no phases.
PreparedKernel prepare_strided(const KernelQuery& query, const std::vector<int64_t>& strides, int64_t offset = 0);

// Elements from one to the next along each axis of a dense tensor.
std::vector<int64_t> dense_strides(const Shape& shape);

}  // namespace aicf::backend::cpu
