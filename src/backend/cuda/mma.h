// The own matmul: one generated kernel, whose sums meet an epilogue before they are written.
#pragma once

#include <string>
#include <vector>

#include "backend/cuda/code.h"
#include "backend/cuda/epilogue_text.h"
#include "backend/cuda/matmul_shape.h"

namespace aicf::backend::cuda {

// What is multiplied, of a matmul's query.
struct MmaProblem {
  MatmulGrid grid;
  DType in = f32;
  bool tf32 = false;  // else f32 operands are multiplied as they are, without tensor cores

  bool tensor() const { return in != f32 || tf32; }
};
MmaProblem mma_problem(const KernelQuery& matmul);

// How a block's warps share a tile of the result: m × n of them, each with the whole inner axis or, `inner` of them
// together, parts of it, which are summed in order.
struct MmaTile {
  int bm = 0, bn = 0, bk = 0;
  int m = 1, n = 1, inner = 1;
  int stages = 2;  // tiles of the operands in shared memory

  int threads() const { return 32 * m * n * inner; }
  std::string name() const;
};

// Chosen by an estimate of its time from the problem alone, so that a matmul has the same bits whatever follows it.
struct MmaChoice {
  MmaTile tile;
  double microseconds = 0;
};
MmaChoice choose_tile(const MmaProblem& problem);
// All that it chooses from.
std::vector<MmaChoice> possible_tiles(const MmaProblem& problem);

// Of shared memory.
int pool_bytes(const MmaProblem& problem, const MmaTile& tile);

// The kernel of the matmul `loops` has as its product. REQUIRES: the result is not empty.
Generated mma_kernel(const MmaProblem& problem, const MmaTile& tile, const EpilogueText& epilogue, std::string what);

}  // namespace aicf::backend::cuda
