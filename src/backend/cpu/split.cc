// split on the CPU: each segment of the rows of the operand copied to its result.
#include <cstring>

#include "backend/cpu/kernels.h"
#include "backend/cpu/segments.h"

namespace aicf::backend::cpu {
namespace {

void run(const KernelArgs& args, int part, int parts) {
  const Segments& s = *static_cast<const Segments*>(args.params);
  const auto* from = static_cast<const char*>(args.buffers[0]);
  for_segments(s, share(s.total, part, parts), [&](size_t piece, int64_t to, int64_t at, int64_t n) {
    std::memcpy(static_cast<char*>(args.buffers[1 + piece]) + to, from + at, static_cast<size_t>(n));
  });
}

PreparedKernel prepare(const KernelQuery& query) {
  PreparedKernel kernel;
  const TensorType& whole = query.in[0];
  if (whole.bytes() == 0) return kernel;
  kernel.phases = {{run, parts_for_bytes(2.0 * static_cast<double>(whole.bytes()))}};
  kernel.params =
      std::make_shared<Segments>(segments_of(query.out, whole, static_cast<int>(query.attrs.get_int("axis"))));
  return kernel;
}

}  // namespace

void register_split(KernelTable& table) {
  table.push_back(
      {.op = "split", .variant = "segments", .accepts = [](const KernelQuery&) { return true; }, .prepare = prepare});
}

}  // namespace aicf::backend::cpu
