#include "backend/cpu/kernels.h"

namespace aicf::backend::cpu {

void register_fused(KernelTable&) {}

}  // namespace aicf::backend::cpu
