// The CUDA queue of a store: one non-blocking stream for its work, one for copies of feeds.
#pragma once

#include <cuda_runtime_api.h>

#include <memory>

#include "backend/api.h"

namespace aicf::backend::cuda {

// Shared by the queue and its runners: it is there for as long as any of them.
struct Streams {
  Streams();
  ~Streams();
  Streams(const Streams&) = delete;
  Streams& operator=(const Streams&) = delete;
  cudaStream_t work = nullptr;
  cudaStream_t feeds = nullptr;
  cudaStream_t results = nullptr;
};

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
