// Where the elements of a broadcast operand are, by the linear index of the result (numpy rules, ranks 0–8).
#pragma once

#include <cstddef>
#include <cstdint>

#include "aicf/shape.h"

namespace aicf::backend::cpu {

class BroadcastMap {
 public:
  BroadcastMap() = default;
  // REQUIRES: `from` broadcasts to `to`.
  BroadcastMap(const Shape& from, const Shape& to);

  // The result repeats the whole operand: a scalar, a row over rows, a bias over an image. Its elements: period().
  bool repeats_within(int64_t limit) const { return repeats_ && period_ <= limit; }
  int64_t period() const { return period_; }

  // The operand has the result's elements, in order.
  bool is_dense() const { return rank_ == 1 && strides_[0] == 1; }
  // The run of `n` elements from linear index `begin`, if it lies in one piece in memory; else null.
  const void* contiguous(const void* data, size_t size, int64_t begin, size_t n) const;
  // Writes that run to `out`. `size`: bytes of an element, 1, 2, 4 or 8.
  void expand(const void* data, size_t size, void* out, int64_t begin, size_t n) const;

 private:
  template <class T>
  void expand_as(const T* data, T* out, int64_t begin, size_t n) const;

  // Adjacent axes are merged where they can be, so a dense operand has rank 1 and stride 1.
  int rank_ = 0;
  int64_t dims_[kMaxRank] = {};
  int64_t strides_[kMaxRank] = {};  // in elements; 0 where the operand repeats
  bool repeats_ = false;
  int64_t period_ = 1;
};

}  // namespace aicf::backend::cpu
