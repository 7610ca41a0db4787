// Kernels that move several tensors to segments of the rows of one: concat.
#pragma once

#include <span>
#include <vector>

#include "backend/api.h"
#include "backend/cuda/code.h"

namespace aicf::backend::cuda {

// `parts`, in buffers first_part, first_part + 1, …, follow one another in `whole`, in buffer whole_buffer, along
// `axis`.
struct Segments {
  std::span<const TensorType> parts;
  int first_part = 0;
  TensorType whole;
  int whole_buffer = 0;
  int axis = 0;
};

// One kernel, or several when there are more parts than parameters of a kernel.
std::vector<Generated> move_segments(const KernelQuery& query, const Segments& segments);

}  // namespace aicf::backend::cuda
