// broadcast on the CPU: a view of the operand with stride 0 along the repeated axes.
#include "backend/cpu/kernels.h"
#include "backend/cpu/strided.h"

namespace aicf::backend::cpu {
namespace {

PreparedKernel prepare(const KernelQuery& query) {
  const Shape &in = query.in[0].shape, &out = query.out[0].shape;
  const std::vector<int64_t> from = dense_strides(in);
  std::vector<int64_t> strides(static_cast<size_t>(out.rank()), 0);
  for (int i = 0; i < in.rank(); ++i) {
    if (in[i] != 1) strides[out.rank() - in.rank() + i] = from[i];
  }
  return prepare_strided(query, strides);
}

}  // namespace

void register_broadcast(KernelTable& table) {
  table.push_back({.op = "broadcast",
                   .variant = "strided",
                   .accepts = [](const KernelQuery&) { return true; },
                   .prepare = prepare});
}

}  // namespace aicf::backend::cpu
