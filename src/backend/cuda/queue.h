// The CUDA queue of a store: a stream for its work, one for copies of feeds, one for copies of results.
#pragma once

#include <cuda_runtime_api.h>

#include <memory>

#include "backend/api.h"

namespace aicf::backend::cuda {

// A non-blocking stream; its end waits for what is in it.
struct Stream {
  Stream();
  ~Stream();
  Stream(const Stream&) = delete;
  Stream& operator=(const Stream&) = delete;
  operator cudaStream_t() const { return handle; }
  cudaStream_t handle = nullptr;
};

// Shared by the queue and its runners: it is there for as long as any of them.
struct Streams {
  Stream work, feeds, results;
};

// The one of this process.
Backend& backend();

class CudaQueue : public Queue {
 public:
  ~CudaQueue() override;
  void upload(void* to, const void* from, size_t bytes) override;
  void download(void* to, const void* from, size_t bytes) override;
  void run(std::span<const BoundLaunch> launches, int threads) override;
  void wait() override;
  std::unique_ptr<StepRunner> make_runner(StepSpec spec, Mode mode) override;

 private:
  const std::shared_ptr<Streams> streams_ = std::make_shared<Streams>();
};

std::unique_ptr<StepRunner> make_cuda_runner(std::shared_ptr<Streams> streams, StepSpec spec, Mode mode);

}  // namespace aicf::backend::cuda
