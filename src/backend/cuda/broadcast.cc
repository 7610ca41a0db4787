// broadcast on CUDA: a view of the operand with stride 0 along the repeated axes.
#include "backend/cuda/elementwise.h"
#include "backend/cuda/index_space.h"
#include "backend/cuda/kernels.h"

namespace aicf::backend::cuda {
namespace {

PreparedKernel prepare(const KernelQuery& query) {
  return prepared(strided_copy(query, broadcast_strides(query.in[0].shape, query.out[0].shape)));
}

}  // namespace

void register_broadcast(KernelTable& table) {
  table.push_back({.op = "broadcast",
                   .variant = "strided",
                   .accepts = [](const KernelQuery&) { return true; },
                   .prepare = prepare});
}

}  // namespace aicf::backend::cuda
