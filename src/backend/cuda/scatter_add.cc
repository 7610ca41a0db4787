// scatter_add: to each element of the result its updates are added in the order of their indices, by one thread, so the
// bits are those of plain sequential addition and nothing needs an atomic on floats. An index out of range is skipped;
// 16-bit floats are summed in f32 and rounded once. The base may be the result, so it is read just before the write.
#include <algorithm>

#include "backend/cuda/code.h"
#include "backend/cuda/kernels.h"
#include "backend/cuda/text.h"
#include "ops/gather.h"

namespace aicf::backend::cuda {
namespace {

enum Buffer { kBase, kIndex, kUpdates, kResult, kWorkspace };

constexpr const char* kPlus = R"cuda(
DEVICE float plus(float a, float b) { return a + b; }
DEVICE int plus(int a, int b) { return (int)((u32)a + (u32)b); }
DEVICE i64 plus(i64 a, i64 b) { return (i64)((u64)a + (u64)b); }
)cuda";

// Few picks: every thread holds its elements against all of them. The L elements of a piece are of one row, or, where
// rows are single elements, of L rows.
constexpr const char* kPicks = R"cuda(
Pack<T, L> old[MANY];
const Index first = (Index)blockIdx.x * (THREADS * MANY) + threadIdx.x;
#pragma unroll
for (int m = 0; m < MANY; ++m) {
  const Index at = first + m * THREADS;
  if (at < PIECES) old[m] = *(const Pack<T, L>*)(base + at * L);
}
#pragma unroll
for (int m = 0; m < MANY; ++m) {
  const Index at = (first + m * THREADS) * L;
  if (first + m * THREADS >= PIECES) break;
  const Index slab = at / (EXTENT * INNER), row = at % (EXTENT * INNER) / INNER;
  const Id* picks = index + slab / OUTER * PICKS;
  const T* from = updates + (slab * PICKS * INNER + at % INNER);
  Acc sum[L];
#pragma unroll
  for (int l = 0; l < L; ++l) sum[l] = load(old[m].at[l]);
  bool changed = false;
#pragma unroll 4
  for (int pick = 0; pick < PICKS; ++pick) {
    const i64 k = picks[pick];
    if (INNER == 1) {
      if (k < row || k >= row + L) continue;
      const Acc more = load(from[pick]);
#pragma unroll
      for (int l = 0; l < L; ++l) {
        if (k == row + l) sum[l] = plus(sum[l], more);
      }
    } else {
      if (k != row) continue;
      const Pack<T, L> more = *(const Pack<T, L>*)(from + pick * INNER);
#pragma unroll
      for (int l = 0; l < L; ++l) sum[l] = plus(sum[l], load(more.at[l]));
    }
    changed = true;
  }
  if (!changed && base == y) continue;
  // What no pick touches keeps its bits, the payload of a NaN too, in place or not.
  Pack<T, L> result = old[m];
#pragma unroll
  for (int l = 0; l < L; ++l) {
    if (changed) result.at[l] = store<T>(sum[l]);
  }
  *(Pack<T, L>*)(y + at) = result;
}
)cuda";

// Many picks, first kernel: the picks of each batch sorted by row, in order within a row, and where each row's start. A
// thread block places those of ROWS rows: its warps, each on a segment of the index, count them, then place them.
constexpr const char* kSort = R"cuda(
constexpr u32 ALL = 0xffffffffu;
__shared__ int count[WARPS][ROWS];
__shared__ int total[ROWS];
__shared__ int place[ROWS];
__shared__ int below_of[WARPS];
const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
const Index batch = blockIdx.x / GROUPS;
const int low = blockIdx.x % GROUPS * ROWS, rows = EXTENT - low < ROWS ? EXTENT - low : ROWS;
const Id* picks = index + batch * PICKS;
int* order = work + batch * PICKS;
int* start = work + (BATCH * (Index)PICKS + batch * (EXTENT + 1));
const int begin = warp * SEGMENT, end = PICKS - begin < SEGMENT ? PICKS : begin + SEGMENT;
for (int i = threadIdx.x; i < WARPS * ROWS; i += WARPS * 32) count[i / ROWS][i % ROWS] = 0;
__syncthreads();
int below = 0;
#pragma unroll 1
for (int first = begin; first < end; first += 32 * MANY) {
  Id k[MANY];
#pragma unroll
  for (int m = 0; m < MANY; ++m) k[m] = first + m * 32 + lane < end ? picks[first + m * 32 + lane] : -1;
#pragma unroll
  for (int m = 0; m < MANY; ++m) {
    below += k[m] >= 0 && k[m] < low;
    if (k[m] >= low && k[m] < low + rows) atomicAdd(&count[warp][(int)(k[m] - low)], 1);
  }
}
below = __reduce_add_sync(ALL, below);
if (lane == 0) below_of[warp] = below;
__syncthreads();
for (int r = threadIdx.x; r < rows; r += WARPS * 32) {
  int sum = 0;
  for (int w = 0; w < WARPS; ++w) {
    const int own = count[w][r];
    count[w][r] = sum;
    sum += own;
  }
  total[r] = sum;
}
__syncthreads();
if (warp == 0) {
  int before = __reduce_add_sync(ALL, lane < WARPS ? below_of[lane] : 0);
  for (int first = 0; first < rows; first += 32) {
    const int r = first + lane, own = r < rows ? total[r] : 0;
    int sum = own;
#pragma unroll
    for (int d = 1; d < 32; d *= 2) {
      const int other = __shfl_up_sync(ALL, sum, d);
      if (lane >= d) sum += other;
    }
    if (r < rows) start[low + r] = place[r] = before + sum - own;
    before += __shfl_sync(ALL, sum, 31);
  }
  if (lane == 0 && low + rows == EXTENT) start[EXTENT] = before;
}
__syncthreads();
#pragma unroll 1
for (int first = begin; first < end; first += 32 * MANY) {
  Id k[MANY];
#pragma unroll
  for (int m = 0; m < MANY; ++m) k[m] = first + m * 32 + lane < end ? picks[first + m * 32 + lane] : -1;
#pragma unroll
  for (int m = 0; m < MANY; ++m) {
    const bool mine = k[m] >= low && k[m] < low + rows;
    if (!__any_sync(ALL, mine)) continue;
    const int row = mine ? (int)(k[m] - low) : -1;
    const u32 same = __match_any_sync(ALL, row);
    const int earlier = __popc(same & ((1u << lane) - 1)), leader = __ffs(same) - 1;
    // Only this warp counts here, one leader after another.
    int before = mine && lane == leader ? atomicAdd(&count[warp][row], __popc(same)) : 0;
    before = __shfl_sync(ALL, before, leader);
    if (mine) order[place[row] + before + earlier] = first + m * 32 + lane;
    __syncwarp();
  }
}
)cuda";

