// What a backend offers: kernels, memory, and a way to run a bound list of launches.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "aicf/shape.h"
#include "ir/graph.h"
#include "ir/op.h"

namespace aicf::backend {

// The op a kernel is asked to run: types are the operands' and results' in record order.
struct KernelQuery {
  const ir::OpDef& def;
  const ir::Attrs& attrs;
  std::span<const TensorType> in;
  std::span<const TensorType> out;
};

// Buffers of one launch: operands, then results, then one workspace pointer if the kernel asked for workspace.
struct KernelArgs {
  void* const* buffers;
  const void* params;  // what `prepare` stored
};

// CPU kernels. `part` of `parts` is one share of the work; `parts` was fixed by `prepare` from shapes alone, so results
// cannot depend on the thread count. A kernel never opens a parallel region and never allocates.
using CpuKernelFn = void (*)(const KernelArgs& args, int part, int parts);

// Phases run one after another; all parts of a phase finish before the next starts.
struct CpuPhase {
  CpuKernelFn fn = nullptr;
  int parts = 1;
};

// A kernel bound to types: everything decided but the addresses.
struct PreparedKernel {
  std::string variant;                 // for dumps
  std::vector<CpuPhase> phases;        // CPU backends; no phases: nothing to do (an empty tensor)
  std::shared_ptr<const void> params;  // owned by the launch
  size_t workspace_bytes = 0;
};

// One way to run an op.
struct Kernel {
  const char* op = nullptr;       // the record's name
  const char* variant = nullptr;  // distinct within the op
  bool (*accepts)(const KernelQuery&) = nullptr;
  // Relative cost in microseconds, for choosing among variants that accept. Null: 0 (the only one).
  double (*cost)(const KernelQuery&) = nullptr;
  PreparedKernel (*prepare)(const KernelQuery&) = nullptr;
};

// A launch with its addresses: `guard` null or false-able: with *guard false the launch does nothing.
struct BoundLaunch {
  const PreparedKernel* kernel = nullptr;
  void* const* buffers = nullptr;
  const uint8_t* guard = nullptr;
};

class Backend {
 public:
  virtual ~Backend() = default;
  virtual std::string_view name() const = 0;
  // Processor, instruction set, threads: part of cache keys and shown by `aicf info`.
  virtual std::string description() const = 0;
  virtual std::span<const Kernel> kernels() const = 0;

  // 256-byte aligned, zero-filled. Throws Error when there is not that much memory.
  virtual void* allocate(size_t bytes) = 0;
  virtual void release(void* memory) noexcept = 0;
  // Between host and backend memory; complete on return.
  virtual void upload(void* to, const void* from, size_t bytes) = 0;
  virtual void download(void* to, const void* from, size_t bytes) = 0;

  // Runs the launches in order and returns when they are done. `threads` 0: the default. Subnormals are flushed while
  // kernels run and the caller's floating-point state is restored. Allocates nothing.
  virtual void run(std::span<const BoundLaunch> launches, int threads) = 0;
};

// The CPU backend, one per process (named so because `cpu` is a namespace).
Backend& cpu_backend();
// "cpu" or "cuda". Throws Error naming what was looked for and not found.
Backend& find(std::string_view name);

// The cheapest accepting kernel, or null.
const Kernel* choose(std::span<const Kernel> kernels, const KernelQuery& query);

}  // namespace aicf::backend
