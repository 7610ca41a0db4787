// Kernels of reduce_sum, reduce_prod, reduce_max and reduce_min over adjacent axes: the operand is (outer, n, inner).
// The blocks of the reduction tree (backend/reduce_tree.h) are worked on side by side. Their results meet in shared
// memory where one thread block holds all of a row or column, else in the workspace, and a further kernel reduces them.
#include "ops/reduce.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>

#include "backend/cuda/code.h"
#include "backend/cuda/kernels.h"
#include "backend/cuda/reduce_text.h"
#include "backend/cuda/text.h"

namespace aicf::backend::cuda {
namespace {

constexpr int kResult = 1, kWorkspace = 2;  // buffers of the launch

// Elements in one of the launch's buffers, from the offset-th on.
struct Place {
  int buffer = 0;
  const char* type = "float";
  size_t size = 4;
  int64_t offset = 0;
};

// Collects the kernels of one reduction and the workspace they meet in.
class Builder {
 public:
  explicit Builder(const KernelQuery& query)
      : kind_(reduce_kind(query.def.name)),
        dtype_(query.in[0].dtype),
        what_(ir::call_text(query.def, query.in)),
        in_{0, c_type(dtype_), size_of(dtype_)},
        out_{kResult, c_type(dtype_), size_of(dtype_)} {}

  PreparedKernel build(const ops::ReduceDims& d) {
    if (d.outer * d.inner == 0) return {};
    if (d.n == 0) {
      fill(d.outer * d.inner);
    } else if (d.inner == 1) {
      rows(in_, d.outer, d.n);
    } else {
      columns(in_, d.outer, d.n, d.inner);
    }
    PreparedKernel kernel = prepared(std::move(kernels_), static_cast<size_t>(workspace_) * accumulator_size());
    kernel.variant = "tree";
    return kernel;
  }

 private:
  void fill(int64_t elements) {
    const std::string text = R"cuda(
const Index i = (Index)blockIdx.x * blockDim.x + threadIdx.x;
if (i < N) y[i] = store<Out>(identity());
)cuda";
    add(in_, out_, types({{"Index", index_type(elements)}, {"Out", out_.type}}) + constants({{"N", elements}}) + text,
        static_cast<int64_t>(blocks_of(static_cast<size_t>(elements), 256)), 256);
  }

  // --- row kind -------------------------------------------------------------------------------------------------

  void rows(const Place& in, int64_t outer, int64_t n) {
    const auto blocks = static_cast<int64_t>(blocks_of(static_cast<size_t>(n), kRowBlock));
    const RowSplit split = RowSplit::of(n, in.size, outer * blocks);
    // A thread block reduces its results as one block of the tree, and one that walks a long row alone would leave the
    // others idle.
    const bool spread = blocks > static_cast<int64_t>(kRowBlock) || (blocks > 64 && outer < 64);
    if (blocks == 1 || spread) {
      const Place out = blocks == 1 ? out_ : workspace(outer * blocks);
      row_blocks(in, out, split, outer, n, blocks);
      if (blocks > 1) rows(out, outer, blocks);
    } else {
      whole_rows(in, split, outer, n, blocks);
    }
  }

  static std::string split_types(const Place& in, const Place& out, int64_t elements) {
    return types({{"In", in.type}, {"Out", out.type}, {"Index", index_type(elements)}});
  }

  static std::string split_constants(const RowSplit& split, int64_t outer, int64_t n, int64_t blocks) {
    return constants({{"G", split.threads},
                      {"V", split.vectors},
                      {"L", split.length},
                      {"U", split.unroll},
                      {"OUTER", outer},
                      {"N", n},
                      {"BLOCKS", blocks}});
  }

