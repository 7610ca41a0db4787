#include "backend/cpu/tile_reduce.h"

#include <algorithm>

#include "backend/cpu/reduce_tree.h"

namespace aicf::backend::cpu {
namespace {

template <class T>
struct Of {
  static void rows(ReduceKind kind, const void* x, size_t rows, size_t n, void* out) {
    const ReduceTree<T>& tree = reduce_tree<T>(kind);
    if (n <= kRowBlock) return tree.rows(static_cast<const T*>(x), rows, n, static_cast<T*>(out));
    T blocks[kRowLanes];
    for (size_t r = 0; r < rows; ++r) {
      const T* const row = static_cast<const T*>(x) + r * n;
      size_t count = 0;
      for (size_t from = 0; from < n; from += kRowBlock) {
        blocks[count++] = tree.row_block(row + from, std::min(kRowBlock, n - from));
      }
      static_cast<T*>(out)[r] = cpu::combine_blocks(tree, blocks, count);
    }
  }
  static void identity(ReduceKind kind, void* acc, size_t n) {
    std::fill_n(static_cast<T*>(acc), n, reduce_tree<T>(kind).identity);
  }
  static void column_rows(ReduceKind kind, void* acc, const void* x, size_t rows, size_t pitch, size_t columns) {
    reduce_tree<T>(kind).column_rows(static_cast<T*>(acc), static_cast<const T*>(x), rows, pitch, columns);
  }
  static void combine_blocks(ReduceKind kind, void* results, size_t count, void* out) {
    *static_cast<T*>(out) = cpu::combine_blocks(reduce_tree<T>(kind), static_cast<T*>(results), count);
  }
  static void combine_chunks(ReduceKind kind, void* results, size_t count, size_t pitch, size_t columns) {
    for (size_t c = 0; c < columns; c += kColumnTile) {
      cpu::combine_chunks(reduce_tree<T>(kind), static_cast<T*>(results) + c, count, pitch,
                          std::min(kColumnTile, columns - c));
    }
  }
  static constexpr TreeFns kFns = {rows, identity, column_rows, combine_blocks, combine_chunks};
};

}  // namespace

DType reduced_in(DType dtype) { return dtype == bf16 || dtype == f16 ? f32 : dtype; }

const TreeFns& tree_fns(DType dtype) {
  switch (dtype) {
    case DType::f64:
      return Of<double>::kFns;
    case DType::i64:
      return Of<int64_t>::kFns;
    case DType::i32:
      return Of<int32_t>::kFns;
    case DType::u8:
    case DType::boolean:
      return Of<uint8_t>::kFns;
    default:
      return Of<float>::kFns;
  }
}

}  // namespace aicf::backend::cpu
