// The reduction tree (backend/reduce_tree.h) as device text, for every kernel that reduces.
#pragma once

#include <string>

#include "aicf/dtype.h"
#include "backend/reduce_tree.h"

namespace aicf::backend::cuda {

// Helpers of a kernel that reduces elements of `dtype`:
//   Acc, what it is reduced in; combine(a, b); identity()
//   of_group<G>(v), G adjacent threads of a warp, G a power of two: their v combined by halves, in each of them
//   row_block<In, G, V, L, U>(x, n, t), a block of n <= kRowBlock adjacent elements, in each of the G threads t = 0 …
//   G-1 of_lanes<G>(lane), what such a block comes to from the lanes (v * G + t) * L + l of each thread, lane[v][l]
//   of_blocks<D>(x, n, 0, t), a row from the results of its n <= kRowBlock^D blocks, in each thread t of a warp
//   column_rows<In, L, U>(acc, x, rows, pitch), L adjacent columns, acc[l] taking `rows` elements `pitch` apart in
//   order
// All threads of a warp call them together, column_rows apart; their results are equal. In is what load() widens. A
// thread moves L elements at a time, for which x is aligned and n or pitch a multiple of L, and U moves are in flight.
std::string reduce_text(ReduceKind kind, DType dtype);

// How row_block<In, G, V, L, U> shares out a block of at most `n` elements: G * V * L lanes.
struct RowSplit {
  int threads = 1;  // G
  int vectors = 1;  // V, of each thread
  int length = 1;   // L
  int unroll = 1;   // U
  // For rows of n elements of `size` bytes each, one after another, cut into blocks; `blocks` of them in all.
  static RowSplit of(int64_t n, size_t size, int64_t blocks);
};

}  // namespace aicf::backend::cuda