  // A group of threads for each block; past the last one it repeats that, as the whole warp must take part.
  void row_blocks(const Place& in, const Place& out, const RowSplit& split, int64_t outer, int64_t n, int64_t blocks) {
    const int64_t units = outer * blocks;
    const int threads = units * split.threads < kFewThreads ? 64 : 256;
    const std::string text = R"cuda(
const int t = threadIdx.x % G;
const Index wanted = (Index)blockIdx.x * (blockDim.x / G) + threadIdx.x / G;
const Index unit = wanted < OUTER * (Index)BLOCKS ? wanted : OUTER * (Index)BLOCKS - 1;
const Index row = unit / BLOCKS, block = unit % BLOCKS;
const int n = BLOCKS == 1 || block == BLOCKS - 1 ? (int)(N - (Index)(BLOCKS - 1) * BLOCK) : BLOCK;
const Acc result = row_block<In, G, V, L, U>(x + (row * (Index)N + block * BLOCK), n, t);
if (t == 0 && unit == wanted) y[unit] = store<Out>(result);
)cuda";
    add(in, out, split_types(in, out, outer * n) + split_constants(split, outer, n, blocks) + text,
        static_cast<int64_t>(blocks_of(static_cast<size_t>(units), static_cast<size_t>(threads / split.threads))),
        threads);
  }

