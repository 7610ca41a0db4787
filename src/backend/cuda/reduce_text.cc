#include "backend/cuda/reduce_text.h"

#include <algorithm>
#include <bit>

#include "backend/cuda/text.h"
#include "ops/pointwise_printer.h"

namespace aicf::backend::cuda {
namespace {

namespace printing = ops::pointwise::printing;

// Step k of row_block is elements k * W …; a thread's vector v holds the lanes (v * G + t) * L …, so the vectors' reads
// are adjacent and the first halvings stay within a thread.
constexpr const char* kTree = R"cuda(
DEVICE float from_other(float v, int distance) { return __shfl_xor_sync(0xffffffffu, v, distance); }
DEVICE int from_other(int v, int distance) { return __shfl_xor_sync(0xffffffffu, v, distance); }
DEVICE i64 from_other(i64 v, int distance) { return __shfl_xor_sync(0xffffffffu, v, distance); }

template <int G> DEVICE Acc of_group(Acc v) {
#pragma unroll
  for (int h = G / 2; h > 0; h /= 2) v = combine(v, from_other(v, h));
  return v;
}

template <int V, int L> DEVICE void clear(Acc (&lane)[V][L]) {
#pragma unroll
  for (int v = 0; v < V; ++v) {
#pragma unroll
    for (int l = 0; l < L; ++l) lane[v][l] = identity();
  }
}

// The lanes (v * G + t) * L + l by halves.
template <int G, int V, int L> DEVICE Acc of_lanes(Acc (&lane)[V][L]) {
#pragma unroll
  for (int h = V / 2; h > 0; h /= 2) {
#pragma unroll
    for (int v = 0; v < h; ++v) {
#pragma unroll
      for (int l = 0; l < L; ++l) lane[v][l] = combine(lane[v][l], lane[v + h][l]);
    }
  }
#pragma unroll
  for (int l = 0; l < L; ++l) lane[0][l] = of_group<G>(lane[0][l]);
#pragma unroll
  for (int h = L / 2; h > 0; h /= 2) {
#pragma unroll
    for (int l = 0; l < h; ++l) lane[0][l] = combine(lane[0][l], lane[0][l + h]);
  }
  return lane[0][0];
}

template <class In, int G, int V, int L, int U> DEVICE Acc row_block(const In* x, int n, int t) {
  constexpr int W = G * V * L;
  Acc lane[V][L];
  clear(lane);
  Pack<In, L> moved[U][V];
  int first = 0;
  for (; first + U * W <= n; first += U * W) {
#pragma unroll
    for (int u = 0; u < U; ++u) {
#pragma unroll
      for (int v = 0; v < V; ++v) moved[u][v] = *(const Pack<In, L>*)(x + first + u * W + (v * G + t) * L);
    }
#pragma unroll
    for (int u = 0; u < U; ++u) {
#pragma unroll
      for (int v = 0; v < V; ++v) {
#pragma unroll
        for (int l = 0; l < L; ++l) lane[v][l] = combine(lane[v][l], load(moved[u][v].at[l]));
      }
    }
  }
  if (first < n) {
#pragma unroll
    for (int u = 0; u < U; ++u) {
#pragma unroll
      for (int v = 0; v < V; ++v) {
        const int at = first + u * W + (v * G + t) * L;
        if (at < n) moved[u][v] = *(const Pack<In, L>*)(x + at);
      }
    }
#pragma unroll
    for (int u = 0; u < U; ++u) {
#pragma unroll
      for (int v = 0; v < V; ++v) {
        if (first + u * W + (v * G + t) * L >= n) continue;
#pragma unroll
        for (int l = 0; l < L; ++l) lane[v][l] = combine(lane[v][l], load(moved[u][v].at[l]));
      }
    }
  }
  return of_lanes<G>(lane);
}

template <int D> DEVICE Acc of_blocks(const Acc* x, i64 n, i64 block, int t) {
  const i64 first = block * BLOCK;
  if constexpr (D == 1) {
    return row_block<Acc, 32, 2, 1, 1>(x + first, n - first < BLOCK ? (int)(n - first) : BLOCK, t);
  } else {
    i64 count = n;
    for (int d = 1; d < D; ++d) count = (count + BLOCK - 1) / BLOCK;
    Acc lane[2][1] = {{identity()}, {identity()}};
    for (int i = 0; i < BLOCK && first + i < count; ++i) {
      const Acc v = of_blocks<D - 1>(x, n, first + i, t);
      if (i % 64 == t) lane[0][0] = combine(lane[0][0], v);
      if (i % 64 == t + 32) lane[1][0] = combine(lane[1][0], v);
    }
    return of_lanes<32>(lane);
  }
}

template <class In, int L, int U, class Pitch>
DEVICE void column_rows(Acc (&acc)[L], const In* x, int rows, Pitch pitch) {
  Pack<In, L> moved[U];
  int first = 0;
  for (; first + U <= rows; first += U) {
#pragma unroll
    for (int u = 0; u < U; ++u) moved[u] = *(const Pack<In, L>*)(x + (first + u) * pitch);
#pragma unroll
    for (int u = 0; u < U; ++u) {
#pragma unroll
      for (int l = 0; l < L; ++l) acc[l] = combine(acc[l], load(moved[u].at[l]));
    }
  }
  if (first == rows) return;
#pragma unroll
  for (int u = 0; u < U; ++u) {
    if (first + u < rows) moved[u] = *(const Pack<In, L>*)(x + (first + u) * pitch);
  }
#pragma unroll
  for (int u = 0; u < U; ++u) {
    if (first + u >= rows) continue;
#pragma unroll
    for (int l = 0; l < L; ++l) acc[l] = combine(acc[l], load(moved[u].at[l]));
  }
}
)cuda";

// The float step is the pointwise expression itself.
std::string float_step(ReduceKind kind) {
  printing::Printer printer;
  const printing::Text<float> a = {&printer, "a"}, b = {&printer, "b"};
  const printing::Text<float> result = kind == ReduceKind::sum    ? printing::op_add(a, b)
                                       : kind == ReduceKind::prod ? printing::op_mul(a, b)
                                       : kind == ReduceKind::max  ? printing::op_maximum(a, b)
                                                                  : printing::op_minimum(a, b);
  return printer.statements() + "return " + result.name + ";";
}

std::string step(ReduceKind kind, DType dtype) {
  if (is_float(dtype)) return float_step(kind);
  // Unsigned arithmetic wraps.
  const std::string wrapping = dtype == i64 ? "u64" : "u32";
  switch (kind) {
    case ReduceKind::sum:
      return "return (Acc)((" + wrapping + ")a + (" + wrapping + ")b);";
    case ReduceKind::prod:
      return "return (Acc)((" + wrapping + ")a * (" + wrapping + ")b);";
    case ReduceKind::max:
      return "return a > b ? a : b;";
    case ReduceKind::min:
      break;
  }
  return "return a < b ? a : b;";
}

// The body of identity().
std::string identity(ReduceKind kind, DType dtype) {
  // Hidden from the compiler, which would take 1 * x for x, and 0 + x where that is no -0, when it flushes a subnormal.
  if (kind == ReduceKind::sum && is_float(dtype))
    return R"(float zero; asm("mov.f32 %0, 0f00000000;" : "=f"(zero)); return zero;)";
  if (kind == ReduceKind::prod && is_float(dtype))
    return R"(float one; asm("mov.f32 %0, 0f3F800000;" : "=f"(one)); return one;)";
  if (kind == ReduceKind::sum) return "return 0;";
  if (kind == ReduceKind::prod) return "return 1;";
  const bool max = kind == ReduceKind::max;
  if (is_float(dtype)) return max ? "return __int_as_float(0xff800000);" : "return __int_as_float(0x7f800000);";
  if (dtype == i64) return max ? "return (i64)0x8000000000000000ull;" : "return 0x7fffffffffffffffll;";
  if (dtype == i32) return max ? "return (int)0x80000000u;" : "return 0x7fffffff;";
  return max ? "return 0;" : dtype == boolean ? "return 1;" : "return 255;";
}

}  // namespace

