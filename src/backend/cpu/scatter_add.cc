// scatter_add on the CPU. The result is shared out in blocks of destinations; each part walks all indices in order and
// adds those that fall into its block, so repeated indices add up in index order and nothing needs an atomic. An index
// out of range is skipped. 16-bit floats are summed in f32 and rounded once.
#include <algorithm>
#include <bit>
#include <cstring>
#include <type_traits>

#include "backend/cpu/kernels.h"
#include "backend/cpu/partition.h"
#include "ops/gather.h"

namespace aicf::backend::cpu {
namespace {

// The result is (slabs, extent, inner), cut into slab_parts × row_parts × column_parts blocks.
struct Plan {
  ops::GatherDims dims;
  int64_t slabs = 1;
  int slab_parts = 1, row_parts = 1, column_parts = 1;
};

struct Bf16 {
  using Sum = float;
  uint16_t bits;
  static float load(Bf16 x) { return std::bit_cast<float>(uint32_t{x.bits} << 16); }
  static Bf16 store(float x) { return {f32_to_bf16(x)}; }
};
struct F16 {
  using Sum = float;
  uint16_t bits;
  static float load(F16 x) { return f16_to_f32(x.bits); }
  static F16 store(float x) { return {f32_to_f16(x)}; }
};

template <class T>
inline constexpr bool kHalf = std::is_same_v<T, Bf16> || std::is_same_v<T, F16>;

// One block of rows × columns of a slab: base → sums, updates added, sums → result.
template <class T, class Index>
struct Block {
  const ops::GatherDims& dims;
  Range rows, columns;

  // Integers wrap, as they do on every backend.
  static T plus(T a, T b) {
    if constexpr (std::is_integral_v<T>) {
      using Bits = std::make_unsigned_t<T>;
      return static_cast<T>(static_cast<Bits>(a) + static_cast<Bits>(b));
    } else {
      return a + b;
    }
  }
  // Updates share no memory with the result; blocks of a known length become vector code.
  static void add(T* __restrict__ to, const T* __restrict__ from, int64_t n) {
    int64_t i = 0;
    for (; i + 8 <= n; i += 8) {
      for (int k = 0; k < 8; ++k) to[i + k] = plus(to[i + k], from[i + k]);
    }
    for (; i < n; ++i) to[i] = plus(to[i], from[i]);
  }
  static void add(float* to, const T* from, int64_t n) requires kHalf<T> {
    for (int64_t i = 0; i < n; ++i) to[i] += T::load(from[i]);
  }

  template <class Sum>
  void add_updates(Sum* sums, const Index* index, const T* updates) const {
    const int64_t n = columns.end - columns.begin;
    for (int64_t pick = 0; pick < dims.picks; ++pick) {
      const int64_t k = index[pick];
      if (k < rows.begin || k >= rows.end) continue;
      add(sums + k * dims.inner + columns.begin, updates + pick * dims.inner + columns.begin, n);
    }
  }

  void run(const T* base, const Index* index, const T* updates, T* out) const {
    const auto bytes = static_cast<size_t>(columns.end - columns.begin) * sizeof(T);
    for (int64_t r = rows.begin; base != out && r < rows.end; ++r) {
      std::memcpy(out + r * dims.inner + columns.begin, base + r * dims.inner + columns.begin, bytes);
    }
    add_updates(out, index, updates);
  }

