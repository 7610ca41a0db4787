// The strided copy kernels: rows when the last axis is dense on both sides or neither, tiles otherwise.
#include "backend/cpu/strided.h"

#include <algorithm>
#include <cstring>

#include "backend/cpu/partition.h"

namespace aicf::backend::cpu {
namespace {

// Elements along a tile's side: 256 bytes, so that a page is left before its next line is wanted as seldom as can be,
// and a square that still fits in L1.
template <class T>
constexpr int64_t kTile = sizeof(T) == 1 ? 128 : 256 / sizeof(T);

// A walk over the leading axes of the result: where each index lies in the source and in the result.
class Odometer {
 public:
  Odometer(const StridedCopy& copy, const int* axes, int rank, const int64_t* out_strides, int64_t start)
      : copy_(copy), axes_(axes), rank_(rank), out_strides_(out_strides), source_(copy.offset) {
    for (int i = rank - 1; i >= 0; --i) {
      const int64_t extent = copy.dims[axes[i]];
      index_[i] = start % extent;
      start /= extent;
      source_ += index_[i] * copy.strides[axes[i]];
      result_ += index_[i] * out_strides[axes[i]];
    }
  }

  int64_t source() const { return source_; }
  int64_t result() const { return result_; }

  void next() {
    for (int i = rank_ - 1; i >= 0; --i) {
      const int axis = axes_[i];
      source_ += copy_.strides[axis];
      result_ += out_strides_[axis];
      if (++index_[i] < copy_.dims[axis]) return;
      source_ -= index_[i] * copy_.strides[axis];
      result_ -= index_[i] * out_strides_[axis];
      index_[i] = 0;
    }
  }

