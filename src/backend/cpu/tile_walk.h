// Where the elements of a run of a space lie in memory.
#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

namespace aicf::backend::cpu {

class Walk {
 public:
  Walk() = default;
  // Element (i0, i1, …) of a space of these extents is at offset + Σ ik·strides[k].
  Walk(const std::vector<int64_t>& dims, const std::vector<int64_t>& strides, int64_t offset) : offset_(offset) {
    for (size_t k = 0; k < dims.size(); ++k) {
      if (dims[k] == 1) continue;
      if (!dims_.empty() && strides_.back() == strides[k] * dims[k]) {
        dims_.back() *= dims[k];
        strides_.back() = strides[k];
      } else {
        dims_.push_back(dims[k]);
        strides_.push_back(strides[k]);
      }
    }
  }

  // Any run of the space is one run of memory.
  bool is_dense() const { return dims_.empty() || (dims_.size() == 1 && strides_[0] == 1); }
  int64_t offset() const { return offset_; }

  // Calls f(position, first, step, count) for the pieces of elements begin … begin + n - 1: in each, element i of the
  // run from `position` on is at first + i·step.
  template <class F>
  void pieces(int64_t begin, int64_t n, F f) const {
    blocks(begin, n, [&](int64_t position, int64_t first, int64_t step, int64_t count, int64_t rows, int64_t pitch) {
      for (int64_t r = 0; r < rows; ++r) f(position + r * count, first + r * pitch, step, count);
    });
  }

  // The same with neighbouring pieces together: f(position, first, step, count, rows, pitch) is for as many pieces as
  // there are rows, one after another, each of which starts `pitch` after the one before.
  template <class F>
  void blocks(int64_t begin, int64_t n, F f) const {
    if (dims_.empty()) return f(0, offset_, int64_t{0}, n, int64_t{1}, int64_t{0});
    const size_t last = dims_.size() - 1;
    int64_t coordinate[kMaxAxes], at = offset_, rest = begin;
    for (size_t k = dims_.size(); k-- > 0;) {
      coordinate[k] = k == 0 ? rest : rest % dims_[k];
      rest = k == 0 ? 0 : rest / dims_[k];
      at += coordinate[k] * strides_[k];
    }
    for (int64_t position = 0;;) {
      const int64_t left = n - position;
      int64_t rows = 1, count = dims_[last] - coordinate[last];
      if (count > left) {
        count = left;
      } else if (last > 0 && coordinate[last] == 0) {
        rows = std::min(left / count, dims_[last - 1] - coordinate[last - 1]);
      }
      const int64_t pitch = last > 0 ? strides_[last - 1] : 0;
      f(position, at, strides_[last], count, rows, pitch);
      position += rows * count;
      if (position == n) return;
      at -= coordinate[last] * strides_[last];
      coordinate[last] = 0;
      for (size_t k = last; k-- > 0;) {
        const int64_t steps = k + 1 == last ? rows : 1;
        at += steps * strides_[k];
        coordinate[k] += steps;
        if (coordinate[k] < dims_[k]) break;
        at -= dims_[k] * strides_[k];
        coordinate[k] = 0;
      }
    }
  }

 private:
  static constexpr size_t kMaxAxes = 64;
  // Extents of 1 left out, neighbours merged.
  std::vector<int64_t> dims_, strides_;
  int64_t offset_ = 0;
};

}  // namespace aicf::backend::cpu
