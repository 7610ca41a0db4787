#include "backend/cpu/kernels.h"

namespace aicf::backend::cpu {

void register_parallel(KernelTable&) {}

}  // namespace aicf::backend::cpu
