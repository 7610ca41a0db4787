// A plan captured into a CUDA graph whose edges are the plan's.
#pragma once

#include <cuda_runtime_api.h>

#include <functional>
#include <string>
#include <vector>

#include "backend/api.h"

namespace aicf::backend::cuda {

// Something to capture: what it enqueues, and whose nodes it must follow.
struct CaptureUnit {
  int launch = -1;  // of the plan; -1: the runner's own
  int step = 0;     // of a graph of several
  std::string name;
  std::vector<int> predecessors;  // unit indices, smaller
  std::function<void(cudaStream_t)> enqueue;
};

class GraphExec {
 public:
  // Captures the units on a stream of its own: a stream that is being captured may not be asked anything, and other
  // threads ask the store's. Runs nothing. Throws Error naming the unit that cannot be captured.
  explicit GraphExec(const std::vector<CaptureUnit>& units);
  GraphExec(const GraphExec&) = delete;
  GraphExec& operator=(const GraphExec&) = delete;
  ~GraphExec();

  void launch(cudaStream_t stream) const;
  // Read back from the driver, not from what was asked of it.
  const CapturedGraph& description() const { return description_; }

 private:
  cudaGraphExec_t exec_ = nullptr;
  CapturedGraph description_;
};

}  // namespace aicf::backend::cuda
