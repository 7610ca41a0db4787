// Kernels that move segments of the rows of one tensor from or to several others: concat and split.
#pragma once

#include <span>
#include <vector>

#include "backend/api.h"
#include "backend/cuda/code.h"

namespace aicf::backend::cuda {

// `parts`, in buffers first_part, first_part + 1, …, are cut from `whole`, in buffer whole_buffer, along `axis`.
struct Segments {
  std::span<const TensorType> parts;
  int first_part = 0;
  TensorType whole;
  int whole_buffer = 0;
  int axis = 0;
};

enum class Direction { gather, scatter };  // the parts are read, or written
// One kernel, or several when there are more parts than parameters of a kernel.
std::vector<Generated> move_segments(const KernelQuery& query, const Segments& segments, Direction direction);

}  // namespace aicf::backend::cuda
