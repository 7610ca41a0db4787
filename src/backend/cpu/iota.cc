// iota on the CPU: runs of equal numbers along the inner axes.
#include <algorithm>

#include "backend/cpu/kernels.h"
#include "backend/cpu/partition.h"

namespace aicf::backend::cpu {
namespace {

struct Plan {
  int64_t total = 0, extent = 0, inner = 1;
};

template <class T>
T convert(int64_t v) {
  return static_cast<T>(v);
}

struct Bf16 {
  uint16_t bits;
};
struct F16 {
  uint16_t bits;
};
template <>
Bf16 convert<Bf16>(int64_t v) {
  return {f32_to_bf16(static_cast<float>(v))};
}
template <>
F16 convert<F16>(int64_t v) {
  return {f32_to_f16(static_cast<float>(v))};
}

template <class T>
void run(const KernelArgs& args, int part, int parts) {
  const Plan& plan = *static_cast<const Plan*>(args.params);
  T* to = static_cast<T*>(args.buffers[0]);
  Range range = share(plan.total, part, parts);
  while (range.begin < range.end) {
    const int64_t index = range.begin / plan.inner;
    const int64_t end = std::min(range.end, (index + 1) * plan.inner);
    std::fill(to + range.begin, to + end, convert<T>(index % plan.extent));
    range.begin = end;
  }
}

CpuKernelFn run_fn(DType dtype) {
  switch (dtype) {
    case DType::f64:
      return run<double>;
    case DType::f32:
      return run<float>;
    case DType::bf16:
      return run<Bf16>;
    case DType::f16:
      return run<F16>;
    case DType::i64:
      return run<int64_t>;
    case DType::i32:
      return run<int32_t>;
    case DType::u8:
      return run<uint8_t>;
    case DType::boolean:
      break;
  }
  return nullptr;
}

PreparedKernel prepare(const KernelQuery& query) {
  const TensorType& out = query.out[0];
  PreparedKernel kernel;
  if (out.bytes() == 0) return kernel;
  const int axis = static_cast<int>(query.attrs.get_int("axis"));
  Plan plan = {.total = out.shape.elements(), .extent = out.shape[axis]};
  for (int i = axis + 1; i < out.shape.rank(); ++i) plan.inner *= out.shape[i];
  kernel.phases = {{run_fn(out.dtype), parts_for_bytes(static_cast<double>(out.bytes()))}};
  kernel.params = std::make_shared<Plan>(plan);
  return kernel;
}

}  // namespace

void register_iota(KernelTable& table) {
  table.push_back({.op = "iota",
                   .variant = "runs",
                   .accepts = [](const KernelQuery& query) { return run_fn(query.out[0].dtype) != nullptr; },
                   .prepare = prepare});
}

}  // namespace aicf::backend::cpu
