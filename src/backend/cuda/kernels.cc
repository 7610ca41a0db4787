// The table of all CUDA kernels, from ops.def.
#include "backend/cuda/kernels.h"

#include "backend/cuda/code.h"

namespace aicf::backend::cuda {

const KernelTable& kernel_table() {
  static const KernelTable table = [] {
    KernelTable t;
    register_pointwise(t);
#define AICF_OP(name) register_##name(t);
#include "ops/ops.def"
    return t;
  }();
  return table;
}

PreparedKernel prepared(std::vector<Generated> kernels, size_t workspace_bytes) {
  PreparedKernel kernel;
  if (kernels.empty()) return kernel;
  auto code = std::make_shared<Code>();
  code->kernels = std::move(kernels);
  kernel.code = std::move(code);
  kernel.workspace_bytes = workspace_bytes;
  return kernel;
}

}  // namespace aicf::backend::cuda
