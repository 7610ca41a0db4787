// The GPU this process uses: the first that CUDA_VISIBLE_DEVICES leaves.
#pragma once

#include <string>

namespace aicf::backend::cuda {

struct Device {
  std::string unusable;  // why there is none, or it cannot be used
  std::string name = "no GPU";
  std::string architecture = "sm_90";  // what kernels are compiled for
  int multiprocessors = 132;
  int driver = 0;  // 1000 * major + 10 * minor
};

// Asked once.
const Device& device();

// For a scope this thread works on that GPU, whichever the caller had set.
class OnDevice {
 public:
  OnDevice();
  ~OnDevice();
  OnDevice(const OnDevice&) = delete;
  OnDevice& operator=(const OnDevice&) = delete;

 private:
  int callers_ = 0;
};

}  // namespace aicf::backend::cuda
