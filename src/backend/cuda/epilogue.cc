// Fused regions of a matmul and what follows it, element by element. By the own kernel the sums are used where they
// are, in registers; the library's result goes through memory to a second kernel. Either has the bits of the matmul
// alone, run the same way, and the ops after it.
#include <algorithm>
#include <array>

#include "backend/cuda/code.h"
#include "backend/cuda/elementwise.h"
#include "backend/cuda/fused.h"
#include "backend/cuda/kernels.h"
#include "backend/cuda/matmul_library.h"
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
  return std::none_of(loops.nodes.begin(), loops.nodes.end(),
                      [](const Loops::Node& node) { return node.dtype == f64; });
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
  note_choice(inner.query(), kernel.variant);
  return kernel;
}

// The result that is the product itself and takes the storage of no operand: the matmul may write it at once.
int direct_result(const Inner& inner, const ir::Graph& region) {
  const std::vector<ir::AliasRule> rules = ops::alias_rules_of(inner.loops, region);
  for (size_t r = 0; r < inner.loops.results.size(); ++r) {
    const auto out = static_cast<int>(r);
    const bool aliased =
        std::any_of(rules.begin(), rules.end(), [&](const ir::AliasRule& rule) { return rule.out == out; });
    if (inner.loops.results[r].node == product_node(inner.loops) && !aliased) return out;
  }
  return -1;
}

// The region with the product in memory, as one more operand.
Loops with_product_in(int buffer, Loops loops) {
  loops.kind = Loops::Kind::pointwise;
  Loops::Node& product = loops.nodes[static_cast<size_t>(product_node(loops))];
  product = {.kind = Loops::Node::Kind::load, .dtype = product.dtype, .place = product.place, .axes = product.axes};
  product.operand = buffer;
  give_an_axis(loops);
  return loops;
}

PreparedKernel prepare_library(const KernelQuery& query) {
  const Inner inner(query);
  LibraryMatmul matmul = library_matmul(inner.query());
  const int operands = static_cast<int>(query.in.size()), workspace = operands + static_cast<int>(query.out.size());
  const int direct = direct_result(inner, *query.region);
  const int product = direct >= 0 ? operands + direct : workspace;
  // The library's own workspace follows the product.
  const size_t before = direct >= 0 ? 0 : (inner.out[0].bytes() + 255) / 256 * 256;

  PreparedKernel kernel =
      prepared(elementwise(call_text(query.def, query.in), with_product_in(product, inner.loops), operands));
  kernel.variant = matmul.variant;
  note_choice(inner.query(), matmul.choice);
  kernel.workspace_bytes = before + matmul.workspace_bytes;
  kernel.guardable = false;
  const std::array<int, 2> factors = inner.loops.nodes[static_cast<size_t>(product_node(inner.loops))].factors;
  const bool own_workspace = matmul.workspace_bytes > 0;
  static_cast<Code&>(*kernel.code).library = [=, run = std::move(matmul.run)](cudaStream_t stream,
                                                                              void* const* buffers) {
    void* const of_library = own_workspace ? static_cast<char*>(buffers[workspace]) + before : nullptr;
    void* const own[] = {buffers[factors[0]], buffers[factors[1]], buffers[product], of_library};
    run(stream, own);
  };
  return kernel;
}

}  // namespace

void add_epilogue_kernels(KernelTable& table) {
  table.push_back({.op = "fused",
                   .variant = "epilogue mma",
                   .accepts = accepts,
                   .cost = [](const KernelQuery& query) { return matmul_costs(Inner(query).query()).own; },
                   .prepare = prepare_own});
  table.push_back({.op = "fused",
                   .variant = "epilogue cublasLt",
                   .accepts = accepts,
                   .cost = [](const KernelQuery& query) { return matmul_costs(Inner(query).query()).library; },
                   .prepare = prepare_library});
}

}  // namespace aicf::backend::cuda
