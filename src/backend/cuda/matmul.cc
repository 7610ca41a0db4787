// matmul: f32, tf32, bf16 and f16 operands, sums in f32; by the own kernel or through cuBLASLt.
#include "backend/cuda/code.h"
#include "backend/cuda/kernels.h"
#include "backend/cuda/matmul_library.h"
#include "backend/cuda/matmul_way.h"
#include "backend/cuda/mma.h"
#include "ir/op.h"

namespace aicf::backend::cuda {
namespace {

bool is_empty(const KernelQuery& query) {
  return query.in[0].shape.elements() == 0 || query.in[1].shape.elements() == 0;
}

bool library_accepts(const KernelQuery& query) { return accepts_matmul(query) && !is_empty(query); }

PreparedKernel prepare_library(const KernelQuery& query) {
  LibraryMatmul matmul = library_matmul(query);
  auto code = std::make_shared<Code>();
  code->library = std::move(matmul.run);
  PreparedKernel kernel;
  kernel.variant = std::move(matmul.variant);
  note_choice(query, matmul.choice);
  kernel.workspace_bytes = matmul.workspace_bytes;
  kernel.code = std::move(code);
  kernel.guardable = false;
  return kernel;
}

PreparedKernel prepare_own(const KernelQuery& query) {
  if (query.out[0].shape.elements() == 0) return {};
  const MmaProblem problem = mma_problem(query);
  const MmaTile tile = choose_tile(problem).tile;
  const ops::Loops loops = plain_loops(query.out[0].dtype, query.out[0].shape.elements());
  PreparedKernel kernel =
      prepared({mma_kernel(problem, tile, EpilogueText(loops, problem.grid.n, 2), call_text(query.def, query.in))});
  kernel.variant = tile.name();
  note_choice(query, kernel.variant);
  return kernel;
}

}  // namespace

void register_matmul(KernelTable& table) {
  table.push_back({.op = "matmul",
                   .variant = "mma",
                   .accepts = accepts_matmul,
                   .cost = [](const KernelQuery& query) { return matmul_costs(query).own; },
                   .prepare = prepare_own});
  table.push_back({.op = "matmul",
                   .variant = kLibrary,
                   .accepts = library_accepts,
                   .cost = [](const KernelQuery& query) { return matmul_costs(query).library; },
                   .prepare = prepare_library});
}

}  // namespace aicf::backend::cuda
