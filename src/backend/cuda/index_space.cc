#include "backend/cuda/index_space.h"

#include <fmt/format.h>

namespace aicf::backend::cuda {
namespace {

// Of the devices this is tuned for; others are served by about as many.
constexpr int64_t kMultiprocessors = 132;

bool joins(const std::vector<std::vector<int64_t>>& merged, const std::vector<std::vector<int64_t>>& strides, int axis,
           int64_t extent) {
  for (size_t k = 0; k < strides.size(); ++k) {
    if (merged[k].back() != strides[k][axis] * extent) return false;
  }
  return true;
}

}  // namespace

IndexSpace merged(const Shape& shape, std::vector<std::vector<int64_t>> strides) {
  IndexSpace space;
  space.strides.resize(strides.size());
  for (int i = 0; i < shape.rank(); ++i) {
    if (shape[i] == 1) continue;
    if (!space.dims.empty() && joins(space.strides, strides, i, shape[i])) {
      space.dims.back() *= shape[i];
      for (size_t k = 0; k < strides.size(); ++k) space.strides[k].back() = strides[k][i];
    } else {
      space.dims.push_back(shape[i]);
      for (size_t k = 0; k < strides.size(); ++k) space.strides[k].push_back(strides[k][i]);
    }
  }
  if (space.dims.empty()) {
    space.dims.push_back(1);
    for (std::vector<int64_t>& s : space.strides) s.push_back(1);
  }
  return space;
}

std::vector<int64_t> dense_strides(const Shape& shape) {
  std::vector<int64_t> strides(static_cast<size_t>(shape.rank()));
  int64_t stride = 1;
  for (int i = shape.rank() - 1; i >= 0; --i) {
    strides[i] = stride;
    stride *= shape[i];
  }
  return strides;
}

std::vector<int64_t> broadcast_strides(const Shape& from, const Shape& to) {
  const std::vector<int64_t> dense = dense_strides(from);
  const int added = to.rank() - from.rank();
  std::vector<int64_t> strides(static_cast<size_t>(to.rank()), 0);
  for (int i = 0; i < from.rank(); ++i) {
    if (from[i] != 1) strides[added + i] = dense[i];
  }
  return strides;
}

// Below 2^31, so that the excess of a last block does not wrap.
IndexText::IndexText(int64_t largest) : wide_(largest >= int64_t{1} << 31) {}

std::string IndexText::number(int64_t value) const { return fmt::format("{}{}", value, wide_ ? "ull" : "u"); }

std::string IndexText::thread(int threads) const {
  return fmt::format("(({})blockIdx.x * {} + threadIdx.x)", type(), number(threads));
}

std::string IndexText::coordinates(const std::vector<int64_t>& dims, const std::string& index,
                                   const std::string& name) const {
  std::string text, rest = index;
  for (size_t k = dims.size(); k-- > 0;) {
    if (k == 0) {
      text += fmt::format("const {} {}0 = {};\n", type(), name, rest);
    } else {
      const std::string n = number(dims[k]), next = fmt::format("{}_{}", name, k);
      text +=
          fmt::format("const {} {} = {} / {}, {}{} = {} - {} * {};\n", type(), next, rest, n, name, k, rest, next, n);
      rest = next;
    }
  }
  return text;
}

std::string IndexText::offset(const std::vector<int64_t>& strides, const std::string& name, int64_t offset) const {
  std::string text;
  for (size_t k = 0; k < strides.size(); ++k) {
    if (strides[k] == 0) continue;
    text += (text.empty() ? "" : " + ") + fmt::format("{}{}", name, k);
    if (strides[k] != 1) text += " * " + number(strides[k]);
  }
  if (offset != 0 || text.empty()) text += (text.empty() ? "" : " + ") + number(offset);
  return text;
}

Grid grid_for(int64_t items) {
  int threads = 256;
  while (threads > 64 && items < 2 * kMultiprocessors * threads) threads /= 2;
  return {(items + threads - 1) / threads, threads};
}

}  // namespace aicf::backend::cuda