// Second kernel: a thread takes L columns of MANY rows. Those without picks are copies, their reads in flight together.
constexpr const char* kAddSorted = R"cuda(
const Index unit = (Index)blockIdx.x * blockDim.x + threadIdx.x;
if (unit >= UNITS) return;
const Index column = unit % (INNER / L) * L, rest = unit / (INNER / L), slab = rest / ROW_GROUPS;
const int first = (int)(rest % ROW_GROUPS) * MANY, rows = EXTENT - first < MANY ? EXTENT - first : MANY;
const Index batch = slab / OUTER;
const int* order = work + batch * PICKS;
const int* start = work + (BATCH * (Index)PICKS + batch * (EXTENT + 1) + first);
const T* from = updates + (slab * PICKS * INNER + column);
const Index at = (slab * EXTENT + first) * INNER + column;
if (base != y) {
  Pack<T, L> old[MANY];
#pragma unroll
  for (int m = 0; m < MANY; ++m) {
    if (m < rows) old[m] = *(const Pack<T, L>*)(base + (at + m * (Index)INNER));
  }
#pragma unroll
  for (int m = 0; m < MANY; ++m) {
    if (m < rows && start[m] == start[m + 1]) *(Pack<T, L>*)(y + (at + m * (Index)INNER)) = old[m];
  }
}
#pragma unroll 1
for (int m = 0; m < rows; ++m) {
  const int end = start[m + 1];
  int i = start[m];
  if (i == end) continue;
  Pack<T, L> piece = *(const Pack<T, L>*)(base + (at + m * (Index)INNER));
  Acc sum[L];
#pragma unroll
  for (int l = 0; l < L; ++l) sum[l] = load(piece.at[l]);
#pragma unroll 1
  for (; i + U <= end; i += U) {
    Pack<T, L> more[U];
#pragma unroll
    for (int u = 0; u < U; ++u) more[u] = *(const Pack<T, L>*)(from + order[i + u] * (Index)INNER);
#pragma unroll
    for (int u = 0; u < U; ++u) {
#pragma unroll
      for (int l = 0; l < L; ++l) sum[l] = plus(sum[l], load(more[u].at[l]));
    }
  }
#pragma unroll 1
  for (; i < end; i += 4) {
    Pack<T, L> more[4];
#pragma unroll
    for (int u = 0; u < 4; ++u) {
      if (i + u < end) more[u] = *(const Pack<T, L>*)(from + order[i + u] * (Index)INNER);
    }
#pragma unroll
    for (int u = 0; u < 4; ++u) {
      if (i + u >= end) continue;
#pragma unroll
      for (int l = 0; l < L; ++l) sum[l] = plus(sum[l], load(more[u].at[l]));
    }
  }
#pragma unroll
  for (int l = 0; l < L; ++l) piece.at[l] = store<T>(sum[l]);
  *(Pack<T, L>*)(y + (at + m * (Index)INNER)) = piece;
}
)cuda";

struct Problem {
  explicit Problem(const KernelQuery& query)
      : d(ops::gather_dims(query.in[0].shape, query.in[1].shape, query.attrs)),
        dtype(query.out[0].dtype),
        size(size_of(dtype)),
        what(ir::call_text(query.def, query.in)),
        index_of(c_type(query.in[1].dtype)) {}

