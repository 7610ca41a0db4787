// in_range: whether every element of an index is in [0, extent), or equals `ignore`.
#include <algorithm>

#include "backend/cpu/kernels.h"
#include "backend/cpu/partition.h"

namespace aicf::backend::cpu {
namespace {

struct Params {
  int64_t elements = 0, extent = 0;
  bool ignores = false;
  int64_t ignore = 0;
  int parts = 1;
};

// Each part says in its byte of the workspace whether its share is in range.
template <class T>
void check_part(const KernelArgs& args, int part, int parts) {
  const Params& p = *static_cast<const Params*>(args.params);
  const T* x = static_cast<const T*>(args.buffers[0]);
  const Range range = share(p.elements, part, parts);
  bool ok = true;
  for (int64_t i = range.begin; i < range.end; ++i) {
    const int64_t v = x[i];
    ok &= (v >= 0 && v < p.extent) || (p.ignores && v == p.ignore);
  }
  static_cast<uint8_t*>(args.buffers[2])[part] = ok;
}

void join(const KernelArgs& args, int, int) {
  const Params& p = *static_cast<const Params*>(args.params);
  const uint8_t* flags = static_cast<const uint8_t*>(args.buffers[2]);
  *static_cast<uint8_t*>(args.buffers[1]) = std::all_of(flags, flags + p.parts, [](uint8_t f) { return f != 0; });
}

bool accepts(const KernelQuery& query) { return query.in[0].dtype == i32 || query.in[0].dtype == i64; }

PreparedKernel prepare(const KernelQuery& query) {
  PreparedKernel kernel;
  kernel.variant = "scan";
  auto params = std::make_shared<Params>();
  params->elements = query.in[0].shape.elements();
  params->extent = query.attrs.get_int("extent");
  params->ignores = query.attrs.has("ignore");
  if (params->ignores) params->ignore = query.attrs.get_int("ignore");
  params->parts = parts_for_bytes(static_cast<double>(query.in[0].bytes()));
  kernel.phases = {{query.in[0].dtype == i32 ? check_part<int32_t> : check_part<int64_t>, params->parts}, {join, 1}};
  kernel.workspace_bytes = static_cast<size_t>(params->parts);
  kernel.params = std::move(params);
  return kernel;
}

}  // namespace

void register_in_range(KernelTable& table) { table.push_back({"in_range", "scan", accepts, nullptr, prepare}); }

}  // namespace aicf::backend::cpu
