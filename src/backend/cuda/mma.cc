#include "backend/cuda/mma.h"

#include <fmt/format.h>

#include <algorithm>

#include "backend/cuda/mma_text.h"
#include "backend/cuda/text.h"

namespace aicf::backend::cuda {
namespace {

// Elements that are copied at a time: rows and matrices hold whole ones.
int vector_of(DType dtype, int64_t row, const MatmulGrid& grid, int64_t MatmulAxis::*stride) {
  int length = vector_length(row, size_of(dtype));
  for (const MatmulAxis& axis : grid.axes) length = std::min(length, vector_length(axis.*stride, size_of(dtype)));
  return length;
}

int64_t elements_of(const MatmulGrid& grid, int64_t matrix, int64_t MatmulAxis::*stride) {
  for (const MatmulAxis& axis : grid.axes) matrix += axis.*stride * (axis.extent - 1);
  return matrix;
}

std::string constants_of(const MmaProblem& problem, const MmaTile& tile) {
  const MatmulGrid& g = problem.grid;
  const int64_t a = elements_of(g, g.m * g.k, &MatmulAxis::a), b = elements_of(g, g.k * g.n, &MatmulAxis::b);
  return types({{"In", c_type(problem.in)}, {"Index", index_type(std::max(a, b))}}) +
         constants({{"M", g.m},
                    {"N", g.n},
                    {"K", g.k},
                    {"TA", g.ta},
                    {"TB", g.tb},
                    {"A_VECTOR", vector_of(problem.in, g.ta ? g.m : g.k, g, &MatmulAxis::a)},
                    {"B_VECTOR", vector_of(problem.in, g.tb ? g.k : g.n, g, &MatmulAxis::b)},
                    {"BM", tile.bm},
                    {"BN", tile.bn},
                    {"BK", tile.bk},
                    {"WM", tile.m},
                    {"WN", tile.n},
                    {"WK", tile.inner},
                    {"STAGES", tile.stages},
                    {"POOL", pool_bytes(problem, tile)},
                    {"TILES_M", (g.m + tile.bm - 1) / tile.bm},
                    {"TILES_N", (g.n + tile.bn - 1) / tile.bn}});
}

// The matrices of the block's product.
std::string matrices_of(const MatmulGrid& grid) {
  if (grid.axes.empty())
    return "const int tile = blockIdx.x, batch = 0;\nconst In *const a = a_all, *const b = b_all;\n";
  std::string text =
      "const int tile = blockIdx.x % (TILES_M * TILES_N), batch = blockIdx.x / (TILES_M * TILES_N);\n"
      "int rest = batch;\nconst In *a = a_all, *b = b_all;\n";
  for (size_t i = grid.axes.size(); i-- > 0;) {
    const MatmulAxis& axis = grid.axes[i];
    const std::string at = i == 0 ? "rest" : fmt::format("rest % {}", axis.extent);
    if (axis.a != 0) text += fmt::format("a += (Index)({}) * {};\n", at, axis.a);
    if (axis.b != 0) text += fmt::format("b += (Index)({}) * {};\n", at, axis.b);
    if (i > 0) text += fmt::format("rest /= {};\n", axis.extent);
  }
  return text;
}

}  // namespace

MmaProblem mma_problem(const KernelQuery& matmul) {
  return {matmul_grid(matmul), matmul.in[0].dtype, matmul.attrs.get_string("compute") == "tf32"};
}

std::string MmaTile::name() const {
  return fmt::format("mma {}x{}x{} warps {}x{}x{} stages {}", bm, bn, bk, m, n, inner, stages);
}

Generated mma_kernel(const MmaProblem& problem, const MmaTile& tile, const EpilogueText& epilogue, std::string what) {
  const MatmulGrid& grid = problem.grid;
  Generated g;
  g.what = std::move(what);
  g.params = epilogue.params();
  g.params.push_back({"const In* a_all", epilogue.factor(0)});
  g.params.push_back({"const In* b_all", epilogue.factor(1)});
  g.helpers = constants_of(problem, tile) + kMmaInstructions + kMmaHelpers +
              (problem.tensor() ? kStepTensor : kStepF32) + epilogue.helpers();
  g.threads = tile.threads();
  g.blocks = grid.products() * ((grid.m + tile.bm - 1) / tile.bm) * ((grid.n + tile.bn - 1) / tile.bn);
  g.min_blocks = 1;
  g.pool_bytes = pool_bytes(problem, tile);
  const int pairs = tile.inner == 1 ? tile.bm / tile.m / 16 * (tile.bn / tile.n / 8) * 2
                                    : std::max(1, tile.bm * tile.bn / 2 / tile.threads());
  const int group = epilogue.group(pairs);
  const auto for_pairs = [&](const std::string& text) {
    if (text.empty()) return text;
    return fmt::format(
        "#pragma unroll\nfor (int p = 0; p < {0}; ++p) {{\nconst int q = first + p;\n{1}if (count == 0) continue;\n"
        "const {2} outer = ({2})batch * {3} + ({2})row, inner = ({2})column, at_element = outer * {4} + "
        "inner;\n{5}}}\n",
        group, kMmaPair, epilogue.index().type(), epilogue.index().number(grid.m), epilogue.index().number(grid.n),
        text);
  };
  const std::string loads = epilogue.arrays(group) + for_pairs(epilogue.loads()),
                    compute = for_pairs(epilogue.compute());
  g.body = matrices_of(grid) + kMmaPrologue + epilogue.once();
  if (group == pairs) {
    // Few enough to be under way while the sums are formed.
    g.body += "constexpr int first = 0;\n" + loads + kMmaLoop + compute;
  } else {
    g.body += kMmaLoop;
    g.body +=
        fmt::format("#pragma unroll\nfor (int first = 0; first < Q; first += {}) {{\n{}{}}}\n", group, loads, compute);
  }
  return g;
}

}  // namespace aicf::backend::cuda