std::string reduce_text(ReduceKind kind, DType dtype) {
  return types({{"Acc", wide_type(dtype)}}) + constants({{"BLOCK", static_cast<int64_t>(kRowBlock)}}) +
         "DEVICE Acc identity() { " + identity(kind, dtype) + " }\nDEVICE Acc combine(Acc a, Acc b) {\n" +
         step(kind, dtype) + "\n}\n" + kTree;
}

RowSplit RowSplit::of(int64_t n, size_t size, int64_t blocks) {
  const auto lanes = static_cast<int>(std::min<uint64_t>(kRowLanes, std::bit_ceil(static_cast<uint64_t>(n))));
  RowSplit split;
  split.length = std::min(vector_length(n, size), lanes);
  // Where there are threads to spare, a whole warp takes a block.
  if (blocks * (lanes / split.length) < kFewThreads) split.length = std::min(split.length, std::max(1, lanes / 32));
  split.threads = std::min(32, lanes / split.length);
  split.vectors = lanes / split.length / split.threads;
  const bool few = blocks * split.threads < kFewThreads;
  const int64_t steps = (std::min<int64_t>(n, kRowBlock) + lanes - 1) / lanes;
  const auto words = static_cast<int64_t>(std::max<size_t>(1, split.length * size / 4)) * split.vectors;
  split.unroll = static_cast<int>(std::min(steps, std::max<int64_t>(1, (few ? 64 : 32) / words)));
  return split;
}

}  // namespace aicf::backend::cuda
