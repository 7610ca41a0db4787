#include "backend/cuda/kernels.h"

namespace aicf::backend::cuda {

void register_parallel(KernelTable&) {}

}  // namespace aicf::backend::cuda
