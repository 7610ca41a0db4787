// The reduction tree (backend/reduce_tree.h) on the CPU: its leaves in vector and scalar code, and how their results
// meet.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>

#include "backend/reduce_tree.h"

namespace aicf::backend::cpu {

inline constexpr size_t kColumnTile = 256;  // columns worked on together; of no consequence to the result

// The leaves of the tree for one kind of reduction of T.
template <class T>
struct ReduceTree {
  T identity;
  // The result of one block, 0 < n <= kRowBlock.
  T (*row_block)(const T* x, size_t n);
  // out[r] = that of row r of `count` adjacent ones.
  void (*rows)(const T* x, size_t count, size_t n, T* out);
  // acc[c] = acc[c] ∘ x[c] ∘ x[c + pitch] ∘ … over `rows` rows.
  void (*column_rows)(T* acc, const T* x, size_t rows, size_t pitch, size_t columns);
};

// T: float, double, int32_t, int64_t; and uint8_t, for max and min only (of bools: any and all).
template <class T>
const ReduceTree<T>& reduce_tree(ReduceKind kind);

// The result of a whole row from the results of its blocks, which it overwrites. count > 0.
template <class T>
T combine_blocks(const ReduceTree<T>& tree, T* results, size_t count) {
  while (count > 1) {
    const size_t blocks = blocks_of(count, kRowBlock);
    for (size_t b = 0; b < blocks; ++b) {
      results[b] = tree.row_block(results + b * kRowBlock, std::min(kRowBlock, count - b * kRowBlock));
    }
    count = blocks;
  }
  return results[0];
}

// The results of columns from those of their chunks, a row of `results` each, `pitch` apart; overwrites them, and
// leaves the answer in the first row. count > 0, columns <= kColumnTile.
template <class T>
void combine_chunks(const ReduceTree<T>& tree, T* results, size_t count, size_t pitch, size_t columns) {
  T acc[kColumnTile];
  while (count > 1) {
    const size_t chunks = blocks_of(count, kColumnChunk);
    for (size_t b = 0; b < chunks; ++b) {
      const size_t first = b * kColumnChunk;
      std::fill_n(acc, columns, tree.identity);
      tree.column_rows(acc, results + first * pitch, std::min(kColumnChunk, count - first), pitch, columns);
      std::copy_n(acc, columns, results + b * pitch);
    }
    count = chunks;
  }
}

}  // namespace aicf::backend::cpu
