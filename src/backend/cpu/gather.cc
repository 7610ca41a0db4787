// gather on the CPU: rows copied one by one; an index out of range reads nothing and gives zeros.
#include "ops/gather.h"

#include <algorithm>
#include <cstring>

#include "backend/cpu/kernels.h"
#include "backend/cpu/partition.h"

namespace aicf::backend::cpu {
namespace {

struct Plan {
  ops::GatherDims dims;
  int64_t row = 0;    // bytes picked by one index
  int64_t total = 0;  // bytes of the result
};

// Copies `n` bytes; the common short rows are one move.
inline void copy_bytes(char* to, const char* from, int64_t n) {
  switch (n) {
    case 2:
      std::memcpy(to, from, 2);
      break;
    case 4:
      std::memcpy(to, from, 4);
      break;
    case 8:
      std::memcpy(to, from, 8);
      break;
    default:
      std::memcpy(to, from, static_cast<size_t>(n));
  }
}

template <class Index>
void run(const KernelArgs& args, int part, int parts) {
  const Plan& plan = *static_cast<const Plan*>(args.params);
  const ops::GatherDims& d = plan.dims;
  const auto* from = static_cast<const char*>(args.buffers[0]);
  const auto* index = static_cast<const Index*>(args.buffers[1]);
  auto* to = static_cast<char*>(args.buffers[2]);
  Range range = share(plan.total, part, parts);
  while (range.begin < range.end) {
    const int64_t row = range.begin / plan.row, skipped = range.begin % plan.row;
    const int64_t n = std::min(plan.row - skipped, range.end - range.begin);
    const int64_t slab = row / d.picks, pick = row % d.picks;
    const int64_t k = index[slab / d.outer * d.picks + pick];
    if (k >= 0 && k < d.extent) {
      copy_bytes(to + range.begin, from + (slab * d.extent + k) * plan.row + skipped, n);
    } else {
      std::memset(to + range.begin, 0, static_cast<size_t>(n));
    }
    range.begin += n;
  }
}

PreparedKernel prepare(const KernelQuery& query) {
  const TensorType& out = query.out[0];
  PreparedKernel kernel;
  if (out.bytes() == 0) return kernel;
  Plan plan;
  plan.dims = ops::gather_dims(query.in[0].shape, query.in[1].shape, query.attrs);
  plan.row = plan.dims.inner * static_cast<int64_t>(size_of(out.dtype));
  plan.total = static_cast<int64_t>(out.bytes());
  kernel.phases = {
      {query.in[1].dtype == i64 ? run<int64_t> : run<int32_t>, parts_for_bytes(2.0 * static_cast<double>(plan.total))}};
  kernel.params = std::make_shared<Plan>(plan);
  return kernel;
}

}  // namespace

void register_gather(KernelTable& table) {
  table.push_back(
      {.op = "gather", .variant = "rows", .accepts = [](const KernelQuery&) { return true; }, .prepare = prepare});
}

}  // namespace aicf::backend::cpu
