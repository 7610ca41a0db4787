#include "backend/cuda/kernels.h"

namespace aicf::backend::cuda {

void register_fused(KernelTable&) {}

}  // namespace aicf::backend::cuda
