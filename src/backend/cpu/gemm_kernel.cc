// Register-tiled inner loops on Highway. FMA is meant here: this is the main loop of matmul.
#include "backend/cpu/gemm_kernel.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <utility>

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "backend/cpu/gemm_kernel.cc"
#include "hwy/foreach_target.h"
#include "hwy/highway.h"

// Loops over registers must vanish, or the accumulators live in memory.
#undef AICF_UNROLL
#ifdef __clang__
#define AICF_UNROLL _Pragma("unroll")
#else
#define AICF_UNROLL _Pragma("GCC unroll 16")
#endif

HWY_BEFORE_NAMESPACE();
namespace aicf::backend::cpu {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

using D = hn::ScalableTag<float>;
using V = hn::Vec<D>;

constexpr int kLanes = static_cast<int>(hn::MaxLanes(D()));
constexpr int kPanel = 2 * kLanes;
// Accumulators, two vectors of R and one broadcast fill the register file: 28 + 3 of 32, 12 + 3 of 16.
constexpr int kRows = HWY_TARGET <= HWY_AVX3 ? 14 : 6;
constexpr int kLeftStride = 16;  // of a packed tile of L: whole cache lines

// c (rows × vectors) = l·r, or += with `add`. kStrided: element (i, d) of l is l[i * l_stride + d]; otherwise it is
// l[d * l_stride + i].
template <int rows, int vectors, bool kStrided>
void micro_tile(const float* l, int64_t l_stride, const float* r, int64_t r_stride, int64_t depth, float* c,
                int64_t c_stride, bool add) {
  const D d;
  V sum[rows][vectors];
  AICF_UNROLL
  for (int i = 0; i < rows; ++i) {
    AICF_UNROLL
    for (int j = 0; j < vectors; ++j) sum[i][j] = hn::Zero(d);
  }
  // One pointer per three rows: base, base + stride and base + 2·stride are single addressing modes.
  constexpr int kBases = (rows + 2) / 3;
  const float* base[kBases];
  AICF_UNROLL
  for (int i = 0; i < kBases; ++i) base[i] = kStrided ? l + 3 * i * l_stride : l + 3 * i;
  for (; depth > 0; --depth) {
    V b[vectors];
    AICF_UNROLL
    for (int j = 0; j < vectors; ++j) b[j] = hn::LoadU(d, r + j * kLanes);
    AICF_UNROLL
    for (int i = 0; i < rows; ++i) {
      const V a = hn::Set(d, kStrided ? base[i / 3][(i % 3) * l_stride] : base[0][i]);
      AICF_UNROLL
      for (int j = 0; j < vectors; ++j) sum[i][j] = hn::MulAdd(a, b[j], sum[i][j]);
    }
    AICF_UNROLL
    for (int i = 0; i < kBases; ++i) base[i] += kStrided ? 1 : l_stride;
    r += r_stride;
  }
  AICF_UNROLL
  for (int i = 0; i < rows; ++i) {
    AICF_UNROLL
    for (int j = 0; j < vectors; ++j) {
      float* to = c + i * c_stride + j * kLanes;
      hn::StoreU(add ? hn::Add(hn::LoadU(d, to), sum[i][j]) : sum[i][j], d, to);
    }
  }
}

using MicroTile = void (*)(const float*, int64_t, const float*, int64_t, int64_t, float*, int64_t, bool);

template <int vectors, bool kStrided, size_t... i>
constexpr std::array<MicroTile, sizeof...(i)> micro_tiles(std::index_sequence<i...>) {
  return {&micro_tile<static_cast<int>(i) + 1, vectors, kStrided>...};
}
template <int vectors, bool kStrided>
constexpr std::array<MicroTile, kRows> kMicroTiles = micro_tiles<vectors, kStrided>(std::make_index_sequence<kRows>());

MicroTile find_micro_tile(int64_t rows, int64_t vectors, bool strided) {
  if (vectors == 1) return strided ? kMicroTiles<1, true>[rows - 1] : kMicroTiles<1, false>[rows - 1];
  return strided ? kMicroTiles<2, true>[rows - 1] : kMicroTiles<2, false>[rows - 1];
}

// to[c * to_stride + r] = from[r * from_stride + c], or += with kAdd.
template <bool kAdd>
void put(float value, float* to) {
  *to = kAdd ? *to + value : value;
}
#if HWY_TARGET != HWY_SCALAR
using D4 = hn::FixedTag<float, 4>;

template <bool kAdd>
void put4(hn::Vec<D4> value, float* to) {
  const D4 d;
  hn::StoreU(kAdd ? hn::Add(hn::LoadU(d, to), value) : value, d, to);
}

template <bool kAdd>
void transpose_4x4(const float* from, int64_t from_stride, float* to, int64_t to_stride) {
  const D4 d;
  const hn::Repartition<double, D4> pairs;
  const auto r0 = hn::LoadU(d, from), r1 = hn::LoadU(d, from + from_stride);
  const auto r2 = hn::LoadU(d, from + 2 * from_stride), r3 = hn::LoadU(d, from + 3 * from_stride);
  const auto lo01 = hn::BitCast(pairs, hn::InterleaveLower(d, r0, r1));
  const auto lo23 = hn::BitCast(pairs, hn::InterleaveLower(d, r2, r3));
  const auto hi01 = hn::BitCast(pairs, hn::InterleaveUpper(d, r0, r1));
  const auto hi23 = hn::BitCast(pairs, hn::InterleaveUpper(d, r2, r3));
  put4<kAdd>(hn::BitCast(d, hn::InterleaveLower(pairs, lo01, lo23)), to);
  put4<kAdd>(hn::BitCast(d, hn::InterleaveUpper(pairs, lo01, lo23)), to + to_stride);
  put4<kAdd>(hn::BitCast(d, hn::InterleaveLower(pairs, hi01, hi23)), to + 2 * to_stride);
  put4<kAdd>(hn::BitCast(d, hn::InterleaveUpper(pairs, hi01, hi23)), to + 3 * to_stride);
}
#endif

template <bool kAdd>
void transpose(const float* from, int64_t from_stride, int64_t rows, int64_t cols, float* to, int64_t to_stride) {
  constexpr int64_t kChunk = 16;  // columns: a cache line of each row at a time
  constexpr int64_t kSquare = kLanes >= 4 ? 4 : INT64_MAX;
  const int64_t whole_rows = rows / kSquare * 4, whole_cols = cols / kSquare * 4;
  for (int64_t c0 = 0; c0 < cols; c0 += kChunk) {
    const int64_t c1 = std::min(c0 + kChunk, cols);
#if HWY_TARGET != HWY_SCALAR
    for (int64_t r = 0; r < whole_rows; r += 4) {
      for (int64_t c = c0; c < std::min(c1, whole_cols); c += 4) {
        transpose_4x4<kAdd>(from + r * from_stride + c, from_stride, to + c * to_stride + r, to_stride);
      }
    }
#endif
    for (int64_t c = c0; c < c1; ++c) {
      for (int64_t r = c < whole_cols ? whole_rows : 0; r < rows; ++r) {
        put<kAdd>(from[r * from_stride + c], to + c * to_stride + r);
      }
    }
  }
}

void pack_panel(const float* from, int64_t depth_stride, int64_t col_stride, int64_t depth, int64_t cols, int64_t width,
                float* to) {
  if (cols < width) std::memset(to, 0, static_cast<size_t>(depth * width) * sizeof(float));
  if (depth_stride == 1) return transpose<false>(from, col_stride, cols, depth, to, width);
  const D d;
  for (int64_t k = 0; k < depth; ++k, from += depth_stride, to += width) {
    int64_t c = 0;
    for (; c + kLanes <= cols; c += kLanes) hn::StoreU(hn::LoadU(d, from + c), d, to + c);
    for (; c < cols; ++c) to[c] = from[c];
  }
}

// A tile that does not fill whole vectors of C, or is stored transposed, comes by way of `tile`.
void store_tile(const float* tile, int64_t rows, int64_t cols, const GemmBlock& block, int64_t row, int64_t col,
                bool add) {
  if (block.out_transposed) {
    float* to = block.out + col * block.out_stride + row;
    return add ? transpose<true>(tile, kPanel, rows, cols, to, block.out_stride)
               : transpose<false>(tile, kPanel, rows, cols, to, block.out_stride);
  }
  for (int64_t i = 0; i < rows; ++i) {
    float* to = block.out + (row + i) * block.out_stride + col;
    for (int64_t j = 0; j < cols; ++j) to[j] = add ? to[j] + tile[i * kPanel + j] : tile[i * kPanel + j];
  }
}

struct LeftTile {
  const float* data;
  int64_t stride;
  bool strided;
};

LeftTile left_tile(const GemmBlock& block, int64_t row, int64_t rows, int64_t begin, int64_t depth, float* buffer) {
  const bool strided = block.left_row_stride != 1;
  if (block.depth == 0) return {buffer, kLeftStride, strided};
  const float* from = block.left + row * block.left_row_stride + begin * block.left_depth_stride;
  if (!block.pack_left) return {from, strided ? block.left_row_stride : block.left_depth_stride, strided};
  if (strided) {
    transpose<false>(from, block.left_row_stride, rows, depth, buffer, kLeftStride);
  } else {
    for (int64_t k = 0; k < depth; ++k) {
      for (int64_t i = 0; i < rows; ++i) buffer[k * kLeftStride + i] = from[k * block.left_depth_stride + i];
    }
  }
  return {buffer, kLeftStride, false};
}

void multiply_tile(const GemmBlock& block, const LeftTile& left, int64_t row, int64_t rows, int64_t panel,
                   int64_t begin, int64_t depth) {
  const int64_t col = panel * kPanel, cols = std::min<int64_t>(kPanel, block.cols - col);
  const int64_t vectors = cols > kLanes ? 2 : 1, width = vectors * kLanes;
  const bool packed = panel >= block.first_packed;
  const int64_t right_stride = packed ? width : block.right_depth_stride;
  const float* right = left.data;  // where the inner axis is empty, nothing is read of either
  if (block.depth > 0) {
    right = (packed ? block.packed + (panel - block.first_packed) * block.depth * kPanel : block.right + col) +
            begin * right_stride;
  }
  const MicroTile micro = find_micro_tile(rows, vectors, left.strided);
  const bool add = begin > 0;
  if (cols == width && !block.out_transposed) {
    micro(left.data, left.stride, right, right_stride, depth, block.out + row * block.out_stride + col,
          block.out_stride, add);
    return;
  }
  alignas(64) float tile[kRows * kPanel];
  micro(left.data, left.stride, right, right_stride, depth, tile, kPanel, false);
  store_tile(tile, rows, cols, block, row, col, add);
}

void multiply_block(const GemmBlock& block) {
  alignas(64) float buffer[kMaxDepthBlock * kLeftStride];
  const int64_t depth_blocks = std::max<int64_t>(1, ceil_div(block.depth, kMaxDepthBlock));
  for (int64_t k = 0; k < depth_blocks; ++k) {
    const int64_t begin = share_begin(block.depth, k, depth_blocks);
    const int64_t depth = share_begin(block.depth, k + 1, depth_blocks) - begin;
    for (int64_t t = block.tile_begin; t < block.tile_end; ++t) {
      const int64_t row = share_begin(block.rows, t, block.tiles);
      const int64_t rows = share_begin(block.rows, t + 1, block.tiles) - row;
      const LeftTile left = left_tile(block, row, rows, begin, depth, buffer);
      for (int64_t panel = block.panel_begin; panel < block.panel_end; ++panel) {
        multiply_tile(block, left, row, rows, panel, begin, depth);
      }
    }
  }
}

GemmTile tile_shape() { return {kRows, kLanes}; }

}  // namespace HWY_NAMESPACE
}  // namespace aicf::backend::cpu
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace aicf::backend::cpu {

HWY_EXPORT(tile_shape);
HWY_EXPORT(multiply_block);
HWY_EXPORT(pack_panel);

GemmTile gemm_tile() { return HWY_DYNAMIC_DISPATCH(tile_shape)(); }

void gemm_block(const GemmBlock& block) { HWY_DYNAMIC_DISPATCH(multiply_block)(block); }

void gemm_pack_panel(const float* from, int64_t depth_stride, int64_t col_stride, int64_t depth, int64_t cols,
                     int64_t width, float* to) {
  HWY_DYNAMIC_DISPATCH(pack_panel)(from, depth_stride, col_stride, depth, cols, width, to);
}

}  // namespace aicf::backend::cpu
#endif
