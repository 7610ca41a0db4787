// Kernels of reduce_sum, reduce_prod, reduce_max and reduce_min over adjacent axes: the operand is (outer, n, inner).
// The work is shared out along the blocks of the reduction tree (reduce_tree.h); their results meet in the workspace.
#include <algorithm>
#include <cstring>
#include <limits>

#include "backend/cpu/kernels.h"
#include "backend/cpu/partition.h"
#include "backend/cpu/pointwise.h"
#include "backend/cpu/reduce_tree.h"
#include "ops/reduce.h"

namespace aicf::backend::cpu {
namespace {

struct Params {
  ReduceKind kind = ReduceKind::sum;
  DType dtype = DType::f32;
  size_t outer = 0, n = 0, inner = 0;
  size_t blocks = 0;        // of a row, or chunks of a column
  size_t tiles = 0;         // of columns
  TileFn widen = nullptr;   // 16-bit floats to f32
  TileFn narrow = nullptr;  // and back
};

// The element type in which `dtype` is reduced.
template <class F>
auto with_type(DType dtype, F f) {
  switch (dtype) {
    case DType::f64:
      return f(double{});
    case DType::i64:
      return f(int64_t{});
    case DType::i32:
      return f(int32_t{});
    case DType::u8:
    case DType::boolean:
      return f(uint8_t{});
    default:
      return f(float{});
  }
}

const Params& params_of(const KernelArgs& args) { return *static_cast<const Params*>(args.params); }

// Elements first… of the operand as T, through `buffer` when they have 16 bits.
template <class T>
const T* operand(const Params& p, const void* data, size_t first, size_t n, T* buffer) {
  if (!p.widen) return static_cast<const T*>(data) + first;
  const void* from = static_cast<const uint16_t*>(data) + first;
  p.widen(&from, buffer, n);
  return buffer;
}

template <class T>
void put(const Params& p, const T* from, void* out, size_t first, size_t n) {
  if (!p.narrow) {
    std::copy_n(from, n, static_cast<T*>(out) + first);
    return;
  }
  const void* in = from;
  p.narrow(&in, static_cast<uint16_t*>(out) + first, n);
}

// A bool is one byte, 0 or 1, so the identity of `all` is 1 and not 255.
template <class T>
T identity_of(const Params& p) {
  if (p.dtype == boolean && p.kind == ReduceKind::min) return 1;
  return reduce_tree<T>(p.kind).identity;
}

template <class T>
void fill_identity(const KernelArgs& args, int, int) {
  const Params& p = params_of(args);
  const T identity = identity_of<T>(p);
  for (size_t i = 0; i < p.outer * p.inner; ++i) put(p, &identity, args.buffers[1], i, 1);
}

// --- row kind ---------------------------------------------------------------------------------------------------

// Blocks of all rows: their results go to the workspace, or are the answer where a row has one block.
template <class T>
void row_blocks(const KernelArgs& args, int part, int parts) {
  const Params& p = params_of(args);
  const ReduceTree<T>& tree = reduce_tree<T>(p.kind);
  T buffer[kRowBlock];
  const Range range = share(static_cast<int64_t>(p.outer * p.blocks), part, parts);
  if (p.blocks == 1 && !p.widen) {
    for (size_t row = range.begin; row < static_cast<size_t>(range.end); row += kRowBlock) {
      const size_t rows = std::min(kRowBlock, static_cast<size_t>(range.end) - row);
      tree.rows(static_cast<const T*>(args.buffers[0]) + row * p.n, rows, p.n, buffer);
      put(p, buffer, args.buffers[1], row, rows);
    }
    return;
  }
  for (size_t unit = range.begin; unit < static_cast<size_t>(range.end); ++unit) {
    const size_t row = p.blocks == 1 ? unit : unit / p.blocks, first = (unit - row * p.blocks) * kRowBlock;
    const size_t n = std::min(kRowBlock, p.n - first);
    const T result = tree.row_block(operand(p, args.buffers[0], row * p.n + first, n, buffer), n);
    if (p.blocks == 1) {
      put(p, &result, args.buffers[1], row, 1);
    } else {
      static_cast<T*>(args.buffers[2])[unit] = result;
    }
  }
}

template <class T>
void row_finish(const KernelArgs& args, int part, int parts) {
  const Params& p = params_of(args);
  const Range rows = share(static_cast<int64_t>(p.outer), part, parts);
  for (int64_t row = rows.begin; row < rows.end; ++row) {
    T* results = static_cast<T*>(args.buffers[2]) + row * p.blocks;
    const T result = combine_blocks(reduce_tree<T>(p.kind), results, p.blocks);
    put(p, &result, args.buffers[1], row, 1);
  }
}

// --- column kind ------------------------------------------------------------------------------------------------

// One chunk of one tile of columns.
template <class T>
void chunk(const Params& p, const void* data, size_t first, size_t rows, size_t columns, T* acc) {
  const ReduceTree<T>& tree = reduce_tree<T>(p.kind);
  std::fill_n(acc, columns, tree.identity);
  if (!p.widen) {
    tree.column_rows(acc, static_cast<const T*>(data) + first, rows, p.inner, columns);
    return;
  }
  T buffer[kColumnTile];
  for (size_t r = 0; r < rows; ++r) {
    tree.column_rows(acc, operand(p, data, first + r * p.inner, columns, buffer), 1, columns, columns);
  }
}

// Units are (outer, chunk, tile), the tile fastest.
template <class T>
void column_chunks(const KernelArgs& args, int part, int parts) {
  const Params& p = params_of(args);
  T acc[kColumnTile];
  const Range range = share(static_cast<int64_t>(p.outer * p.blocks * p.tiles), part, parts);
  for (size_t unit = range.begin; unit < static_cast<size_t>(range.end); ++unit) {
    const size_t column = unit % p.tiles * kColumnTile, columns = std::min(kColumnTile, p.inner - column);
    const size_t block = unit / p.tiles, outer = block / p.blocks, row = block % p.blocks * kColumnChunk;
    const size_t rows = std::min(kColumnChunk, p.n - row);
    chunk(p, args.buffers[0], (outer * p.n + row) * p.inner + column, rows, columns, acc);
    const size_t at = block * p.inner + column;
    if (p.blocks == 1) {
      put(p, acc, args.buffers[1], at, columns);
    } else {
      std::copy_n(acc, columns, static_cast<T*>(args.buffers[2]) + at);
    }
  }
}

template <class T>
void column_finish(const KernelArgs& args, int part, int parts) {
  const Params& p = params_of(args);
  const Range range = share(static_cast<int64_t>(p.outer * p.tiles), part, parts);
  for (size_t unit = range.begin; unit < static_cast<size_t>(range.end); ++unit) {
    const size_t column = unit % p.tiles * kColumnTile, columns = std::min(kColumnTile, p.inner - column);
    const size_t outer = unit / p.tiles;
    T* results = static_cast<T*>(args.buffers[2]) + outer * p.blocks * p.inner + column;
    combine_chunks(reduce_tree<T>(p.kind), results, p.blocks, p.inner, columns);
    put(p, results, args.buffers[1], outer * p.inner + column, columns);
  }
}

// --- registration -----------------------------------------------------------------------------------------------

bool accepts(const KernelQuery& query) {
  const ReduceKind kind = reduce_kind(query.def.name);
  const DType dtype = query.in[0].dtype;
  return kind == ReduceKind::max || kind == ReduceKind::min || (dtype != u8 && dtype != boolean);
}

Params layout(const KernelQuery& query) {
  Params p;
  p.kind = reduce_kind(query.def.name);
  p.dtype = query.in[0].dtype;
  const ops::ReduceDims dims = ops::reduce_dims(query.in[0].shape, query.attrs);
  p.outer = static_cast<size_t>(dims.outer);
  p.n = static_cast<size_t>(dims.n);
  p.inner = static_cast<size_t>(dims.inner);
  const bool row = p.inner == 1;
  p.blocks = blocks_of(p.n, row ? kRowBlock : kColumnChunk);
  p.tiles = blocks_of(p.inner, kColumnTile);
  if (p.dtype == bf16 || p.dtype == f16) {
    p.widen = find_cast(p.dtype, f32);
    p.narrow = find_cast(f32, p.dtype);
  }
  return p;
}

int parts_for(size_t units, size_t elements) {
  const size_t parts = (elements + kPartElements - 1) / kPartElements;
  return static_cast<int>(std::clamp<size_t>(std::min(units, parts), 1, 1 << 16));
}

template <class T>
void add_phases(const Params& p, PreparedKernel& kernel) {
  const bool row = p.inner == 1;
  const size_t units = row ? p.outer : p.outer * p.tiles;
  if (p.outer * p.inner == 0) return;
  if (p.n == 0) {
    kernel.phases.push_back({fill_identity<T>, 1});
    return;
  }
  kernel.phases.push_back(
      {row ? row_blocks<T> : column_chunks<T>, parts_for(units * p.blocks, p.outer * p.n * p.inner)});
  if (p.blocks == 1) return;
  kernel.phases.push_back({row ? row_finish<T> : column_finish<T>, parts_for(units, p.outer * p.blocks * p.inner)});
  kernel.workspace_bytes = p.outer * p.blocks * p.inner * sizeof(T);
}

PreparedKernel prepare(const KernelQuery& query) {
  PreparedKernel kernel;
  kernel.variant = "tree";
  auto params = std::make_shared<Params>(layout(query));
  with_type(params->dtype, [&](auto t) { add_phases<decltype(t)>(*params, kernel); });
  kernel.params = std::move(params);
  return kernel;
}

}  // namespace

void register_reduce_sum(KernelTable& table) { table.push_back({"reduce_sum", "tree", accepts, nullptr, prepare}); }
void register_reduce_prod(KernelTable& table) { table.push_back({"reduce_prod", "tree", accepts, nullptr, prepare}); }
void register_reduce_max(KernelTable& table) { table.push_back({"reduce_max", "tree", accepts, nullptr, prepare}); }
void register_reduce_min(KernelTable& table) { table.push_back({"reduce_min", "tree", accepts, nullptr, prepare}); }

}  // namespace aicf::backend::cpu
