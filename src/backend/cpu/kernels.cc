// The table of all CPU kernels, from ops.def.
#include "backend/cpu/kernels.h"

namespace aicf::backend::cpu {

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

}  // namespace aicf::backend::cpu