 private:
  const StridedCopy& copy_;
  const int* axes_;
  int rank_;
  const int64_t* out_strides_;
  int64_t source_;
  int64_t result_ = 0;
  int64_t index_[kMaxRank] = {};
};

struct Plan {
  StridedCopy copy;
  int64_t out_strides[kMaxRank] = {};
  int outer_axes[kMaxRank] = {};  // the axes that are neither the last nor the tiled one
  int outer_rank = 0;
  int64_t outer = 1;  // product of their extents
  int tiled = -1;     // the axis with source stride 1, when it is not the last
};

Plan plan_of(StridedCopy copy) {
  Plan plan;
  const int rank = static_cast<int>(copy.dims.size());
  if (copy.strides[rank - 1] > 1) {
    for (int i = 0; i < rank - 1; ++i) {
      if (copy.strides[i] == 1) plan.tiled = i;
    }
  }
  int64_t stride = 1;
  for (int i = rank - 1; i >= 0; --i) {
    plan.out_strides[i] = stride;
    stride *= copy.dims[i];
  }
  for (int i = 0; i < rank - 1; ++i) {
    if (i == plan.tiled) continue;
    plan.outer_axes[plan.outer_rank++] = i;
    plan.outer *= copy.dims[i];
  }
  plan.copy = std::move(copy);
  return plan;
}

template <class T>
void copy_run(T* to, const T* from, int64_t n, int64_t stride) {
  if (stride == 1) {
    std::memcpy(to, from, static_cast<size_t>(n) * sizeof(T));
  } else if (stride == 0) {
    std::fill(to, to + n, *from);
  } else {
    for (int64_t i = 0; i < n; ++i) to[i] = from[i * stride];
  }
}

// Elements of the result in order, in runs along its last axis.
template <class T>
void run_rows(const KernelArgs& args, int part, int parts) {
  const Plan& plan = *static_cast<const Plan*>(args.params);
  const T* from = static_cast<const T*>(args.buffers[0]);
  T* to = static_cast<T*>(args.buffers[1]);
  const int64_t last = plan.copy.dims.back(), stride = plan.copy.strides.back();
  Range range = share(plan.outer * last, part, parts);
  Odometer at(plan.copy, plan.outer_axes, plan.outer_rank, plan.out_strides, range.begin / last);
  for (int64_t column = range.begin % last; range.begin < range.end; column = 0, at.next()) {
    const int64_t n = std::min(last - column, range.end - range.begin);
    copy_run(to + range.begin, from + at.source() + column * stride, n, stride);
    range.begin += n;
  }
}

// Both sides are walked along their own lines, by way of a square that fits in L1: lines a power of two apart would
// evict each other before they are used up.
template <class T>
void copy_tile(T* to, int64_t to_stride, const T* from, int64_t from_stride, int64_t rows, int64_t columns) {
  T square[kTile<T> * kTile<T>];
  for (int64_t c = 0; c < columns; ++c) {
    for (int64_t r = 0; r < rows; ++r) square[r * kTile<T> + c] = from[c * from_stride + r];
  }
  for (int64_t r = 0; r < rows; ++r) {
    std::memcpy(to + r * to_stride, square + r * kTile<T>, static_cast<size_t>(columns) * sizeof(T));
  }
}

template <class T>
int64_t tiles_along(int64_t extent) {
  return (extent + kTile<T> - 1) / kTile<T>;
}

// Tiles of the tiled axis (rows here) by the last axis (columns), for each index of the other axes.
template <class T>
void run_tiles(const KernelArgs& args, int part, int parts) {
  const Plan& plan = *static_cast<const Plan*>(args.params);
  const T* from = static_cast<const T*>(args.buffers[0]);
  T* to = static_cast<T*>(args.buffers[1]);
  const int64_t rows = plan.copy.dims[plan.tiled], columns = plan.copy.dims.back();
  const int64_t to_stride = plan.out_strides[plan.tiled], from_stride = plan.copy.strides.back();
  const int64_t row_tiles = tiles_along<T>(rows), column_tiles = tiles_along<T>(columns),
                tiles = row_tiles * column_tiles;
  const Range range = share(plan.outer * tiles, part, parts);
  Odometer at(plan.copy, plan.outer_axes, plan.outer_rank, plan.out_strides, range.begin / tiles);
  for (int64_t i = range.begin; i < range.end; ++i) {
    const int64_t tile = i % tiles;
    if (tile == 0 && i != range.begin) at.next();
    const int64_t row = tile / column_tiles * kTile<T>, column = tile % column_tiles * kTile<T>;
    copy_tile(to + at.result() + row * to_stride + column, to_stride, from + at.source() + row + column * from_stride,
              from_stride, std::min(kTile<T>, rows - row), std::min(kTile<T>, columns - column));
  }
}

CpuKernelFn rows_fn(int64_t element) {
  switch (element) {
    case 1:
      return run_rows<uint8_t>;
    case 2:
      return run_rows<uint16_t>;
    case 4:
      return run_rows<uint32_t>;
    default:
      return run_rows<uint64_t>;
  }
}

CpuKernelFn tiles_fn(int64_t element) {
  switch (element) {
    case 1:
      return run_tiles<uint8_t>;
    case 2:
      return run_tiles<uint16_t>;
    case 4:
      return run_tiles<uint32_t>;
    default:
      return run_tiles<uint64_t>;
  }
}

// Drops extents of 1 and merges an axis into its right neighbour where the source is dense across the two.
StridedCopy merged(const Shape& shape, const std::vector<int64_t>& strides) {
  StridedCopy copy;
  for (int i = 0; i < shape.rank(); ++i) {
    if (shape[i] == 1) continue;
    if (!copy.dims.empty() && copy.strides.back() == strides[i] * shape[i]) {
      copy.dims.back() *= shape[i];
      copy.strides.back() = strides[i];
    } else {
      copy.dims.push_back(shape[i]);
      copy.strides.push_back(strides[i]);
    }
  }
  if (copy.dims.empty()) {
    copy.dims.push_back(1);
    copy.strides.push_back(1);
  }
  return copy;
}

}  // namespace

std::vector<int64_t> dense_strides(const Shape& shape) {
  std::vector<int64_t> strides(static_cast<size_t>(shape.rank()));
  int64_t stride = 1;
  for (int i = shape.rank() - 1; i >= 0; --i) {
    strides[i] = stride;
    stride *= shape[i];
  }
  return strides;
}

PreparedKernel prepare_strided(const KernelQuery& query, const std::vector<int64_t>& strides, int64_t offset) {
  const TensorType& out = query.out[0];
  PreparedKernel kernel;
  if (out.shape.elements() == 0) return kernel;
  StridedCopy copy = merged(out.shape, strides);
  copy.element = static_cast<int64_t>(size_of(out.dtype));
  copy.offset = offset;
  auto plan = std::make_shared<Plan>(plan_of(std::move(copy)));
  const int64_t element = plan->copy.element;
  kernel.phases = {{plan->tiled >= 0 ? tiles_fn(element) : rows_fn(element),
                    parts_for_bytes(2.0 * static_cast<double>(out.bytes()))}};
  kernel.params = std::move(plan);
  return kernel;
}

}  // namespace aicf::backend::cpu
