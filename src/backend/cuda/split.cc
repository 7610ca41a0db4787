// split on CUDA: each segment of the rows of the operand moved to its result.
#include "backend/cuda/kernels.h"
#include "backend/cuda/segments.h"

namespace aicf::backend::cuda {
namespace {

PreparedKernel prepare(const KernelQuery& query) {
  const Segments segments = {.parts = query.out,
                             .first_part = 1,
                             .whole = query.in[0],
                             .whole_buffer = 0,
                             .axis = static_cast<int>(query.attrs.get_int("axis"))};
  return prepared(move_segments(query, segments, Direction::scatter));
}

}  // namespace

void register_split(KernelTable& table) {
  table.push_back(
      {.op = "split", .variant = "segments", .accepts = [](const KernelQuery&) { return true; }, .prepare = prepare});
}

}  // namespace aicf::backend::cuda
