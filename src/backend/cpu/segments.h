// The bytes of one tensor as rows of segments that belong to several others: concat reads them, split writes them.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "backend/api.h"
#include "backend/cpu/partition.h"

namespace aicf::backend::cpu {

struct Segments {
  std::vector<int64_t> begin;  // of each part's bytes in a row of the whole; the row's length at the end
  int64_t total = 0;           // bytes of the whole
};

// `parts` are cut from `whole` along `axis`.
Segments segments_of(std::span<const TensorType> parts, const TensorType& whole, int axis);

// Calls copy(part, offset in the part, offset in the whole, bytes) for every piece of the range of the whole's bytes.
template <class Copy>
void for_segments(const Segments& s, Range range, Copy copy) {
  const int64_t row_bytes = s.begin.back();
  while (range.begin < range.end) {
    const int64_t row = range.begin / row_bytes;
    int64_t at = range.begin % row_bytes;
    size_t part = std::upper_bound(s.begin.begin(), s.begin.end(), at) - s.begin.begin() - 1;
    for (; at < row_bytes && range.begin < range.end; ++part) {
      const int64_t length = s.begin[part + 1] - s.begin[part];
      const int64_t n = std::min(s.begin[part + 1] - at, range.end - range.begin);
      if (n == 0) continue;
      copy(part, row * length + at - s.begin[part], range.begin, n);
      at += n;
      range.begin += n;
    }
  }
}

}  // namespace aicf::backend::cpu
