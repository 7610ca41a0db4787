// The one reduction tree of the CPU backend. Its shape depends on the number of elements and on the axis kind only, so
// the vector width, the thread count and the target change no bit.
//
// Row kind (the reduced elements are adjacent): blocks of 4096. In a block of n elements there are w lanes, w the
// smallest power of two >= min(n, 64); each starts from the identity, element i joins lane i mod w in order, and the
// lanes are combined by halves: lane j with lane j + w/2, and so on to one. Column kind (they are `pitch` apart):
// chunks of 64 rows; each starts from the identity and takes its rows in order. While there is more than one block or
// chunk, their results are reduced by the same rule.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>

namespace aicf::backend::cpu {

inline constexpr size_t kRowBlock = 4096;
inline constexpr size_t kRowLanes = 64;
inline constexpr size_t kColumnChunk = 64;
inline constexpr size_t kColumnTile = 256;  // columns worked on together; of no consequence to the result

enum class ReduceKind : uint8_t { sum, prod, max, min };

// The leaves of the tree for one kind of reduction of T.
template <class T>
struct ReduceTree {
  T identity;
  // The result of one block, 0 < n <= kRowBlock.
  T (*row_block)(const T* x, size_t n);
  // acc[c] = acc[c] ∘ x[c] ∘ x[c + pitch] ∘ … over `rows` rows.
  void (*column_rows)(T* acc, const T* x, size_t rows, size_t pitch, size_t columns);
};

// T: float, double, int32_t, int64_t; and uint8_t, for max and min only (of bools: any and all).
template <class T>
const ReduceTree<T>& reduce_tree(ReduceKind kind);

inline size_t blocks_of(size_t n, size_t block) { return (n + block - 1) / block; }

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
