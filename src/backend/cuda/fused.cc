#include "backend/cuda/kernels.h"

namespace aicf::backend::cuda {

void register_fused(KernelTable& table) { add_epilogue_kernels(table); }

}  // namespace aicf::backend::cuda
