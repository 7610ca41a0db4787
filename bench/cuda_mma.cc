// Microseconds of matrix products on the GPU: the own matmul by the tile it chooses and by its best tile, the
// library's, and both with an epilogue of bias and relu. The sizes are those of the benchmarks' layers.
#include <cuda_runtime_api.h>
#include <fmt/core.h>

#include <algorithm>
#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "aicf/error.h"
#include "backend/cuda/epilogue_text.h"
#include "backend/cuda/launch.h"
#include "backend/cuda/mma.h"
#include "ops/defs.h"
#include "ops/region_op.h"

namespace aicf {
namespace {

using backend::cuda::MmaChoice;
using backend::cuda::MmaProblem;

// (m × k)·(k × n) `batch` times; one: no leading axis.
struct Size {
  const char* name;
  int64_t batch, m, n, k;
  bool ta = false, tb = false;
};

constexpr Size kSizes[] = {
    {"mlp-tiny F1", 1, 64, 128, 784, false, true},
    {"mlp-tiny F2", 1, 64, 128, 128, false, true},
    {"mlp-tiny head", 1, 64, 10, 128, false, true},
    {"mlp-tiny dX", 1, 64, 128, 128},
    {"mlp-tiny dW1", 1, 128, 784, 64, true},
    {"mlp-tiny dW2", 1, 128, 128, 64, true},
    {"mlp-64x6 first", 1, 1024, 64, 3, false, true},
    {"mlp-64x6 F", 1, 1024, 64, 64, false, true},
    {"mlp-64x6 dX", 1, 1024, 64, 64},
    {"mlp-64x6 dW", 1, 64, 64, 1024, true},
    {"mlp-64x6 last", 1, 1024, 1, 64, false, true},
    {"gpt-nano qkv", 1, 768, 384, 128, false, true},
    {"gpt-nano proj", 1, 768, 128, 128, false, true},
    {"gpt-nano fc", 1, 768, 512, 128, false, true},
    {"gpt-nano fc2", 1, 768, 128, 512, false, true},
    {"gpt-nano head", 1, 768, 65, 128, false, true},
    {"gpt-nano dX fc", 1, 768, 128, 512},
    {"gpt-nano dW fc", 1, 512, 128, 768, true},
    {"gpt-nano dW qkv", 1, 384, 128, 768, true},
    {"gpt-nano q k", 48, 64, 64, 32, false, true},
    {"gpt-nano p v", 48, 64, 32, 64},
    {"gpt-nano dv", 48, 64, 32, 64, true},
    {"256 cubed", 1, 256, 256, 256, false, true},
    {"512 cubed", 1, 512, 512, 512, false, true},
    {"1024 cubed", 1, 1024, 1024, 1024, false, true},
    {"gpt-char proj", 1, 16384, 384, 384, false, true},
    {"gpt2 fc / 8", 1, 4096, 3072, 768, false, true},
};

struct Case {
  const ir::OpDef& def;
  ir::Attrs attrs;
  std::vector<TensorType> in, out;
  std::shared_ptr<const ir::Graph> region = nullptr;

