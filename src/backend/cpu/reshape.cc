// reshape on the CPU: a copy of the bytes, for when the result could not take the operand's storage.
#include <cstring>

#include "backend/cpu/kernels.h"
#include "backend/cpu/partition.h"

namespace aicf::backend::cpu {
namespace {

void run(const KernelArgs& args, int part, int parts) {
  const Range range = share(*static_cast<const int64_t*>(args.params), part, parts);
  const auto* from = static_cast<const char*>(args.buffers[0]);
  auto* to = static_cast<char*>(args.buffers[1]);
  if (from != to) std::memcpy(to + range.begin, from + range.begin, static_cast<size_t>(range.end - range.begin));
}

PreparedKernel prepare(const KernelQuery& query) {
  const auto bytes = static_cast<int64_t>(query.out[0].bytes());
  PreparedKernel kernel;
  if (bytes == 0) return kernel;
  kernel.phases = {{run, parts_for_bytes(2.0 * static_cast<double>(bytes))}};
  kernel.params = std::make_shared<int64_t>(bytes);
  return kernel;
}

}  // namespace

void register_reshape(KernelTable& table) {
  table.push_back(
      {.op = "reshape", .variant = "copy", .accepts = [](const KernelQuery&) { return true; }, .prepare = prepare});
}

}  // namespace aicf::backend::cpu
