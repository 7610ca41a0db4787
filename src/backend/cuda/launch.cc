#include "backend/cuda/launch.h"

#include <array>

#include "aicf/error.h"
#include "backend/cuda/code.h"
#include "backend/cuda/error.h"

namespace aicf::backend::cuda {
namespace {

void launch(const Generated& kernel, void* const* buffers, const uint8_t* guard, cudaStream_t stream) {
  constexpr size_t kFewParams = 16;
  if (kernel.function == nullptr) throw InternalError(kernel.what + ": the kernel was not linked");
  const size_t count = kernel.params.size();
  std::array<void*, kFewParams> few_values, few_args;
  std::vector<void*> many(count + 1 > kFewParams ? 2 * count + 1 : 0);
  void** const values = many.empty() ? few_values.data() : many.data();
  void** const args = many.empty() ? few_args.data() : many.data() + count;
  for (size_t i = 0; i < count; ++i) {
    values[i] = static_cast<char*>(buffers[kernel.params[i].buffer]) + kernel.params[i].offset;
    args[i] = &values[i];
  }
  // A table is one parameter: the values side by side.
  args[kernel.table ? 1 : count] = &guard;
  check(cudaLaunchKernel(kernel.function, dim3(static_cast<unsigned>(kernel.blocks)),
                         dim3(static_cast<unsigned>(kernel.threads)), args, 0, stream),
        "launching a kernel");
}

}  // namespace

void enqueue(const BoundLaunch& bound, cudaStream_t stream) {
  const auto* code = static_cast<const Code*>(bound.kernel->code.get());
  if (code == nullptr) return;
  if (code->library) code->library(stream, bound.buffers);
  for (const Generated& kernel : code->kernels) launch(kernel, bound.buffers, bound.guard, stream);
}

}  // namespace aicf::backend::cuda
