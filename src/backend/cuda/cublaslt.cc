#include "backend/cuda/cublaslt.h"

#include <fmt/format.h>

#include <map>
#include <mutex>

#include "aicf/error.h"
#include "backend/cuda/error.h"

namespace aicf::backend::cuda {
namespace {

constexpr uint64_t kMaxWorkspace = 32u << 20;
// How the sums of a split inner axis may be joined. COMPUTE_TYPE: each part writes its f32 sums to the workspace, and a
// second kernel adds them in order: the same bits each time, rounded once. Not INPLACE: the parts add to the result one
// after another in the order in which they happen to finish. Not OUTPUT_TYPE: the parts are rounded to the result's
// dtype before they are added.
constexpr uint32_t kReductions = CUBLASLT_REDUCTION_SCHEME_NONE | CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE;

cudaDataType_t data_type(DType dtype) {
  switch (dtype) {
    case DType::bf16:
      return CUDA_R_16BF;
    case DType::f16:
      return CUDA_R_16F;
    default:
      return CUDA_R_32F;
  }
}

template <class T>
T config(const cublasLtMatmulAlgo_t& algo, cublasLtMatmulAlgoConfigAttributes_t attribute) {
  T value = 0;
  size_t written = 0;
  cublasLtMatmulAlgoConfigGetAttribute(&algo, attribute, &value, sizeof value, &written);
  return value;
}

bool is_deterministic(const cublasLtMatmulAlgo_t& algo) {
  const auto scheme = config<uint32_t>(algo, CUBLASLT_ALGO_CONFIG_REDUCTION_SCHEME);
  return config<int32_t>(algo, CUBLASLT_ALGO_CONFIG_SPLITK_NUM) <= 1 || (scheme & ~kReductions) == 0;
}

BlasLt open_library(int device) {
  BlasLt lt;
  lt.device = device;
  cudaDeviceProp properties = {};
  if (const cudaError_t status = cudaGetDeviceProperties(&properties, device); status != cudaSuccess) {
    cudaGetLastError();
    lt.missing = cudaGetErrorString(status);
    return lt;
  }
  if (const cublasStatus_t status = cublasLtCreate(&lt.handle); status != CUBLAS_STATUS_SUCCESS) {
    lt.handle = nullptr;
    lt.missing = cublasLtGetStatusString(status);
    return lt;
  }
  lt.description = fmt::format("{} {}.{} of {} processors, cublasLt {}", properties.name, properties.major,
                               properties.minor, properties.multiProcessorCount, cublasLtGetVersion());
  return lt;
}

}  // namespace

void check(cublasStatus_t status, const char* what) {
  if (status == CUBLAS_STATUS_SUCCESS) return;
  check(cudaGetLastError(), what);  // the device's own complaint says more
  throw Error(fmt::format("cuBLASLt: {}: {}", what, cublasLtGetStatusString(status)));
}

const BlasLt& blas_lt() {
  static std::mutex mutex;
  static auto& by_device = *new std::map<int, BlasLt>;
  static const auto& none = *new BlasLt{-1, nullptr, "", "there is no CUDA device"};
  int device = 0;
  if (cudaGetDevice(&device) != cudaSuccess) {
    cudaGetLastError();
    return none;
  }
  const std::lock_guard<std::mutex> lock(mutex);
  const auto known = by_device.find(device);
  return known != by_device.end() ? known->second : by_device.emplace(device, open_library(device)).first->second;
}

std::string Algorithm::name() const {
  return fmt::format("cublasLt {}/tile {}/stages {}/splitk {}", config<int32_t>(algo, CUBLASLT_ALGO_CONFIG_ID),
                     config<uint32_t>(algo, CUBLASLT_ALGO_CONFIG_TILE_ID),
                     config<uint32_t>(algo, CUBLASLT_ALGO_CONFIG_STAGES_ID),
                     config<int32_t>(algo, CUBLASLT_ALGO_CONFIG_SPLITK_NUM));
}

Product::Layout Product::layout(DType dtype, int64_t rows, int64_t cols, int64_t stride) const {
  cublasLtMatrixLayout_t raw = nullptr;
  check(cublasLtMatrixLayoutCreate(&raw, data_type(dtype), static_cast<uint64_t>(rows), static_cast<uint64_t>(cols),
                                   rows),
        "describing a matrix");
  Layout made(raw);
  if (shape_.batch > 1) {
    const auto batch = static_cast<int32_t>(shape_.batch);
    check(cublasLtMatrixLayoutSetAttribute(raw, CUBLASLT_MATRIX_LAYOUT_BATCH_COUNT, &batch, sizeof batch),
          "describing a batch");
    check(cublasLtMatrixLayoutSetAttribute(raw, CUBLASLT_MATRIX_LAYOUT_STRIDED_BATCH_OFFSET, &stride, sizeof stride),
          "describing a batch");
  }
  return made;
}

// The library's matrices are column-major: it sees each of ours transposed, and computes Cᵀ = B'ᵀ·A'ᵀ.
Product::Product(MatmulShape shape, MatmulTypes types) : shape_(std::move(shape)), types_(types) {
  if (shape_.batch > INT32_MAX) shape_ = unbatched(shape_);
  cublasLtMatmulDesc_t raw = nullptr;
  check(cublasLtMatmulDescCreate(&raw, types_.tf32 ? CUBLAS_COMPUTE_32F_FAST_TF32 : CUBLAS_COMPUTE_32F, CUDA_R_32F),
        "describing a product");
  desc_.reset(raw);
  const cublasOperation_t first = shape_.tb ? CUBLAS_OP_T : CUBLAS_OP_N, second = shape_.ta ? CUBLAS_OP_T : CUBLAS_OP_N;
  check(cublasLtMatmulDescSetAttribute(raw, CUBLASLT_MATMUL_DESC_TRANSA, &first, sizeof first), "describing a product");
  check(cublasLtMatmulDescSetAttribute(raw, CUBLASLT_MATMUL_DESC_TRANSB, &second, sizeof second),
        "describing a product");
  a_ = layout(types_.in, shape_.ta ? shape_.m : shape_.k, shape_.ta ? shape_.k : shape_.m, shape_.a_stride);
  b_ = layout(types_.in, shape_.tb ? shape_.k : shape_.n, shape_.tb ? shape_.n : shape_.k, shape_.b_stride);
  out_ = layout(types_.out, shape_.n, shape_.m, shape_.out_stride);
}

// Buffers are 256-byte aligned, the matrices of later calls perhaps less.
uint32_t Product::alignment(DType dtype, int64_t MatmulShape::Call::*offset) const {
  uint32_t bytes = 256;
  for (const MatmulShape::Call& call : shape_.calls) {
    while (call.*offset * static_cast<int64_t>(size_of(dtype)) % bytes != 0) bytes /= 2;
  }
  return bytes;
}

std::string Product::key() const {
  return fmt::format("{}x{}x{} ta {:d} tb {:d} batch {} strides {} {} {} calls {} aligned {} {} {} {}{} to {}",
                     shape_.m, shape_.n, shape_.k, shape_.ta, shape_.tb, shape_.batch, shape_.a_stride, shape_.b_stride,
                     shape_.out_stride, shape_.calls.size(), alignment(types_.in, &MatmulShape::Call::a),
                     alignment(types_.in, &MatmulShape::Call::b), alignment(types_.out, &MatmulShape::Call::out),
                     name_of(types_.in), types_.tf32 ? " as tf32" : "", name_of(types_.out));
}

std::vector<Algorithm> Product::candidates(int count) const {
  cublasLtMatmulPreference_t raw = nullptr;
  check(cublasLtMatmulPreferenceCreate(&raw), "choosing an algorithm");
  const Owned<cublasLtMatmulPreference_t, cublasLtMatmulPreferenceDestroy> preference(raw);
  const auto set = [&](cublasLtMatmulPreferenceAttributes_t attribute, const auto& value) {
    check(cublasLtMatmulPreferenceSetAttribute(raw, attribute, &value, sizeof value), "choosing an algorithm");
  };
  const uint32_t a = alignment(types_.in, &MatmulShape::Call::a), b = alignment(types_.in, &MatmulShape::Call::b),
                 out = alignment(types_.out, &MatmulShape::Call::out);
  set(CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, kMaxWorkspace);
  set(CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK, kReductions);
  set(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, b);
  set(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES, a);
  set(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES, out);
  set(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES, out);
  std::vector<cublasLtMatmulHeuristicResult_t> results(static_cast<size_t>(count));
  int found = 0;
  const cublasStatus_t status = cublasLtMatmulAlgoGetHeuristic(
      blas_lt().handle, desc_.get(), b_.get(), a_.get(), out_.get(), out_.get(), raw, count, results.data(), &found);
  std::vector<Algorithm> algorithms;
  if (status != CUBLAS_STATUS_SUCCESS) return algorithms;
  results.resize(static_cast<size_t>(found));
  for (const cublasLtMatmulHeuristicResult_t& r : results) {
    if (r.state != CUBLAS_STATUS_SUCCESS || r.workspaceSize > kMaxWorkspace || !is_deterministic(r.algo)) continue;
    algorithms.push_back({r.algo, r.workspaceSize});
  }
  return algorithms;
}

bool Product::fits(Algorithm& algorithm) const {
  cublasLtMatmulHeuristicResult_t result = {};
  const cublasStatus_t status = cublasLtMatmulAlgoCheck(blas_lt().handle, desc_.get(), b_.get(), a_.get(), out_.get(),
                                                        out_.get(), &algorithm.algo, &result);
  if (status != CUBLAS_STATUS_SUCCESS || result.workspaceSize > kMaxWorkspace || !is_deterministic(algorithm.algo)) {
    return false;
  }
  algorithm.workspace_bytes = result.workspaceSize;
  return true;
}

cublasStatus_t Product::run(const Algorithm& algorithm, void* const* buffers, cudaStream_t stream) const {
  const float one = 1, zero = 0;
  const auto at = [](void* buffer, DType dtype, int64_t element) {
    return static_cast<char*>(buffer) + element * static_cast<int64_t>(size_of(dtype));
  };
  void* workspace = algorithm.workspace_bytes > 0 ? buffers[3] : nullptr;
  for (const MatmulShape::Call& call : shape_.calls) {
    void* out = at(buffers[2], types_.out, call.out);
    const cublasStatus_t status =
        cublasLtMatmul(blas_lt().handle, desc_.get(), &one, at(buffers[1], types_.in, call.b), b_.get(),
                       at(buffers[0], types_.in, call.a), a_.get(), &zero, out, out_.get(), out, out_.get(),
                       &algorithm.algo, workspace, algorithm.workspace_bytes, stream);
    if (status != CUBLAS_STATUS_SUCCESS) return status;
  }
  return CUBLAS_STATUS_SUCCESS;
}

}  // namespace aicf::backend::cuda
