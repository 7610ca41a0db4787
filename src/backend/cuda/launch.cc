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
  std::array<void*, kFewParams> few;
  std::vector<void*> many(count + 1 > kFewParams ? count + 1 : 0);
  void** args = many.empty() ? few.data() : many.data();
  // A parameter is passed by the address of the pointer that it is.
  for (size_t i = 0; i < count; ++i) args[i] = const_cast<void**>(&buffers[kernel.params[i].buffer]);
  args[count] = &guard;
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
