// Fused regions of a matmul and what follows it, element by element. By the own kernel the sums are used where they
// are, in registers; the library's result goes through memory to a second kernel. Either has the bits of the matmul
// alone, run the same way, and the ops after it.
#include <fmt/format.h>

#include <algorithm>

#include "backend/cuda/code.h"
#include "backend/cuda/kernels.h"
#include "backend/cuda/matmul_way.h"
#include "backend/cuda/mma.h"
#include "ops/defs.h"

namespace aicf::backend::cuda {
namespace {

using ops::Loops;

// The matmul of a region, as if it stood alone.
struct Inner {
  explicit Inner(const KernelQuery& region) : loops(*ops::loops_of(*region.region)), tuning(region.tuning) {
    if (loops.kind != Loops::Kind::epilogue) return;
    const Loops::Node& product = loops.nodes[static_cast<size_t>(product_node(loops))];
    attrs = product.attrs;
    for (int factor : product.factors) in.push_back(region.in[static_cast<size_t>(factor)]);
    out = ops::matmul_def.infer({ops::matmul_def, in, attrs, nullptr});
  }
  KernelQuery query() const { return {ops::matmul_def, attrs, in, out, nullptr, tuning}; }

  Loops loops;
  Tuning tuning;
  ir::Attrs attrs;
  std::vector<TensorType> in, out;
};

bool computes_here(const Loops& loops) {
  return std::none_of(loops.nodes.begin(), loops.nodes.end(), [](const Loops::Node& node) {
    return node.dtype == f64 || node.kind == Loops::Node::Kind::bits;
  });
}

bool accepts(const KernelQuery& query) {
  const Inner inner(query);
  return inner.loops.kind == Loops::Kind::epilogue && computes_here(inner.loops) && accepts_matmul(inner.query());
}

PreparedKernel prepare_own(const KernelQuery& query) {
  const Inner inner(query);
  const MmaProblem problem = mma_problem(inner.query());
  const MmaTile tile = choose_tile(problem).tile;
  const EpilogueText epilogue(inner.loops, problem.grid.n, static_cast<int>(query.in.size()));
  PreparedKernel kernel = prepared({mma_kernel(problem, tile, epilogue, call_text(query.def, query.in))});
  kernel.variant = tile.name();
  return kernel;
}

}  // namespace

void add_epilogue_kernels(KernelTable& table) {
  table.push_back({.op = "fused",
                   .variant = "epilogue mma",
                   .accepts = accepts,
                   .cost = [](const KernelQuery& query) { return matmul_costs(Inner(query).query()).own; },
                   .prepare = prepare_own});
}

}  // namespace aicf::backend::cuda
