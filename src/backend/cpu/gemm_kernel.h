// The inner loops of the packed GEMM, compiled once per instruction set and chosen at run time.
//
// They compute C = L·R. L (rows × depth) is read one element at a time and broadcast, R (depth × cols) a vector at a
// time, in panels of two vectors. A tile of C stays in registers for a whole block of the depth, and its sums run in
// depth order.
#pragma once

#include <cstdint>

namespace aicf::backend::cpu {

// The register tile of the instruction set in use: at most `rows` rows by two vectors of `lanes` elements.
struct GemmTile {
  int rows = 0;
  int lanes = 0;
  int panel() const { return 2 * lanes; }
};
GemmTile gemm_tile();

// Depth is cut into equal blocks no longer than this: one block of L's tile stays in the first-level cache.
inline constexpr int64_t kMaxDepthBlock = 384;

inline int64_t ceil_div(int64_t a, int64_t b) { return (a + b - 1) / b; }
// The first index of share `i` when n things are cut into `shares` shares that differ by at most one.
inline int64_t share_begin(int64_t n, int64_t i, int64_t shares) { return n * i / shares; }

// One product of matrices, or a block of it. Strides are in elements; one stride of L and one of R is 1.
struct GemmBlock {
  int64_t rows = 0, cols = 0, depth = 0;  // of the whole product
  const float* left = nullptr;
  int64_t left_row_stride = 0, left_depth_stride = 0;
  bool pack_left = false;  // copy each tile of L into depth-major order first
  // Panels from `first_packed` on are at `packed`, depth × width each; those before are read in place.
  const float* right = nullptr;
  int64_t right_depth_stride = 0;
  const float* packed = nullptr;
  int64_t first_packed = 0;
  float* out = nullptr;
  int64_t out_stride = 0;       // between rows of C as stored
  bool out_transposed = false;  // C is stored cols × rows
  // The block: tiles of rows out of `tiles`, and panels.
  int64_t tiles = 0, tile_begin = 0, tile_end = 0;
  int64_t panel_begin = 0, panel_end = 0;
};
void gemm_block(const GemmBlock& block);

// Panel of R: to[d * width + c] = from[d * depth_stride + c * col_stride] for c < cols, and 0 up to width.
void gemm_pack_panel(const float* from, int64_t depth_stride, int64_t col_stride, int64_t depth, int64_t cols,
                     int64_t width, float* to);

}  // namespace aicf::backend::cpu
