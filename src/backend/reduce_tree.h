// The one reduction tree of all backends. Its shape depends on the number of elements and on the axis kind only, so the
// vector width, the number of threads and the device change no bit.
//
// Row kind (the reduced elements are adjacent): blocks of 1024. In a block of n elements there are w lanes, w the
// smallest power of two >= min(n, 64); each starts from the identity, element i joins lane i mod w in order, and the
// lanes are combined by halves: lane j with lane j + w/2, and so on to one. Column kind (they are `pitch` apart):
// chunks of 64 rows; each starts from the identity and takes its rows in order. While there is more than one block or
// chunk, their results are reduced by the same rule.
//
// More lanes than w would give the same bits: one without elements holds the identity, which changes nothing that
// began with it. Sums, products and extremes commute bit for bit, NaN payloads apart.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>

namespace aicf::backend {

inline constexpr size_t kRowBlock = 1024;
inline constexpr size_t kRowLanes = 64;
inline constexpr size_t kColumnChunk = 64;

enum class ReduceKind : uint8_t { sum, prod, max, min };

// Of reduce_sum, reduce_prod, reduce_max and reduce_min.
inline ReduceKind reduce_kind(std::string_view op) {
  return op == "reduce_sum"    ? ReduceKind::sum
         : op == "reduce_prod" ? ReduceKind::prod
         : op == "reduce_max"  ? ReduceKind::max
                               : ReduceKind::min;
}

constexpr size_t blocks_of(size_t n, size_t block) { return (n + block - 1) / block; }

}  // namespace aicf::backend
