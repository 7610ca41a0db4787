// Planning of the packed GEMM: which operand is broadcast, what is packed, and the partition.
#include "backend/cpu/gemm.h"

#include <algorithm>
#include <memory>

#include "backend/cpu/gemm_kernel.h"

namespace aicf::backend::cpu {
namespace {

// Estimates in cycles, measured on Zen 4; they only choose, so being off costs time, never bits.
constexpr double kCopyCycles = 0.25;      // per element, rows kept
constexpr double kTransposeCycles = 0.6;  // per element
constexpr double kCyclesPerMicrosecond = 3000;
constexpr double kInlineCycles = 20 * kCyclesPerMicrosecond;  // less work than this is not worth a second thread
constexpr double kPartCycles = 6 * kCyclesPerMicrosecond;
constexpr double kPackPartCycles = 8 * kCyclesPerMicrosecond;
constexpr int64_t kMaxParts = 64;
// A block of eight panels of R and one depth block fit the second-level cache.
constexpr int64_t kPanelsPerBlock = 8;
// Packing R pays when more tiles than this read it; packing a tile of L when at least so many panels do.
constexpr int64_t kDirectTiles = 20;
constexpr int64_t kPackLeftPanels = 4;

// An operand as the kernel sees it.
struct Side {
  Place place;
  int64_t outer_stride = 0;  // between rows of L, between columns of R
  int64_t depth_stride = 0;
  int64_t elements = 0;  // of one matrix
  int64_t matrices = 0;
  std::vector<int64_t> matrix;  // by product
};

struct GemmPlan : MatmulStaging {
  int64_t rows = 0, cols = 0, depth = 0, batch = 0;
  bool swapped = false;  // computes Cᵀ = Bᵀ·Aᵀ
  Side left, right;
  int panel = 0, lanes = 0;
  int64_t tiles = 0, panels = 0;
  int64_t first_packed = 0;
  bool pack_left = false;
  int64_t row_blocks = 0, col_blocks = 0;
  int parts = 1, pack_parts = 1;
  double cycles = 0;
  Place packed;  // panels of R

