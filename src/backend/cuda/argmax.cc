// argmax: the first index of the largest element along one axis; NaN counts as larger than everything. The operand is
// (outer, n, inner); threads scan their shares in order, and of equals the smallest index wins, so no split shows.
#include <algorithm>
#include <bit>

#include "backend/cuda/code.h"
#include "backend/cuda/kernels.h"
#include "backend/cuda/text.h"
#include "ops/reduce.h"

namespace aicf::backend::cuda {
namespace {

constexpr const char* kHelpers = R"cuda(
template <class V> DEVICE bool exceeds(V a, V b) { return a > b || (a != a && b == b); }
struct Best { Value value; int index; };
DEVICE Best better(Best a, Best b) {
  const bool second = exceeds(b.value, a.value) || (!exceeds(a.value, b.value) && b.index < a.index);
  return second ? b : a;
}
DEVICE Best from_other(Best b, int distance) {
  return {__shfl_xor_sync(0xffffffffu, b.value, distance), __shfl_xor_sync(0xffffffffu, b.index, distance)};
}
template <int G> DEVICE Best of_group(Best b) {
#pragma unroll
  for (int h = G / 2; h > 0; h /= 2) b = better(b, from_other(b, h));
  return b;
}
)cuda";

// Short rows: a group of threads each; past the last one it repeats that, as the whole warp must take part.
constexpr const char* kShortRows = R"cuda(
const int t = threadIdx.x % G;
const Index wanted = (Index)blockIdx.x * (T / G) + threadIdx.x / G;
const Index row = wanted < OUTER ? wanted : OUTER - 1;
const In* p = x + row * N;
Best best = {load(p[0]), 0};
#pragma unroll 8
for (int i = t; i < N; i += G) {
  const Value v = load(p[i]);
  if (exceeds(v, best.value)) best = {v, i};
}
best = of_group<G>(best);
if (t == 0 && row == wanted) y[row] = best.index;
)cuda";

// Long rows: a thread block each.
constexpr const char* kLongRows = R"cuda(
__shared__ Best of_warp[T / 32];
const In* p = x + (Index)blockIdx.x * N;
Best best = {load(p[0]), 0};
#pragma unroll 4
for (int i = threadIdx.x * L; i < N; i += T * L) {
  const Pack<In, L> moved = *(const Pack<In, L>*)(p + i);
#pragma unroll
  for (int l = 0; l < L; ++l) {
    const Value v = load(moved.at[l]);
    if (exceeds(v, best.value)) best = {v, i + l};
  }
}
best = of_group<32>(best);
if (threadIdx.x % 32 == 0) of_warp[threadIdx.x / 32] = best;
__syncthreads();
if (threadIdx.x < 32) {
  best = of_group<T / 32>(of_warp[threadIdx.x % (T / 32)]);
  if (threadIdx.x == 0) y[blockIdx.x] = best.index;
}
)cuda";

// Columns: a tile of them across a thread block, their elements dealt out down it.
constexpr const char* kColumns = R"cuda(
__shared__ Best found[DOWN][ACROSS];
const Index outer = blockIdx.x / TILES;
const Index column = (Index)(blockIdx.x % TILES) * ACROSS + threadIdx.x % ACROSS;
const int down = threadIdx.x / ACROSS;
if (column < INNER) {
  const In* p = x + (outer * N * INNER + column);
  Best best = {load(p[0]), 0};
#pragma unroll 8
  for (int i = down; i < N; i += DOWN) {
    const Value v = load(p[(Index)i * INNER]);
    if (exceeds(v, best.value)) best = {v, i};
  }
  found[down][threadIdx.x % ACROSS] = best;
}
__syncthreads();
if (down == 0 && column < INNER) {
  Best best = found[0][threadIdx.x];
  for (int d = 1; d < DOWN; ++d) best = better(best, found[d][threadIdx.x]);
  y[outer * INNER + column] = best.index;
}
)cuda";

bool accepts(const KernelQuery& query) {
  const DType dtype = query.in[0].dtype;
  return dtype != f64 && dtype != u8 && dtype != boolean;
}

int64_t ceil_div(int64_t a, int64_t b) { return (a + b - 1) / b; }

PreparedKernel prepare(const KernelQuery& query) {
  const DType dtype = query.in[0].dtype;
  const ops::ReduceDims d = ops::reduce_dims(query.in[0].shape, query.attrs);
  if (d.outer * d.inner == 0) return {};
  Generated kernel;
  kernel.what = ir::call_text(query.def, query.in);
  kernel.params = {{std::string("const ") + c_type(dtype) + "* x", 0}, {"int* y", 1}};
  kernel.helpers = types({{"Value", wide_type(dtype)}}) + kHelpers;
  kernel.body = types({{"In", c_type(dtype)}, {"Index", index_type(d.outer * d.n * d.inner)}}) +
                constants({{"OUTER", d.outer}, {"N", d.n}, {"INNER", d.inner}});
  if (d.inner > 1) {
    const int64_t across = std::min<int64_t>(32, std::bit_ceil(static_cast<uint64_t>(d.inner)));
    kernel.threads = 256;
    kernel.blocks = d.outer * ceil_div(d.inner, across);
    kernel.body += constants({{"ACROSS", across}, {"DOWN", 256 / across}, {"TILES", ceil_div(d.inner, across)}});
    kernel.body += kColumns;
  } else if (d.n <= 1024) {
    const int64_t group = std::min<int64_t>(32, std::bit_ceil(static_cast<uint64_t>(d.n)));
    kernel.threads = d.outer * group < kFewThreads ? 64 : 256;
    kernel.blocks = ceil_div(d.outer, kernel.threads / group);
    kernel.body += constants({{"G", group}, {"T", kernel.threads}});
    kernel.body += kShortRows;
  } else {
    kernel.threads = d.outer < 264 && d.n >= 16384 ? 1024 : 256;
    kernel.blocks = d.outer;
    kernel.body += constants({{"T", kernel.threads}, {"L", vector_length(d.n, size_of(dtype))}});
    kernel.body += kLongRows;
  }
  PreparedKernel result = prepared({std::move(kernel)});
  result.variant = "scan";
  return result;
}

}  // namespace

void register_argmax(KernelTable& table) { table.push_back({"argmax", "scan", accepts, nullptr, prepare}); }

}  // namespace aicf::backend::cuda
