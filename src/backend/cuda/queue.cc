#include "backend/cuda/queue.h"

#include "backend/cuda/error.h"
#include "backend/cuda/launch.h"

namespace aicf::backend::cuda {

Streams::Streams() {
  for (cudaStream_t* stream : {&work, &feeds, &results}) {
    check(cudaStreamCreateWithFlags(stream, cudaStreamNonBlocking), "creating a stream");
  }
}

Streams::~Streams() {
  for (cudaStream_t stream : {work, feeds, results}) {
    if (stream == nullptr) continue;
    cudaStreamSynchronize(stream);
    cudaStreamDestroy(stream);
  }
}

CudaQueue::~CudaQueue() { cudaStreamSynchronize(streams_->work); }

// From memory that is not pinned this returns once the source is read, and the copy takes its place on the stream.
void CudaQueue::upload(void* to, const void* from, size_t bytes) {
  if (bytes == 0) return;
  check(cudaMemcpyAsync(to, from, bytes, cudaMemcpyHostToDevice, streams_->work), "copying to the device");
  cudaPointerAttributes attributes{};
  const bool pinned =
      cudaPointerGetAttributes(&attributes, from) == cudaSuccess && attributes.type == cudaMemoryTypeHost;
  if (pinned) wait();
}

void CudaQueue::download(void* to, const void* from, size_t bytes) {
  if (bytes == 0) return;
  check(cudaMemcpyAsync(to, from, bytes, cudaMemcpyDeviceToHost, streams_->work), "copying from the device");
  wait();
}

void CudaQueue::run(std::span<const BoundLaunch> launches, int) {
  for (const BoundLaunch& launch : launches) enqueue(launch, streams_->work);
}

void CudaQueue::wait() { check(cudaStreamSynchronize(streams_->work), "waiting for the device"); }

std::unique_ptr<StepRunner> CudaQueue::make_runner(StepSpec spec, Mode mode) {
  return make_cuda_runner(streams_, std::move(spec), mode);
}

}  // namespace aicf::backend::cuda
