#include "backend/cuda/matmul_way.h"

#include <fmt/format.h>

#include <limits>
#include <map>
#include <mutex>

#include "backend/cuda/cache.h"
#include "backend/cuda/compile.h"
#include "backend/cuda/cublaslt.h"
#include "backend/cuda/device.h"
#include "backend/cuda/launch.h"
#include "backend/cuda/matmul_choice.h"
#include "backend/cuda/matmul_library.h"
#include "backend/cuda/mma.h"
#include "ir/op.h"

namespace aicf::backend::cuda {
namespace {

constexpr double kNever = std::numeric_limits<double>::infinity();
// Without measuring, the library has all that is large: there it is known to be fast.
constexpr double kOwnProducts = 1 << 27;
// What small products take in the library, where a split inner axis is a second kernel (64×784×128: 5.7 on an H200).
constexpr double kLibraryStart = 4;
// Its products in a microsecond where it has work enough: tensor cores on 16 bits, on tf32, none.
constexpr double kLibraryRates[] = {350e6, 175e6, 25e6};

double multiplications(const MatmulGrid& grid) {
  return static_cast<double>(grid.products()) * static_cast<double>(grid.m) * static_cast<double>(grid.n) *
         static_cast<double>(grid.k);
}

MatmulCosts estimated(const KernelQuery& matmul) {
  const MmaProblem problem = mma_problem(matmul);
  const double work = multiplications(problem.grid);
  if (work == 0) return {kNever, 0};
  const double own = work <= kOwnProducts ? choose_tile(problem).microseconds : kNever;
  return {kLibraryStart + work / kLibraryRates[!problem.tensor() ? 2 : problem.tf32 ? 1 : 0], own};
}

MatmulRun own_run(const KernelQuery& matmul) {
  const MmaProblem problem = mma_problem(matmul);
  const ops::Loops loops = plain_loops(matmul.out[0].dtype, matmul.out[0].shape.elements());
  auto kernel = std::make_shared<PreparedKernel>(prepared({mma_kernel(
      problem, choose_tile(problem).tile, EpilogueText(loops, problem.grid.n, 2), call_text(matmul.def, matmul.in))}));
  Generated* const generated[] = {&static_cast<Code&>(*kernel->code).kernels[0]};
  link_kernels(generated, device().architecture, true);
  return [kernel](cudaStream_t stream, void* const* buffers) { enqueue({kernel.get(), buffers, nullptr}, stream); };
}

MatmulCosts measured(const KernelQuery& matmul) {
  static std::mutex mutex;
  static auto& known = *new std::map<std::pair<int, std::string>, bool>;
  const MmaProblem problem = mma_problem(matmul);
  const std::string key = fmt::format("matmul {} {} to {} on {}, {} or the library", call_text(matmul.def, matmul.in),
                                      to_string(matmul.attrs), to_string(matmul.out[0]), blas_lt().description,
                                      choose_tile(problem).tile.name());
  const std::lock_guard<std::mutex> lock(mutex);
  const auto it = known.find({blas_lt().device, key});
  bool own = false;
  if (it != known.end()) {
    own = it->second;
  } else if (const std::string kept = read_cache("matmul", key); kept == "own" || kept == "library") {
    own = kept == "own";
  } else {
    const LibraryMatmul library = library_matmul(matmul);
    const MatmulBytes bytes = {matmul.in[0].bytes(), matmul.in[1].bytes(), matmul.out[0].bytes()};
    const std::optional<int> faster =
        fastest({library.run, own_run(matmul)}, bytes, library.workspace_bytes, matmul.tuning);
    const MatmulCosts costs = estimated(matmul);
    own = faster ? *faster == 1 : costs.own < costs.library;
    // Whatever was taken is kept, also when time ran out: the next process is to give the same bits.
    write_cache("matmul", key, own ? "own" : "library");
  }
  known[{blas_lt().device, key}] = own;
  return own ? MatmulCosts{1, 0} : MatmulCosts{0, 1};
}

}  // namespace

bool accepts_matmul(const KernelQuery& query) {
  const DType a = query.in[0].dtype, b = query.in[1].dtype, out = query.out[0].dtype;
  const std::string compute = query.attrs.get_string("compute");
  if (a != b) return false;
  if (a == f32) return out == f32 && (compute.empty() || compute == "tf32");
  // Operands that `compute` rounds have been cast by now (passes/compute_casts.cc).
  return (a == bf16 || a == f16) && (out == a || out == f32) && (compute.empty() || compute == name_of(a));
}

MatmulCosts matmul_costs(const KernelQuery& matmul) {
  if (const std::string known = known_choice(matmul); !known.empty()) {
    return is_of_library(known) ? MatmulCosts{0, 1} : MatmulCosts{1, 0};
  }
  const bool measure = matmul.tuning.measure && blas_lt().handle != nullptr && matmul.out[0].shape.elements() > 0 &&
                       matmul.in[0].shape.elements() > 0;
  return measure ? measured(matmul) : estimated(matmul);
}

}  // namespace aicf::backend::cuda
