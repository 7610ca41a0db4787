#include "backend/cuda/queue.h"

#include "backend/cuda/device.h"
#include "backend/cuda/error.h"
#include "backend/cuda/launch.h"

namespace aicf::backend::cuda {

Stream::Stream() { check(cudaStreamCreateWithFlags(&handle, cudaStreamNonBlocking), "creating a stream"); }

Stream::~Stream() {
  const OnDevice scope;
  cudaStreamSynchronize(handle);
  cudaStreamDestroy(handle);
  cudaGetLastError();
}

CudaQueue::~CudaQueue() {
  cudaStreamSynchronize(streams_->work);
  cudaGetLastError();
}

// From pageable memory the call returns once the source is read, and the copy takes its place on the stream; any other
// memory the device would read later.
void CudaQueue::upload(void* to, const void* from, size_t bytes) {
  if (bytes == 0) return;
  const OnDevice scope;
  check(cudaMemcpyAsync(to, from, bytes, cudaMemcpyHostToDevice, streams_->work), "copying to the device");
  cudaPointerAttributes attributes{};
  const bool pageable =
      cudaPointerGetAttributes(&attributes, from) == cudaSuccess && attributes.type == cudaMemoryTypeUnregistered;
  if (!pageable) wait();
}

void CudaQueue::download(void* to, const void* from, size_t bytes) {
  if (bytes == 0) return;
  const OnDevice scope;
  check(cudaMemcpyAsync(to, from, bytes, cudaMemcpyDeviceToHost, streams_->work), "copying from the device");
  wait();
}

void CudaQueue::run(std::span<const BoundLaunch> launches, int) {
  const OnDevice scope;
  for (const BoundLaunch& launch : launches) enqueue(launch, streams_->work);
}

void CudaQueue::wait() { check(cudaStreamSynchronize(streams_->work), "waiting for the device"); }

std::unique_ptr<StepRunner> CudaQueue::make_runner(StepSpec spec, Mode mode) {
  const OnDevice scope;
  return make_cuda_runner(streams_, std::move(spec), mode);
}

}  // namespace aicf::backend::cuda
