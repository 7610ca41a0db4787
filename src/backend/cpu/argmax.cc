// argmax: the first index of the largest element along one axis; NaN counts as larger than everything.
#include <algorithm>
#include <cmath>

#include "backend/cpu/kernels.h"
#include "backend/cpu/partition.h"
#include "ops/reduce.h"

namespace aicf::backend::cpu {
namespace {

constexpr size_t kColumns = 256;  // results found together, so that memory is read in order

struct Params {
  size_t outer = 1, n = 1, inner = 1;
};

// An element in memory as something to compare.
struct Bf16 {
  uint16_t bits;
};
struct F16 {
  uint16_t bits;
};
template <class T>
T number(T x) {
  return x;
}
inline float number(Bf16 x) { return bf16_to_f32(x.bits); }
inline float number(F16 x) { return f16_to_f32(x.bits); }

template <class T>
bool exceeds(T a, T b) {
  if constexpr (std::is_floating_point_v<T>) {
    return a > b || (std::isnan(a) && !std::isnan(b));
  } else {
    return a > b;
  }
}

// Units are (outer, tile of columns).
template <class T>
void run_part(const KernelArgs& args, int part, int parts) {
  using Number = decltype(number(T{}));
  const Params& p = *static_cast<const Params*>(args.params);
  const T* x = static_cast<const T*>(args.buffers[0]);
  int32_t* y = static_cast<int32_t*>(args.buffers[1]);
  const size_t tiles = (p.inner + kColumns - 1) / kColumns;
  const Range range = share(static_cast<int64_t>(p.outer * tiles), part, parts);
  Number best[kColumns];
  int32_t index[kColumns];
  for (size_t unit = range.begin; unit < static_cast<size_t>(range.end); ++unit) {
    const size_t column = unit % tiles * kColumns, columns = std::min(kColumns, p.inner - column);
    const size_t outer = unit / tiles;
    const T* row = x + outer * p.n * p.inner + column;
    for (size_t c = 0; c < columns; ++c) {
      best[c] = number(row[c]);
      index[c] = 0;
    }
    for (size_t i = 1; i < p.n; ++i) {
      row += p.inner;
      for (size_t c = 0; c < columns; ++c) {
        const Number v = number(row[c]);
        if (!exceeds(v, best[c])) continue;
        best[c] = v;
        index[c] = static_cast<int32_t>(i);
      }
    }
    std::copy_n(index, columns, y + outer * p.inner + column);
  }
}

CpuKernelFn kernel_of(DType dtype) {
  switch (dtype) {
    case DType::f64:
      return run_part<double>;
    case DType::f32:
      return run_part<float>;
    case DType::bf16:
      return run_part<Bf16>;
    case DType::f16:
      return run_part<F16>;
    case DType::i64:
      return run_part<int64_t>;
    case DType::i32:
      return run_part<int32_t>;
    case DType::u8:
    case DType::boolean:
      break;
  }
  return nullptr;
}

bool accepts(const KernelQuery& query) { return kernel_of(query.in[0].dtype) != nullptr; }

PreparedKernel prepare(const KernelQuery& query) {
  PreparedKernel kernel;
  kernel.variant = "scan";
  const ops::ReduceDims dims = ops::reduce_dims(query.in[0].shape, query.attrs);
  auto params = std::make_shared<Params>(
      Params{static_cast<size_t>(dims.outer), static_cast<size_t>(dims.n), static_cast<size_t>(dims.inner)});
  if (query.out[0].shape.elements() > 0) {
    const size_t units = params->outer * ((params->inner + kColumns - 1) / kColumns);
    kernel.phases.push_back(
        {kernel_of(query.in[0].dtype), std::min(parts_for_bytes(static_cast<double>(query.in[0].bytes())),
                                                static_cast<int>(std::min<size_t>(units, 1 << 16)))});
  }
  kernel.params = std::move(params);
  return kernel;
}

}  // namespace

void register_argmax(KernelTable& table) { table.push_back({"argmax", "scan", accepts, nullptr, prepare}); }

}  // namespace aicf::backend::cpu
