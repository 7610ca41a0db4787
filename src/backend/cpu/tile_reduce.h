// The reduction tree by dtype, for callers that hold elements of any type.
#pragma once

#include "aicf/dtype.h"
#include "backend/reduce_tree.h"

namespace aicf::backend::cpu {

// The dtype in which elements of `dtype` are reduced: f32 for 16-bit floats.
DType reduced_in(DType dtype);

struct TreeFns {
  // out[r] = the result of row r of `rows` rows of n <= kRowLanes * kRowBlock adjacent elements.
  void (*rows)(ReduceKind, const void* x, size_t rows, size_t n, void* out);
  void (*identity)(ReduceKind, void* acc, size_t n);
  // acc[c] takes element c of `rows` rows that are `pitch` apart.
  void (*column_rows)(ReduceKind, void* acc, const void* x, size_t rows, size_t pitch, size_t columns);
  // The result of a row from those of its blocks, which are overwritten.
  void (*combine_blocks)(ReduceKind, void* results, size_t count, void* out);
  // As combine_chunks in reduce_tree.h, for any number of columns.
  void (*combine_chunks)(ReduceKind, void* results, size_t count, size_t pitch, size_t columns);
};
// REQUIRES: dtype == reduced_in(dtype).
const TreeFns& tree_fns(DType dtype);

}  // namespace aicf::backend::cpu
