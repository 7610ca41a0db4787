// Kernels that compute each element of their results from elements of their operands: a pointwise op, a fused region of
// them, or (no op at all) a copy of a view.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "backend/api.h"
#include "backend/cuda/code.h"
#include "ops/loops.h"

namespace aicf::backend::cuda {

// The kernel of pointwise loops with elements. Operand k is buffer k of the launch, result r buffer first_result + r.
// A result may share the storage of an operand that is read only where it is written: a thread reads all its operands
// before it writes. REQUIRES: no f64 but in copies.
std::vector<Generated> elementwise(const std::string& what, const ops::Loops& loops, int first_result);

// The loops of a pointwise op, or of a copy from operand 0 (`strides`, `offset`) to a dense result. REQUIRES: elements.
ops::Loops loops_of_op(const KernelQuery& query);
ops::Loops loops_of_copy(const TensorType& to, const std::vector<int64_t>& strides, int64_t offset = 0);

// The copy of a view of buffer 0 into a dense buffer 1.
std::vector<Generated> strided_copy(const KernelQuery& query, const std::vector<int64_t>& strides, int64_t offset = 0);

}  // namespace aicf::backend::cuda
