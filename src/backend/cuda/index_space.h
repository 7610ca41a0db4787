// The elements of a result and where those of its operands are, as text: what elementwise kernels and copies share.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "aicf/shape.h"

namespace aicf::backend::cuda {

// The axes of a dense result, at least one, and for each operand the elements from one index to the next along them (0:
// it repeats).
struct IndexSpace {
  std::vector<int64_t> dims;
  std::vector<std::vector<int64_t>> strides;
};

// The space with no extent 1 and with adjacent axes merged where every operand allows it. REQUIRES: elements.
IndexSpace merged(const Shape& shape, std::vector<std::vector<int64_t>> strides);

// Elements from one to the next along each axis of a dense tensor.
std::vector<int64_t> dense_strides(const Shape& shape);
// Those of an operand that broadcasts to `to`, along the axes of `to`.
std::vector<int64_t> broadcast_strides(const Shape& from, const Shape& to);

// Unsigned arithmetic on indices in generated text: 32 bits where they do.
class IndexText {
 public:
  // REQUIRES: no index or offset beyond `largest`.
  explicit IndexText(int64_t largest);
  const char* type() const { return wide_ ? "u64" : "u32"; }
  std::string number(int64_t value) const;
  // The thread's number in the grid.
  std::string thread(int threads) const;
  // Statements that define NAME0, NAME1, …: the coordinates of element `index`, a name, in a dense tensor of these
  // extents.
  std::string coordinates(const std::vector<int64_t>& dims, const std::string& index, const std::string& name) const;
  // offset + Σ NAMEk·strides[k].
  std::string offset(const std::vector<int64_t>& strides, const std::string& name, int64_t offset = 0) const;

 private:
  bool wide_;
};

// A grid of at least `items` threads: in small blocks while there are too few to occupy every multiprocessor.
struct Grid {
  int64_t blocks = 0;
  int threads = 0;
};
Grid grid_for(int64_t items);

}  // namespace aicf::backend::cuda