  void run(const T* base, const Index* index, const T* updates, T* out, float* sums) const requires kHalf<T> {
    const auto each = [&](auto fn) {
      for (int64_t r = rows.begin; r < rows.end; ++r) {
        for (int64_t c = columns.begin; c < columns.end; ++c) fn(r * dims.inner + c);
      }
    };
    each([&](int64_t i) { sums[i] = T::load(base[i]); });
    add_updates(sums, index, updates);
    each([&](int64_t i) { out[i] = T::store(sums[i]); });
  }
};

template <class T, class Index>
void run(const KernelArgs& args, int part, int) {
  const Plan& plan = *static_cast<const Plan*>(args.params);
  const ops::GatherDims& d = plan.dims;
  const T* base = static_cast<const T*>(args.buffers[0]);
  const Index* index = static_cast<const Index*>(args.buffers[1]);
  const T* updates = static_cast<const T*>(args.buffers[2]);
  T* out = static_cast<T*>(args.buffers[3]);
  const int column_part = part % plan.column_parts, row_part = part / plan.column_parts % plan.row_parts;
  const Range slabs = share(plan.slabs, part / plan.column_parts / plan.row_parts, plan.slab_parts);
  const Block<T, Index> block = {d, share(d.extent, row_part, plan.row_parts),
                                 share(d.inner, column_part, plan.column_parts)};
  for (int64_t s = slabs.begin; s < slabs.end; ++s) {
    const int64_t to = s * d.extent * d.inner, from = s * d.picks * d.inner;
    const Index* picks = index + s / d.outer * d.picks;
    if constexpr (kHalf<T>) {
      block.run(base + to, picks, updates + from, out + to, static_cast<float*>(args.buffers[4]) + to);
    } else {
      block.run(base + to, picks, updates + from, out + to);
    }
  }
}

// Slabs first, as they share nothing; then columns, as every part then adds equally much however the indices fall; then
// rows, where walking the indices costs little beside a row.
Plan plan_of(const ops::GatherDims& dims, int64_t element) {
  Plan plan = {.dims = dims, .slabs = dims.batch * dims.outer};
  const double rows = 2.0 * static_cast<double>(dims.extent) + 3.0 * static_cast<double>(dims.picks);
  const int64_t wanted = parts_for_bytes(rows * static_cast<double>(plan.slabs * dims.inner * element));
  plan.slab_parts = static_cast<int>(std::min(wanted, plan.slabs));
  int64_t rest = wanted / plan.slab_parts;
  plan.column_parts = static_cast<int>(std::clamp<int64_t>(dims.inner * element / 512, 1, rest));
  rest /= plan.column_parts;
  plan.row_parts = static_cast<int>(std::clamp<int64_t>(std::min(dims.extent, dims.inner / 8), 1, rest));
  return plan;
}

template <class Index>
CpuKernelFn run_fn(DType dtype) {
  switch (dtype) {
    case DType::f64:
      return run<double, Index>;
    case DType::f32:
      return run<float, Index>;
    case DType::bf16:
      return run<Bf16, Index>;
    case DType::f16:
      return run<F16, Index>;
    case DType::i64:
      return run<int64_t, Index>;
    case DType::i32:
      return run<int32_t, Index>;
    case DType::u8:
    case DType::boolean:
      break;
  }
  return nullptr;
}

PreparedKernel prepare(const KernelQuery& query) {
  const TensorType& out = query.out[0];
  PreparedKernel kernel;
  if (out.bytes() == 0) return kernel;
  const auto dims = ops::gather_dims(query.in[0].shape, query.in[1].shape, query.attrs);
  auto plan = std::make_shared<Plan>(plan_of(dims, static_cast<int64_t>(size_of(out.dtype))));
  kernel.phases = {{query.in[1].dtype == i64 ? run_fn<int64_t>(out.dtype) : run_fn<int32_t>(out.dtype),
                    plan->slab_parts * plan->row_parts * plan->column_parts}};
  if (size_of(out.dtype) == 2) kernel.workspace_bytes = static_cast<size_t>(out.shape.elements()) * sizeof(float);
  kernel.params = std::move(plan);
  return kernel;
}

}  // namespace

void register_scatter_add(KernelTable& table) {
  table.push_back({.op = "scatter_add",
                   .variant = "blocks",
                   .accepts = [](const KernelQuery& query) { return run_fn<int32_t>(query.out[0].dtype) != nullptr; },
                   .prepare = prepare});
}

}  // namespace aicf::backend::cpu