  int64_t slabs() const { return d.batch * d.outer; }
  Generated kernel(std::vector<Generated::Param> params) const {
    const int64_t most =
        std::max({slabs() * d.extent * d.inner, slabs() * d.picks * d.inner, d.batch * (d.picks + d.extent + 1)});
    Generated k;
    k.what = what;
    k.params = std::move(params);
    k.helpers =
        types({{"T", c_type(dtype)}, {"Acc", wide_type(dtype)}, {"Id", index_of}, {"Index", index_type(most)}}) + kPlus;
    k.body = constants(
        {{"BATCH", d.batch}, {"OUTER", d.outer}, {"EXTENT", d.extent}, {"INNER", d.inner}, {"PICKS", d.picks}});
    return k;
  }

  const ops::GatherDims d;
  const DType dtype;
  const size_t size;
  const std::string what;
  const char* const index_of;
};

int64_t ceil_div(int64_t a, int64_t b) { return (a + b - 1) / b; }

bool accepts(const KernelQuery& query) {
  const DType dtype = query.out[0].dtype;
  return dtype != f64 && dtype != u8 && dtype != boolean;
}

// --- few picks ----------------------------------------------------------------------------------------------------

PreparedKernel prepare_picks(const KernelQuery& query) {
  if (query.out[0].bytes() == 0) return {};
  const Problem p(query);
  const int64_t length = vector_length(p.d.inner == 1 ? p.d.extent : p.d.inner, p.size);
  const int64_t pieces = p.slabs() * p.d.extent * p.d.inner / length;
  const int64_t many = pieces < 4 * kFewThreads ? 1 : 4;
  Generated k = p.kernel(
      {{"const T* base", kBase}, {"const Id* index", kIndex}, {"const T* updates", kUpdates}, {"T* y", kResult}});
  k.threads = pieces < kFewThreads ? 64 : 256;
  k.blocks = ceil_div(pieces, k.threads * many);
  k.body += constants({{"L", length}, {"PIECES", pieces}, {"MANY", many}, {"THREADS", k.threads}}) + kPicks;
  PreparedKernel result = prepared({std::move(k)});
  result.variant = "picks";
  return result;
}

// What another pick costs every thread, against a further kernel.
double cost_picks(const KernelQuery& query) {
  return static_cast<double>(ops::gather_dims(query.in[0].shape, query.in[1].shape, query.attrs).picks) / 32;
}

// --- many picks ---------------------------------------------------------------------------------------------------

Generated sort(const Problem& p) {
  // A thread block for each multiprocessor, as each reads all of the index; the counters fit in shared memory.
  const int64_t wanted = std::max<int64_t>(1, 132 / p.d.batch);
  const int64_t rows = std::min<int64_t>(512, ceil_div(p.d.extent, wanted)), groups = ceil_div(p.d.extent, rows);
  const int64_t warps = std::clamp<int64_t>(p.d.picks / 64, 1, 16);
  const int64_t segment = ceil_div(ceil_div(p.d.picks, warps), 32) * 32;
  Generated k = p.kernel({{"const Id* index", kIndex}, {"int* work", kWorkspace}});
  k.threads = static_cast<int>(warps * 32);
  k.blocks = p.d.batch * groups;
  k.body +=
      constants({{"WARPS", warps}, {"ROWS", rows}, {"GROUPS", groups}, {"SEGMENT", segment}, {"MANY", 4}}) + kSort;
  return k;
}

Generated add_sorted(const Problem& p) {
  const auto units = [&](int64_t length, int64_t many) {
    return p.slabs() * ceil_div(p.d.extent, many) * (p.d.inner / length);
  };
  // Short pieces leave registers for many updates in flight: a row picked often is one thread's work.
  int64_t length = vector_length(p.d.inner, p.size, 8);
  while (length > 1 && units(length, 1) < kFewThreads) length /= 2;
  const bool few = units(length, 4) < kFewThreads;
  const int64_t many = few ? 1 : 4;
  Generated k = p.kernel(
      {{"const T* base", kBase}, {"const int* work", kWorkspace}, {"const T* updates", kUpdates}, {"T* y", kResult}});
  k.threads = few ? 64 : 256;
  k.blocks = ceil_div(units(length, many), k.threads);
  k.body += constants({{"L", length},
                       {"UNITS", units(length, many)},
                       {"ROW_GROUPS", ceil_div(p.d.extent, many)},
                       {"MANY", many},
                       {"U", few ? 32 : 16}}) +
            kAddSorted;
  return k;
}

PreparedKernel prepare_sorted(const KernelQuery& query) {
  if (query.out[0].bytes() == 0) return {};
  const Problem p(query);
  const auto words = static_cast<size_t>(p.d.batch * (p.d.picks + p.d.extent + 1));
  PreparedKernel result = prepared({sort(p), add_sorted(p)}, words * sizeof(int32_t));
  result.variant = "sorted";
  return result;
}

double cost_sorted(const KernelQuery&) { return 1; }

}  // namespace

void register_scatter_add(KernelTable& table) {
  table.push_back({"scatter_add", "picks", accepts, cost_picks, prepare_picks});
  table.push_back({"scatter_add", "sorted", accepts, cost_sorted, prepare_sorted});
}

}  // namespace aicf::backend::cuda