  int64_t packed_panels() const { return panels - first_packed; }
  int64_t packed_elements() const { return packed_panels() * panel * depth; }  // of one matrix
  int64_t units() const { return batch * row_blocks * col_blocks; }
};

void choose_partition(GemmPlan& p) {
  const int64_t wanted =
      p.cycles < kInlineCycles ? 1 : std::clamp<int64_t>(static_cast<int64_t>(p.cycles / kPartCycles), 2, kMaxParts);
  p.col_blocks = ceil_div(p.panels, kPanelsPerBlock);
  if (p.batch * p.tiles * p.col_blocks < wanted) {
    p.col_blocks = std::min(p.panels, ceil_div(wanted, p.batch * p.tiles));
  }
  const int64_t row_blocks = std::min(p.tiles, ceil_div(wanted, p.batch * p.col_blocks));
  p.row_blocks = ceil_div(p.tiles, p.tiles / row_blocks);
  p.parts = static_cast<int>(std::min(wanted, p.units()));
}

GemmPlan make_plan(const MatmulDims& dims, bool swapped) {
  const GemmTile tile = gemm_tile();
  GemmPlan p;
  static_cast<MatmulStaging&>(p) = dims.staging;
  p.packed = {kMatmulWorkspace, p.workspace_bytes};
  p.swapped = swapped;
  p.batch = dims.batch();
  p.rows = swapped ? dims.n : dims.m;
  p.cols = swapped ? dims.m : dims.n;
  p.depth = dims.k;
  const Side a = {.place = p.places[0],
                  .outer_stride = dims.ta ? 1 : dims.k,
                  .depth_stride = dims.ta ? dims.m : 1,
                  .elements = dims.m * dims.k,
                  .matrices = dims.a_matrices,
                  .matrix = dims.a_matrix};
  const Side b = {.place = p.places[1],
                  .outer_stride = dims.tb ? dims.k : 1,
                  .depth_stride = dims.tb ? 1 : dims.n,
                  .elements = dims.k * dims.n,
                  .matrices = dims.b_matrices,
                  .matrix = dims.b_matrix};
  p.left = swapped ? b : a;
  p.right = swapped ? a : b;
  p.panel = tile.panel();
  p.lanes = tile.lanes;
  p.tiles = ceil_div(p.rows, tile.rows);
  p.panels = ceil_div(p.cols, p.panel);
  // Only whole vectors of R can be read in place.
  const bool direct = p.right.outer_stride == 1 && p.tiles <= kDirectTiles;
  p.first_packed = direct ? p.panels - (p.cols % p.lanes != 0 ? 1 : 0) : 0;
  p.pack_left = std::min(p.panels, kPanelsPerBlock) >= kPackLeftPanels;

  const double products = static_cast<double>(p.batch), depth = static_cast<double>(p.depth);
  // Per step of depth a tile takes its multiply-adds, but no less than one waits for the last.
  const double vectors = static_cast<double>(ceil_div(p.cols, p.lanes)), tiles = static_cast<double>(p.tiles);
  const double per_step = std::max(static_cast<double>(p.rows) * vectors, 4 * tiles * static_cast<double>(p.panels));
  p.cycles = products * (per_step * depth + 30 * tiles * static_cast<double>(p.panels));
  if (swapped) p.cycles += products * kTransposeCycles * static_cast<double>(p.rows * p.cols);
  if (p.pack_left) p.cycles += products * kTransposeCycles * static_cast<double>(p.rows) * depth;
  choose_partition(p);
  const double pack_cycles = static_cast<double>(p.right.matrices * p.packed_elements()) *
                             (p.right.outer_stride == 1 ? kCopyCycles : kTransposeCycles);
  p.cycles += pack_cycles;
  const int64_t all_panels = p.right.matrices * p.packed_panels();
  p.pack_parts = static_cast<int>(std::clamp<int64_t>(static_cast<int64_t>(pack_cycles / kPackPartCycles), 1,
                                                      std::max<int64_t>(1, std::min(all_panels, kMaxParts))));
  return p;
}

GemmPlan best_plan(const MatmulDims& dims) {
  GemmPlan plain = make_plan(dims, false);
  GemmPlan swapped = make_plan(dims, true);
  return swapped.cycles < plain.cycles ? swapped : plain;
}

const GemmPlan& plan_of(const KernelArgs& args) {
  return static_cast<const GemmPlan&>(*static_cast<const MatmulStaging*>(args.params));
}

float* floats(const Place& place, const KernelArgs& args) { return reinterpret_cast<float*>(place.in(args)); }

// Panels of all matrices of R, in one row, shared out.
void pack_right(const KernelArgs& args, int part, int parts) {
  const GemmPlan& p = plan_of(args);
  const float* right = floats(p.right.place, args);
  float* packed = floats(p.packed, args);
  const int64_t all = p.right.matrices * p.packed_panels();
  for (int64_t i = share_begin(all, part, parts); i < share_begin(all, part + 1, parts); ++i) {
    const int64_t matrix = i / p.packed_panels(), index = i % p.packed_panels();
    const int64_t col = (p.first_packed + index) * p.panel, cols = std::min<int64_t>(p.panel, p.cols - col);
    const int64_t width = cols > p.lanes ? p.panel : p.lanes;
    gemm_pack_panel(right + matrix * p.right.elements + col * p.right.outer_stride, p.right.depth_stride,
                    p.right.outer_stride, p.depth, cols, width,
                    packed + matrix * p.packed_elements() + index * p.panel * p.depth);
  }
}

void multiply(const KernelArgs& args, int part, int parts) {
  const GemmPlan& p = plan_of(args);
  const float* left = floats(p.left.place, args);
  const float* right = floats(p.right.place, args);
  const float* packed = p.packed_elements() > 0 ? floats(p.packed, args) : nullptr;
  float* out = floats(p.places[2], args);
  GemmBlock block = {.rows = p.rows,
                     .cols = p.cols,
                     .depth = p.depth,
                     .left_row_stride = p.left.outer_stride,
                     .left_depth_stride = p.left.depth_stride,
                     .pack_left = p.pack_left,
                     .right_depth_stride = p.right.depth_stride,
                     .first_packed = p.first_packed,
                     .out_stride = p.swapped ? p.rows : p.cols,
                     .out_transposed = p.swapped,
                     .tiles = p.tiles};
  // Neighbouring units share their panels of R.
  for (int64_t unit = share_begin(p.units(), part, parts); unit < share_begin(p.units(), part + 1, parts); ++unit) {
    const int64_t product = unit / (p.row_blocks * p.col_blocks), in_product = unit % (p.row_blocks * p.col_blocks);
    const int64_t col_block = in_product / p.row_blocks, row_block = in_product % p.row_blocks;
    block.left = left + p.left.matrix[product] * p.left.elements;
    block.right = right + p.right.matrix[product] * p.right.elements;
    block.packed = packed + p.right.matrix[product] * p.packed_elements();
    block.out = out + product * p.rows * p.cols;
    block.tile_begin = share_begin(p.tiles, row_block, p.row_blocks);
    block.tile_end = share_begin(p.tiles, row_block + 1, p.row_blocks);
    block.panel_begin = share_begin(p.panels, col_block, p.col_blocks);
    block.panel_end = share_begin(p.panels, col_block + 1, p.col_blocks);
    gemm_block(block);
  }
}

}  // namespace

double packed_matmul_cost(const MatmulDims& dims) {
  return dims.empty() ? 0 : 0.1 + best_plan(dims).cycles / kCyclesPerMicrosecond;
}

PreparedKernel prepare_packed_matmul(const MatmulDims& dims) {
  PreparedKernel kernel = {.variant = "packed"};
  if (dims.empty()) return kernel;
  const auto plan = std::make_shared<const GemmPlan>(best_plan(dims));
  const size_t packed_bytes = static_cast<size_t>(plan->right.matrices * plan->packed_elements()) * sizeof(float);
  kernel.workspace_bytes = plan->workspace_bytes + packed_bytes;
  plan->add_phases(kernel, 0, 1);
  if (packed_bytes > 0) kernel.phases.push_back({pack_right, plan->pack_parts});
  kernel.phases.push_back({multiply, plan->parts});
  plan->add_phases(kernel, 2, 2);
  kernel.params = std::shared_ptr<const MatmulStaging>(plan);
  return kernel;
}

}  // namespace aicf::backend::cpu
