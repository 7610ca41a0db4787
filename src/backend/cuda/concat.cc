// concat on CUDA: each operand moved to its segment of the rows of the result.
#include "backend/cuda/kernels.h"
#include "backend/cuda/segments.h"

namespace aicf::backend::cuda {
namespace {

PreparedKernel prepare(const KernelQuery& query) {
  const Segments segments = {.parts = query.in,
                             .first_part = 0,
                             .whole = query.out[0],
                             .whole_buffer = static_cast<int>(query.in.size()),
                             .axis = static_cast<int>(query.attrs.get_int("axis"))};
  return prepared(move_segments(query, segments));
}

}  // namespace

void register_concat(KernelTable& table) {
  table.push_back(
      {.op = "concat", .variant = "segments", .accepts = [](const KernelQuery&) { return true; }, .prepare = prepare});
}

}  // namespace aicf::backend::cuda
