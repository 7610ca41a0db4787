// Kernels that compute each element of their results from the elements of the same index of their operands: a pointwise
// op, a fused region of them, or (no op at all) a copy of a view.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "backend/api.h"
#include "backend/cuda/code.h"
#include "ir/op.h"

namespace aicf::backend::cuda {

// Scalar ops over named values. Value i is operand i; then come the ops' results, in order.
struct Region {
  // Element (i0, i1, …) is at offset + Σ ik·strides[k] of the buffer.
  struct Operand {
    DType dtype = DType::f32;
    std::vector<int64_t> strides;  // one per axis of the shape, in elements; 0 repeats
    int64_t offset = 0;
    int buffer = 0;  // of the launch
  };
  struct Op {
    const ir::OpDef* def = nullptr;  // pointwise
    DType result = DType::f32;
    std::vector<int> values;  // its operands
  };
  // Dense and of the whole shape. It may share the storage of an operand of its type and the same strides: a thread
  // reads all its operands before it writes.
  struct Result {
    int value = 0;
    int buffer = 0;
  };
  std::string what;  // for messages
  Shape shape;
  std::vector<Operand> operands;
  std::vector<Op> ops;
  std::vector<Result> results;  // at least one
};

// The kernel of a region; none when the shape has no elements. REQUIRES: no f64 but in copies.
std::vector<Generated> elementwise(const Region& region);

// The copy of a view of buffer 0 into a dense buffer 1.
std::vector<Generated> strided_copy(const KernelQuery& query, const std::vector<int64_t>& strides, int64_t offset = 0);

}  // namespace aicf::backend::cuda
