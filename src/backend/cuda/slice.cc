// slice on CUDA: a view of the operand with an offset and longer strides.
#include "backend/cuda/elementwise.h"
#include "backend/cuda/index_space.h"
#include "backend/cuda/kernels.h"

namespace aicf::backend::cuda {
namespace {

PreparedKernel prepare(const KernelQuery& query) {
  const Shape& out = query.out[0].shape;
  if (out.elements() == 0) return {};
  std::vector<int64_t> strides = dense_strides(query.in[0].shape);
  const std::vector<int64_t> start = query.attrs.get_ints("start"), step = query.attrs.get_ints("step");
  int64_t offset = 0;
  for (int i = 0; i < out.rank(); ++i) {
    offset += start[i] * strides[i];
    // With one element along the axis the step is never taken, and may be anything.
    if (!step.empty() && out[i] > 1) strides[i] *= step[i];
  }
  return prepared(strided_copy(query, strides, offset));
}

}  // namespace

void register_slice(KernelTable& table) {
  table.push_back(
      {.op = "slice", .variant = "strided", .accepts = [](const KernelQuery&) { return true; }, .prepare = prepare});
}

}  // namespace aicf::backend::cuda