  backend::KernelQuery query() const { return {def, attrs, in, out, region.get()}; }
};

Case product_of(const Size& s, DType dtype, bool tf32) {
  const auto shape = [&](int64_t rows, int64_t cols, bool swapped) {
    if (swapped) std::swap(rows, cols);
    return s.batch == 1 ? Shape{rows, cols} : Shape{s.batch, rows, cols};
  };
  Case c{ops::matmul_def, {}, {{dtype, shape(s.m, s.k, s.ta)}, {dtype, shape(s.k, s.n, s.tb)}}, {}};
  if (s.ta) c.attrs.set("ta", true);
  if (s.tb) c.attrs.set("tb", true);
  if (tf32) c.attrs.set("compute", std::string("tf32"));
  c.out = ops::matmul_def.infer({ops::matmul_def, c.in, c.attrs, nullptr});
  return c;
}

// relu(product + bias).
Case with_tail(const Case& product, int64_t n) {
  Case c{ops::fused_def, {}, {product.in[0], product.in[1], {product.out[0].dtype, {n}}}, product.out};
  c.region = ops::body_of(c.in, [&](std::vector<Value> v) {
    return std::vector<Value>{relu(ir::emit(ops::matmul_def, {v[0], v[1]}, product.attrs) + v[2])};
  });
  return c;
}

backend::Backend& device() { return backend::find("cuda"); }

backend::PreparedKernel prepared_by(const Case& c, std::string_view variant) {
  for (const backend::Kernel& kernel : device().kernels()) {
    if (std::string_view(kernel.op) == c.def.name && kernel.variant == variant && kernel.accepts(c.query())) {
      return kernel.prepare(c.query());
    }
  }
  throw Error(fmt::format("no kernel {} for {}", variant, ir::call_text(c.def, c.in)));
}

backend::PreparedKernel prepared_with(const Case& c, const MmaProblem& problem, const backend::cuda::MmaTile& tile) {
  const ops::Loops loops = backend::cuda::plain_loops(c.out[0].dtype, c.out[0].shape.elements());
  return backend::cuda::prepared(
      {mma_kernel(problem, tile, backend::cuda::EpilogueText(loops, problem.grid.n, 2), ir::call_text(c.def, c.in))});
}

void check(cudaError_t error) {
  if (error != cudaSuccess) throw Error(cudaGetErrorString(error));
}

// Of a launch in a chain of them inside a graph; the median of several.
double microseconds(const Case& c, backend::PreparedKernel prepared) {
  constexpr int kLaunches = 50, kReplays = 9;
  backend::PreparedKernel* const all[] = {&prepared};
  device().link(all);
  std::vector<void*> buffers;
  for (const std::vector<TensorType>* list : {&c.in, &c.out}) {
    for (const TensorType& t : *list) buffers.push_back(device().allocate(t.bytes()));
  }
  buffers.push_back(device().allocate(prepared.workspace_bytes));
  for (size_t i = 0; i < c.in.size(); ++i) check(cudaMemset(buffers[i], 0x3c, c.in[i].bytes()));
  cudaStream_t stream = nullptr;
  cudaEvent_t begin = nullptr, end = nullptr;
  check(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
  check(cudaEventCreate(&begin));
  check(cudaEventCreate(&end));
  const backend::BoundLaunch launch = {&prepared, buffers.data(), nullptr};
  backend::cuda::enqueue(launch, stream);
  check(cudaStreamSynchronize(stream));
  cudaGraph_t graph = nullptr;
  cudaGraphExec_t ready = nullptr;
  check(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal));
  for (int i = 0; i < kLaunches; ++i) backend::cuda::enqueue(launch, stream);
  check(cudaStreamEndCapture(stream, &graph));
  check(cudaGraphInstantiate(&ready, graph, 0));
  std::vector<float> times;
  for (int i = 0; i < kReplays + 2; ++i) {
    check(cudaEventRecord(begin, stream));
    check(cudaGraphLaunch(ready, stream));
    check(cudaEventRecord(end, stream));
    check(cudaEventSynchronize(end));
    float milliseconds = 0;
    check(cudaEventElapsedTime(&milliseconds, begin, end));
    if (i >= 2) times.push_back(milliseconds);
  }
  cudaGraphExecDestroy(ready), cudaGraphDestroy(graph);
  cudaEventDestroy(begin), cudaEventDestroy(end), cudaStreamDestroy(stream);
  for (void* buffer : buffers) device().release(buffer);
  std::nth_element(times.begin(), times.begin() + kReplays / 2, times.end());
  return 1000.0 * static_cast<double>(times[kReplays / 2]) / kLaunches;
}

void measure(const Size& s, DType dtype, bool tf32) {
  const Case product = product_of(s, dtype, tf32), tail = with_tail(product, s.n);
  const MmaProblem problem = backend::cuda::mma_problem(product.query());
  const MmaChoice chosen = backend::cuda::choose_tile(problem);
  double own = 0, best = 1e30;
  std::string best_name;
  for (const MmaChoice& choice : backend::cuda::possible_tiles(problem)) {
    const double time = microseconds(product, prepared_with(product, problem, choice.tile));
    if (choice.tile.name() == chosen.tile.name()) own = time;
    if (time < best) best = time, best_name = choice.tile.name();
  }
  fmt::print(
      "{:<16} {:7.2f} (est. {:.2f}, {}) best {:7.2f} ({}) library {:7.2f} tails {:7.2f} {:7.2f}, estimate takes {}\n",
      s.name, own, chosen.microseconds, chosen.tile.name(), best, best_name,
      microseconds(product, prepared_by(product, "cublasLt")), microseconds(tail, prepared_by(tail, "epilogue mma")),
      microseconds(tail, prepared_by(tail, "epilogue cublasLt")),
      backend::choose(device().kernels(), product.query())->variant);
}

}  // namespace
}  // namespace aicf

int main() {
  using namespace aicf;
  try {
    for (const auto& [dtype, tf32] : {std::pair(f32, true), std::pair(bf16, false), std::pair(f32, false)}) {
      fmt::print("\n{}{}: us of own (chosen tile; best tile), library, epilogue of bias and relu by each\n",
                 name_of(dtype), tf32 ? " as tf32" : "");
      for (const Size& s : kSizes) measure(s, dtype, tf32);
    }
  } catch (const Error& e) {
    fmt::print(stderr, "{}\n", e.what());
    return 2;
  }
}
