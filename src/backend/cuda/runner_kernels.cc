#include "backend/cuda/runner_kernels.h"

#include <algorithm>

#include "backend/cuda/compile.h"
#include "backend/cuda/device.h"
#include "backend/cuda/error.h"

namespace aicf::backend::cuda {
namespace {

constexpr int kThreads = 256;

constexpr const char* kText = R"cuda(
typedef unsigned int u32;
typedef unsigned long long u64;
struct Counters { u64 fed, steps, batches; };
struct Column { const char* rows; char* to; u64 row_bytes; };
struct Batches { Column columns[32]; u32 count, batch; u64 slots; const int* rows; const Counters* counters; };
struct Status { u64 done; long long error; u64 error_step; long long error_named; };
struct Piece { const void* from; u32 offset, bytes; };
struct Delivery {
  Piece pieces[64];
  u32 count, slot_bytes;
  u64 slots;
  char* ring;
  Counters* counters;
  volatile Status* status;
  const long long* error;
  const long long* error_named;
  int staged, batched;
};

extern "C" __global__ void __launch_bounds__(256) stage(const uint4* slots, u64 n, uint4* to, const Counters* counters) {
  const uint4* from = slots + (counters->fed & 1) * n;
  for (u64 i = blockIdx.x * 256ull + threadIdx.x; i < n; i += gridDim.x * 256ull) to[i] = from[i];
}

template <class T> static __device__ void copy_row(const char* from, char* to, u64 bytes) {
  for (u64 i = threadIdx.x; i < bytes / sizeof(T); i += 256) ((T*)to)[i] = ((const T*)from)[i];
}
extern "C" __global__ void __launch_bounds__(256) take(const Batches b) {
  const int* const rows = b.rows + b.counters->batches % b.slots * b.batch;
  for (u32 r = blockIdx.x; r < b.batch; r += gridDim.x) {
    const u64 example = (u64)rows[r];
    for (u32 c = 0; c < b.count; ++c) {
      const u64 bytes = b.columns[c].row_bytes;
      const char* const from = b.columns[c].rows + example * bytes;
      char* const to = b.columns[c].to + r * bytes;
      if (bytes % 16 == 0) copy_row<uint4>(from, to, bytes);
      else if (bytes % 4 == 0) copy_row<u32>(from, to, bytes);
      else copy_row<char>(from, to, bytes);
    }
  }
}

extern "C" __global__ void __launch_bounds__(256) deliver(const Delivery d) {
  const u64 step = d.counters->steps + 1;
  char* const slot = d.ring + (step - 1) % d.slots * d.slot_bytes;
  for (u32 p = 0; p < d.count; ++p) {
    const char* from = (const char*)d.pieces[p].from;
    char* const to = slot + d.pieces[p].offset;
    for (u32 i = threadIdx.x; i < d.pieces[p].bytes; i += 256) to[i] = from[i];
  }
  __syncthreads();
  if (threadIdx.x != 0) return;
  d.counters->steps = step;
  if (d.staged) d.counters->fed += 1;
  if (d.batched) d.counters->batches += 1;
  if (d.error != nullptr && *d.error != 0 && d.status->error == 0) {
    d.status->error_step = step;
    d.status->error_named = d.error_named != nullptr ? *d.error_named : 0;
    __threadfence_system();
    d.status->error = *d.error;
  }
  __threadfence_system();
  d.status->done = step;
}
)cuda";

struct Functions {
  std::shared_ptr<const Module> module;
  const void* stage = nullptr;
  const void* take = nullptr;
  const void* deliver = nullptr;
};

const Functions& functions() {
  // Never unloaded: a program of static storage may still run at exit.
  static const Functions& loaded = *new Functions([] {
    Functions f;
    f.module = std::make_shared<const Module>(cached_program(kText, device().architecture));
    for (auto [name, to] : {std::pair{"stage", &f.stage}, {"take", &f.take}, {"deliver", &f.deliver}}) {
      cudaKernel_t kernel = nullptr;
      check(cudaLibraryGetKernel(&kernel, f.module->library, name), "finding a kernel");
      *to = reinterpret_cast<const void*>(kernel);
      cudaFuncAttributes loads_it{};
      check(cudaFuncGetAttributes(&loads_it, *to), "loading a kernel");
    }
    return f;
  }());
  return loaded;
}

}  // namespace

void enqueue_stage(const void* slots, size_t bytes, void* to, const Counters* counters, cudaStream_t stream) {
  uint64_t n = bytes / 16;
  const uint64_t blocks = std::clamp<uint64_t>((n + kThreads - 1) / kThreads, 1, 16 * 132);
  void* args[] = {&slots, &n, &to, &counters};
  check(cudaLaunchKernel(functions().stage, dim3(static_cast<unsigned>(blocks)), dim3(kThreads), args, 0, stream),
        "staging feeds");
}

void enqueue_batch(const Batches& batches, cudaStream_t stream) {
  void* args[] = {const_cast<Batches*>(&batches)};
  const unsigned blocks = std::clamp<unsigned>(batches.batch, 1, 8 * 132);
  check(cudaLaunchKernel(functions().take, dim3(blocks), dim3(kThreads), args, 0, stream), "taking a batch");
}

void enqueue_delivery(const Delivery& delivery, cudaStream_t stream) {
  void* args[] = {const_cast<Delivery*>(&delivery)};
  check(cudaLaunchKernel(functions().deliver, dim3(1), dim3(kThreads), args, 0, stream), "delivering results");
}

}  // namespace aicf::backend::cuda
