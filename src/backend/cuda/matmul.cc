// matmul through cuBLASLt: f32, tf32, bf16 and f16 operands, sums in f32.
#include <fmt/format.h>

#include <memory>

#include "aicf/error.h"
#include "backend/cuda/code.h"
#include "backend/cuda/cublaslt.h"
#include "backend/cuda/kernels.h"
#include "backend/cuda/matmul_choice.h"

namespace aicf::backend::cuda {
namespace {

constexpr const char* kLibrary = "cublasLt";

bool accepts(const KernelQuery& query) {
  const DType a = query.in[0].dtype, b = query.in[1].dtype, out = query.out[0].dtype;
  const std::string compute = query.attrs.get_string("compute");
  if (a != b) return false;
  if (a == f32) return out == f32 && (compute.empty() || compute == "tf32");
  // Operands that `compute` rounds have been cast by now (passes/compute_casts.cc).
  return (a == bf16 || a == f16) && (out == a || out == f32) && (compute.empty() || compute == name_of(a));
}

// No inner axis: sums of nothing.
PreparedKernel zeros(const KernelQuery& query) {
  constexpr int kThreads = 256;
  const int64_t elements = query.out[0].shape.elements();
  const char* type = query.out[0].dtype == f32 ? "float" : query.out[0].dtype == bf16 ? "bf16" : "f16";
  Generated fill;
  fill.what = call_text(query.def, query.in);
  fill.params = {{fmt::format("{}* out", type), 2}};
  fill.body = fmt::format(
      "const i64 i = (i64)blockIdx.x * {} + threadIdx.x;\n"
      "if (i < {}ll) out[i] = store<{}>(0.0f);\n",
      kThreads, elements, type);
  fill.blocks = (elements + kThreads - 1) / kThreads;
  fill.threads = kThreads;
  PreparedKernel kernel = prepared({fill});
  kernel.variant = "zeros";
  return kernel;
}

struct Chosen {
  std::shared_ptr<const Product> product;
  Algorithm algorithm;
};

Chosen choose(const KernelQuery& query) {
  const MatmulTypes types = {query.in[0].dtype, query.out[0].dtype, query.attrs.get_string("compute") == "tf32"};
  const MatmulBytes bytes = {query.in[0].bytes(), query.in[1].bytes(), query.out[0].bytes()};
  const MatmulShape shape = matmul_shape(query);
  // Not every library kernel takes every batch (a stride of 0, many matrices); one by one they are plain products.
  for (const bool split : {false, true}) {
    if (split && shape.batch == 1) break;
    auto product = std::make_shared<const Product>(split ? unbatched(shape) : shape, types);
    const std::optional<Algorithm> algorithm = choose_algorithm(*product, bytes, query.tuning);
    if (algorithm) return {std::move(product), *algorithm};
  }
  throw Error(fmt::format("{}: no algorithm of cuBLASLt runs it", call_text(query.def, query.in)));
}

PreparedKernel prepare(const KernelQuery& query) {
  PreparedKernel kernel;
  if (query.out[0].shape.elements() == 0) return kernel;
  if (query.in[0].shape.elements() == 0) return zeros(query);
  auto code = std::make_shared<Code>();
  code->library_name = kLibrary;
  kernel.guardable = false;
  if (const BlasLt& library = blas_lt(); library.handle == nullptr) {
    // A plan can be made and looked at where it cannot run.
    code->library = [what = call_text(query.def, query.in), why = library.missing](cudaStream_t, void* const*) {
      throw Error(fmt::format("{}: cuBLASLt cannot run here: {}", what, why), "use --backend cpu");
    };
    kernel.variant = kLibrary;
    kernel.code = std::move(code);
    return kernel;
  }
  Chosen chosen = choose(query);
  kernel.variant = chosen.algorithm.name();
  kernel.workspace_bytes = chosen.algorithm.workspace_bytes;
  code->library = [chosen = std::move(chosen), what = call_text(query.def, query.in)](cudaStream_t stream,
                                                                                      void* const* buffers) {
    check(chosen.product->run(chosen.algorithm, buffers, stream), what.c_str());
  };
  kernel.code = std::move(code);
  return kernel;
}

}  // namespace

void register_matmul(KernelTable& table) { table.push_back({"matmul", kLibrary, accepts, nullptr, prepare}); }

}  // namespace aicf::backend::cuda
