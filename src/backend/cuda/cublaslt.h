// cuBLASLt behind few names: the library of the current device, and one matmul described to it.
#pragma once

#include <cublasLt.h>
#include <cuda_runtime_api.h>

#include <cstddef>
#include <memory>
#include <string>
#include <type_traits>
#include <vector>

#include "aicf/dtype.h"
#include "backend/cuda/matmul_shape.h"

namespace aicf::backend::cuda {

// The library on one device; used by all threads, never destroyed.
struct BlasLt {
  int device = -1;
  cublasLtHandle_t handle = nullptr;
  std::string description;  // device and version: what a choice of algorithm depends on
  std::string missing;      // why there is none: then the handle is null
};
const BlasLt& blas_lt();

// What is multiplied: operands of one dtype, sums in f32.
struct MatmulTypes {
  DType in = f32, out = f32;
  bool tf32 = false;
};

struct Algorithm {
  cublasLtMatmulAlgo_t algo = {};
  size_t workspace_bytes = 0;

  // "cublasLt 66/tile 20/stages 35/splitk 1"
  std::string name() const;
};

// A matmul and its descriptors. Immutable once made: run() may be called from several threads.
class Product {
 public:
  // REQUIRES: blas_lt() has a handle. Throws Error when the library refuses.
  Product(MatmulShape shape, MatmulTypes types);

  const MatmulShape& shape() const { return shape_; }
  // What the choice of an algorithm depends on, without device and library.
  std::string key() const;
  // At most `count` algorithms, best first by the library's estimate, all of them deterministic.
  std::vector<Algorithm> candidates(int count) const;
  // Fills in the workspace that the algorithm needs. False when it does not fit this matmul.
  bool fits(Algorithm& algorithm) const;
  // Enqueues it. Buffers: A, B, the result, workspace.
  cublasStatus_t run(const Algorithm& algorithm, void* const* buffers, cudaStream_t stream) const;

 private:
  template <class Handle, cublasStatus_t (*destroy)(Handle)>
  struct Destroy {
    void operator()(Handle handle) const { destroy(handle); }
  };
  template <class Handle, cublasStatus_t (*destroy)(Handle)>
  using Owned = std::unique_ptr<std::remove_pointer_t<Handle>, Destroy<Handle, destroy>>;
  using Layout = Owned<cublasLtMatrixLayout_t, cublasLtMatrixLayoutDestroy>;

  Layout layout(DType dtype, int64_t rows, int64_t cols, int64_t stride) const;
  uint32_t alignment(DType dtype, int64_t MatmulShape::Call::*offset) const;

  MatmulShape shape_;
  MatmulTypes types_;
  Owned<cublasLtMatmulDesc_t, cublasLtMatmulDescDestroy> desc_;
  Layout a_, b_, out_;
};

// Throws Error "cuBLASLt: WHAT: …" unless success.
void check(cublasStatus_t status, const char* what);

}  // namespace aicf::backend::cuda
