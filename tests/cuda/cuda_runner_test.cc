// The plugin's parts by themselves: what cannot be captured, kernels that do not compile, unread outputs.
#include <cuda_runtime_api.h>
#include <gtest/gtest.h>

#include "aicf/error.h"
#include "backend/api.h"
#include "backend/cuda/code.h"
#include "backend/cuda/compile.h"
#include "support/programs.h"

namespace aicf::backend::cuda {
namespace {

Backend& gpu() { return find("cuda"); }

Generated add_one() {
  Generated kernel;
  kernel.what = "add_one";
  kernel.params = {{"const float* x", 0}, {"float* y", 1}};
  kernel.body = "y[threadIdx.x] = x[threadIdx.x] + 1.0f;\n";
  kernel.blocks = 1;
  kernel.threads = 4;
  return kernel;
}

PreparedKernel synchronising() {
  auto code = std::make_shared<Code>();
  code->library = [](cudaStream_t stream, void* const*) {
    const cudaError_t status = cudaStreamSynchronize(stream);
    cudaGetLastError();
    if (status != cudaSuccess) throw Error(cudaGetErrorString(status));
  };
  PreparedKernel kernel;
  kernel.code = code;
  return kernel;
}

struct FourFloats {
  FourFloats() : data(static_cast<float*>(gpu().allocate(256))) {}  // what host_layout() asks for
  ~FourFloats() { gpu().release(data); }
  float* data;
};

// Case C5: work that waits for the device cannot be captured; that is said by name, and the queue goes on.
TEST(CaseC5, ASynchronisingOpIsRefusedByName) {
  const std::unique_ptr<Queue> queue = gpu().make_queue();
  PreparedKernel good = prepared({add_one()}), bad = synchronising();
  PreparedKernel* const both[] = {&good, &bad};
  gpu().link(both);
  FourFloats x, y;
  void* const buffers[] = {x.data, y.data};
  const auto spec = [&](bool with_bad) {
    StepSpec s;
    s.launches.push_back({{&good, buffers, nullptr}, "good", {}, true});
    if (with_bad) s.launches.push_back({{&bad, buffers, nullptr}, "host_check", {0}, false});
    s.inputs = {{x.data, 16}};
    s.outputs = {{y.data, 16}};
    return s;
  };
  const std::string error = test::error_of([&] { queue->make_runner(spec(true), Mode::graph); });
  EXPECT_NE(error.find("host_check: cannot be captured"), std::string::npos) << error;
  // Nothing ran, and the queue is usable: eagerly with the same op, and captured without it.
  for (const bool with_bad : {true, false}) {
    const std::unique_ptr<StepRunner> runner = queue->make_runner(spec(with_bad), with_bad ? Mode::eager : Mode::graph);
    const float feed[] = {1, 2, 3, 4};
    const StepFeed feeds[] = {{0, feed, false}};
    void* host = gpu().allocate_host(host_layout(spec(false).outputs).bytes);
    StepCall call;
    call.feeds = feeds;
    call.mode = with_bad ? Mode::eager : Mode::graph;
    call.host = host;
    runner->collect(runner->start(call), host);
    for (int i = 0; i < 4; ++i) EXPECT_EQ(static_cast<const float*>(host)[i], feed[i] + 1);
    gpu().release_host(host);
  }
}

TEST(Link, AKernelThatDoesNotCompileNamesItsOpAndTheNextOneWorks) {
  Generated broken = add_one();
  broken.what = "broken_op(f32[4])";
  broken.body = "y[threadIdx.x] = undeclared;\n";
  PreparedKernel bad = prepared({broken}), good = prepared({add_one()});
  PreparedKernel* const both[] = {&good, &bad};
  const std::string error = test::error_of([&] { gpu().link(both); });
  EXPECT_NE(error.find("broken_op(f32[4])"), std::string::npos) << error;
  EXPECT_NE(error.find("undeclared"), std::string::npos) << error;
  PreparedKernel* const one[] = {&good};
  gpu().link(one);
  FourFloats x, y;
  void* const buffers[] = {x.data, y.data};
  const std::unique_ptr<Queue> queue = gpu().make_queue();
  const BoundLaunch launch = {&good, buffers, nullptr};
  queue->run({&launch, 1}, 0);
  float got[4] = {};
  queue->download(got, y.data, 16);
  EXPECT_EQ(got[3], 1);
}

TEST(Guard, FalseLeavesEveryByte) {
  PreparedKernel good = prepared({add_one()});
  PreparedKernel* const one[] = {&good};
  gpu().link(one);
  FourFloats x, y, guard;
  void* const buffers[] = {x.data, y.data};
  const std::unique_ptr<Queue> queue = gpu().make_queue();
  const BoundLaunch launch = {&good, buffers, reinterpret_cast<const uint8_t*>(guard.data)};
  for (const uint8_t ok : {0, 1}) {
    queue->upload(guard.data, &ok, 1);
    queue->run({&launch, 1}, 0);
    float got[4] = {};
    queue->download(got, y.data, 16);
    EXPECT_EQ(got[0], ok);
  }
}

}  // namespace
}  // namespace aicf::backend::cuda
