// One matmul as strided-batched products of row-major matrices.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "backend/api.h"

namespace aicf::backend::cuda {

// A leading axis of the result, and how far apart, in elements, the matrices of its indices lie: 0 where an operand is
// broadcast.
struct MatmulAxis {
  int64_t extent = 1, a = 0, b = 0, out = 0;
};

// Products (m × k)·(k × n) of row-major matrices, one for each index of the axes, whose results follow one another. A
// transposed operand is stored the other way round.
struct MatmulGrid {
  int64_t m = 0, n = 0, k = 0;
  bool ta = false, tb = false;
  std::vector<MatmulAxis> axes;  // the fewest: those that share their strides are one
  int64_t products() const;
};

// REQUIRES: the query is of a matmul. Rows of several products of one matrix B are rows of one product.
MatmulGrid matmul_grid(const KernelQuery& query);

// Each call: `batch` products (m × k)·(k × n), whose matrices lie these strides apart. A transposed operand is stored
// the other way round. All in elements.
struct MatmulShape {
  int64_t m = 0, n = 0, k = 0;
  bool ta = false, tb = false;
  int64_t batch = 1;
  int64_t a_stride = 0, b_stride = 0, out_stride = 0;
  // Where the first matrices of each call start.
  struct Call {
    int64_t a = 0, b = 0, out = 0;
    bool operator==(const Call&) const = default;
  };
  std::vector<Call> calls;
};

// The fewest calls: the longest axis of the grid is the batch. REQUIRES: the result is not empty.
MatmulShape matmul_shape(const KernelQuery& query);

// The same products one a call.
MatmulShape unbatched(const MatmulShape& shape);

}  // namespace aicf::backend::cuda