  // A thread block takes whole rows, a group of threads one block at a time; then a warp each row's results.
  void whole_rows(const Place& in, const RowSplit& split, int64_t outer, int64_t n, int64_t blocks) {
    const int64_t per_row = blocks * split.threads;
    const int64_t taken = std::clamp<int64_t>(256 / per_row, 1, std::max<int64_t>(1, outer / 256));
    const int64_t most = outer < 264 ? 512 : 256;
    const auto threads = static_cast<int>(std::min(most, (taken * per_row + 31) / 32 * 32));
    const int64_t lanes =
        std::min<int64_t>(static_cast<int64_t>(kRowLanes), std::bit_ceil(static_cast<uint64_t>(blocks)));
    const std::string text = R"cuda(
__shared__ Acc results[ROWS * BLOCKS];
const Index first = (Index)blockIdx.x * ROWS;
for (int base = 0; base < ROWS * BLOCKS; base += T / G) {
  const int unit = base + threadIdx.x / G, block = unit % BLOCKS;
  const Index row = first + unit / BLOCKS;
  const bool live = unit < ROWS * BLOCKS && row < OUTER;
  const int n = !live ? 0 : block == BLOCKS - 1 ? (int)(N - (Index)(BLOCKS - 1) * BLOCK) : BLOCK;
  const Acc result = row_block<In, G, V, L, U>(x + (live ? row * (Index)N + block * BLOCK : 0), n, threadIdx.x % G);
  if (live && threadIdx.x % G == 0) results[unit] = result;
}
__syncthreads();
for (int row = threadIdx.x / 32; row < ROWS; row += T / 32) {
  if (first + row >= OUTER) break;
  const Acc result = row_block<Acc, 32, LANES, 1, 4>(results + row * BLOCKS, BLOCKS, threadIdx.x % 32);
  if (threadIdx.x % 32 == 0) y[first + row] = store<Out>(result);
}
)cuda";
    add(in, out_,
        split_types(in, out_, outer * n) + split_constants(split, outer, n, blocks) +
            constants({{"ROWS", taken}, {"T", threads}, {"LANES", std::max<int64_t>(1, lanes / 32)}}) + text,
        static_cast<int64_t>(blocks_of(static_cast<size_t>(outer), static_cast<size_t>(taken))), threads);
  }

  // --- column kind ----------------------------------------------------------------------------------------------

  void columns(const Place& in, int64_t outer, int64_t n, int64_t inner) {
    const auto chunks = static_cast<int64_t>(blocks_of(static_cast<size_t>(n), kColumnChunk));
    if (chunks == 1) {
      column_chunks(in, out_, outer, n, inner, chunks);
    } else if (const int64_t tile = whole_tile(in, outer, n, inner); tile > 0) {
      whole_columns(in, outer, n, inner, chunks, tile);
    } else {
      const Place out = workspace(outer * chunks * inner);
      column_chunks(in, out, outer, n, inner, chunks);
      columns(out, outer, chunks, inner);
    }
  }

  // Loads in flight of a thread that moves `length` elements at a time.
  static int64_t column_unroll(const Place& in, int64_t length) {
    return 32 / std::max<int64_t>(1, length * static_cast<int64_t>(in.size) / 4);
  }

  // Thread by thread: the outer index, the chunk, the columns.
  void column_chunks(const Place& in, const Place& out, int64_t outer, int64_t n, int64_t inner, int64_t chunks) {
    int64_t length = vector_length(inner, std::max(in.size, accumulator_size() / 2));
    while (length > 1 && outer * chunks * inner / length < kFewThreads) length /= 2;
    const int64_t units = outer * chunks * (inner / length);
    const int threads = units < 2 * kFewThreads ? 64 : 256;
    const std::string text = R"cuda(
const Index unit = (Index)blockIdx.x * blockDim.x + threadIdx.x;
if (unit >= OUTER * (Index)CHUNKS * (INNER / L)) return;
const Index column = unit % (INNER / L) * L, block = unit / (INNER / L);
const Index first = block % CHUNKS * CHUNK;
const int rows = CHUNKS == 1 || N - first < CHUNK ? (int)(N - first) : CHUNK;
Acc acc[L];
#pragma unroll
for (int l = 0; l < L; ++l) acc[l] = identity();
column_rows<In, L, U>(acc, x + ((block / CHUNKS * N + first) * INNER + column), rows, (Index)INNER);
Pack<Out, L> result;
#pragma unroll
for (int l = 0; l < L; ++l) result.at[l] = store<Out>(acc[l]);
*(Pack<Out, L>*)(y + (block * INNER + column)) = result;
)cuda";
    add(in, out,
        split_types(in, out, outer * n * inner) +
            constants({{"L", length},
                       {"U", std::min<int64_t>(column_unroll(in, length), n)},
                       {"OUTER", outer},
                       {"N", n},
                       {"INNER", inner},
                       {"CHUNKS", chunks},
                       {"CHUNK", static_cast<int64_t>(kColumnChunk)}}) +
            text,
        static_cast<int64_t>(blocks_of(static_cast<size_t>(units), static_cast<size_t>(threads))), threads);
  }

  // The number of columns that one thread block takes all chunks of, 0 where that is no way: what fits in the cache,
  // and little enough of it for each. Memory is read in sectors of 32 bytes.
  static int64_t whole_tile(const Place& in, int64_t outer, int64_t n, int64_t inner) {
    const auto size = static_cast<int64_t>(in.size);
    if (outer * n * inner * size > (8 << 20)) return 0;
    const auto all = static_cast<int64_t>(std::bit_ceil(static_cast<uint64_t>(inner)));
    int64_t tile = std::min(all, 128 / size);
    while (tile * size > 32 && outer * (inner / tile) < 132) tile /= 2;
    return n * tile * size <= (256 << 10) ? tile : 0;
  }

  void whole_columns(const Place& in, int64_t outer, int64_t n, int64_t inner, int64_t chunks, int64_t tile) {
    int64_t length = std::min<int64_t>(vector_length(inner, in.size), tile);
    while (length > 1 && tile / length * chunks < 256) length /= 2;
    const int64_t across = tile / length;
    const int64_t down = std::min(chunks, 512 / across);
    const auto threads = static_cast<int>((across * down + 31) / 32 * 32);
    const auto tiles = static_cast<int64_t>(blocks_of(static_cast<size_t>(inner), static_cast<size_t>(tile)));
    const auto chunks_of_chunks = static_cast<int64_t>(blocks_of(static_cast<size_t>(chunks), kColumnChunk));
    const std::string text = R"cuda(
__shared__ Acc results[CHUNKS * TILE];
const Index outer = blockIdx.x / TILES, start = blockIdx.x % TILES * TILE;
{
  const int down = threadIdx.x / ACROSS, at = threadIdx.x % ACROSS * L;
  if (down < DOWN && start + at < INNER) {
    for (int chunk = down; chunk < CHUNKS; chunk += DOWN) {
      const int first = chunk * CHUNK;
      Acc acc[L];
#pragma unroll
      for (int l = 0; l < L; ++l) acc[l] = identity();
      column_rows<In, L, U>(acc, x + ((outer * N + first) * INNER + start + at), N - first < CHUNK ? N - first : CHUNK,
                            (Index)INNER);
#pragma unroll
      for (int l = 0; l < L; ++l) results[chunk * TILE + at + l] = acc[l];
    }
  }
}
__syncthreads();
const Acc* last = results;
if (CHUNKS > CHUNK) {
  __shared__ Acc more[MORE * TILE];
  for (int i = threadIdx.x; i < MORE * TILE; i += T) {
    const int first = i / TILE * CHUNK;
    Acc acc[1] = {identity()};
    column_rows<Acc, 1, 8>(acc, results + first * TILE + i % TILE, CHUNKS - first < CHUNK ? CHUNKS - first : CHUNK,
                           TILE);
    more[i] = acc[0];
  }
  __syncthreads();
  last = more;
}
for (int i = threadIdx.x; i < TILE; i += T) {
  if (start + i >= INNER) break;
  Acc acc[1] = {identity()};
  column_rows<Acc, 1, 8>(acc, last + i, CHUNKS > CHUNK ? MORE : CHUNKS, TILE);
  y[outer * INNER + start + i] = store<Out>(acc[0]);
}
)cuda";
    add(in, out_,
        split_types(in, out_, outer * n * inner) +
            constants({{"L", length},
                       {"U", column_unroll(in, length)},
                       {"N", n},
                       {"INNER", inner},
                       {"CHUNKS", chunks},
                       {"CHUNK", static_cast<int64_t>(kColumnChunk)},
                       {"MORE", chunks_of_chunks},
                       {"TILE", tile},
                       {"TILES", tiles},
                       {"ACROSS", across},
                       {"DOWN", down},
                       {"T", threads}}) +
            text,
        outer * tiles, threads);
  }

  // --- common ---------------------------------------------------------------------------------------------------

  size_t accumulator_size() const { return dtype_ == i64 ? 8 : 4; }

  Place workspace(int64_t elements) {
    const Place place = {kWorkspace, wide_type(dtype_), accumulator_size(), workspace_};
    workspace_ += (elements + 63) / 64 * 64;
    return place;
  }

  void add(const Place& in, const Place& out, const std::string& text, int64_t blocks, int threads) {
    Generated kernel;
    kernel.what = what_;
    kernel.params = {{fmt::format("const {}* xs", in.type), in.buffer}, {fmt::format("{}* ys", out.type), out.buffer}};
    kernel.helpers = reduce_text(kind_, dtype_);
    kernel.body =
        fmt::format("const {}* x = xs + {};\n{}* y = ys + {};\n", in.type, in.offset, out.type, out.offset) + text;
    kernel.blocks = blocks;
    kernel.threads = threads;
    kernels_.push_back(std::move(kernel));
  }

  const ReduceKind kind_;
  const DType dtype_;
  const std::string what_;
  const Place in_, out_;
  std::vector<Generated> kernels_;
  int64_t workspace_ = 0;  // in accumulators
};

bool accepts(const KernelQuery& query) {
  const ReduceKind kind = reduce_kind(query.def.name);
  const DType dtype = query.in[0].dtype;
  const bool bytes = dtype == u8 || dtype == boolean;
  return dtype != f64 && (!bytes || kind == ReduceKind::max || kind == ReduceKind::min);
}

PreparedKernel prepare(const KernelQuery& query) {
  return Builder(query).build(ops::reduce_dims(query.in[0].shape, query.attrs));
}

}  // namespace

void register_reduce_sum(KernelTable& table) { table.push_back({"reduce_sum", "tree", accepts, nullptr, prepare}); }
void register_reduce_prod(KernelTable& table) { table.push_back({"reduce_prod", "tree", accepts, nullptr, prepare}); }
void register_reduce_max(KernelTable& table) { table.push_back({"reduce_max", "tree", accepts, nullptr, prepare}); }
void register_reduce_min(KernelTable& table) { table.push_back({"reduce_min", "tree", accepts, nullptr, prepare}); }

}  // namespace aicf::backend::cuda
