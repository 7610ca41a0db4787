// transpose on the CPU: a strided view of the operand, copied in tiles.
#include "backend/cpu/kernels.h"
#include "backend/cpu/strided.h"

namespace aicf::backend::cpu {
namespace {

PreparedKernel prepare(const KernelQuery& query) {
  const std::vector<int64_t> from = dense_strides(query.in[0].shape);
  std::vector<int64_t> strides;
  for (int64_t axis : query.attrs.get_ints("perm")) strides.push_back(from[axis]);
  return prepare_strided(query, strides);
}

}  // namespace

void register_transpose(KernelTable& table) {
  table.push_back(
      {.op = "transpose", .variant = "tiled", .accepts = [](const KernelQuery&) { return true; }, .prepare = prepare});
}

}  // namespace aicf::backend::cpu
