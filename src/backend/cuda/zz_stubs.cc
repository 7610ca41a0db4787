// Scaffolding, removed when every op has its kernel.
#include "backend/cuda/kernels.h"

namespace aicf::backend::cuda {
#define AICF_OP(name) \
  __attribute__((weak)) void register_##name(KernelTable&) {}
#include "ops/ops.def"
__attribute__((weak)) void register_pointwise(KernelTable&) {}
}  // namespace aicf::backend::cuda
