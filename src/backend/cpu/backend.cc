// The CPU backend: host memory, and launches run phase by phase on the pool.
#include <fmt/format.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <string>

#include "aicf/error.h"
#include "backend/cpu/kernels.h"
#include "base/thread_pool.h"
#include "hwy/highway.h"

namespace aicf::backend {
namespace {

constexpr size_t kAlignment = 256;
// Below this, asking the system what it has left costs more than it tells.
constexpr size_t kCheckedBytes = size_t{64} << 20;

// What /proc/meminfo says can still be had, or SIZE_MAX. The system itself promises more than it has.
size_t available_memory() {
  std::ifstream file("/proc/meminfo");
  std::string key;
  for (size_t kilobytes = 0; file >> key >> kilobytes;) {
    if (key == "MemAvailable:") return kilobytes * 1024;
    file.ignore(64, '\n');
  }
  return SIZE_MAX;
}

std::string processor_name() {
  std::ifstream file("/proc/cpuinfo");
  for (std::string line; std::getline(file, line);) {
    const size_t colon = line.find(": ");
    if (line.starts_with("model name") && colon != std::string::npos) return line.substr(colon + 2);
  }
  return "unknown processor";
}

// The target that run-time dispatch picks: better ones have lower bits.
const char* simd_target() {
  const int64_t usable = hwy::SupportedTargets() & HWY_TARGETS;
  return hwy::TargetName(usable & -usable);
}

struct PhaseTask {
  CpuKernelFn fn;
  KernelArgs args;
};

void run_part(void* ctx, int part, int parts) {
  const auto* task = static_cast<const PhaseTask*>(ctx);
  task->fn(task->args, part, parts);
}

void copy(void* to, const void* from, size_t bytes) {
  if (bytes > 0) std::memcpy(to, from, bytes);
}

// Every step is done when start() returns.
class CpuRunner : public StepRunner {
 public:
  explicit CpuRunner(StepSpec spec) : spec_(std::move(spec)), layout_(host_layout(spec_.outputs)) {
    for (const StepLaunch& launch : spec_.launches) launches_.push_back(launch.bound);
  }

  uint64_t start(const StepCall& call) override {
    for (const StepFeed& feed : call.feeds) {
      const Block& input = spec_.inputs[static_cast<size_t>(feed.input)];
      copy(input.address, feed.data, input.bytes);
    }
    if (call.next_batch) take_batch();
    if (call.mode == Mode::eager) {
      run_eager(call);
    } else {
      run_on_cpu(launches_, spec_.threads);
    }
    for (size_t i = 0; call.host != nullptr && i < spec_.outputs.size(); ++i) {
      copy(static_cast<char*>(call.host) + layout_.offsets[i], spec_.outputs[i].address, spec_.outputs[i].bytes);
    }
    ++steps_;
    if (failed_ == 0 && spec_.error != nullptr && *spec_.error != 0) failed_ = steps_;
    return steps_;
  }
  uint64_t start(const StepCall& call, std::span<void* const> hosts) override {
    for (void* host : hosts) {
      StepCall one = call;
      one.host = host;
      start(one);
    }
    return steps_;
  }
  void set_examples(std::shared_ptr<const Examples> examples) override {
    examples_ = std::move(examples);
    chosen_.resize(examples_ == nullptr ? 0 : static_cast<size_t>(examples_->batch));
  }
  uint64_t started() const override { return steps_; }
  void order_after(void*) override { throw Error("step: the CPU backend has no streams"); }
  void order_before(void*) override { throw Error("step: the CPU backend has no streams"); }
  void wait(uint64_t) override {}
  uint64_t window() const override { return UINT64_MAX; }
  void collect(uint64_t, void*) override {}
  InputFault fault() override {
    return {spec_.error != nullptr ? *spec_.error : 0, failed_, spec_.error_named != nullptr ? *spec_.error_named : 0};
  }
  void clear_fault() override { failed_ = 0; }

 private:
  void take_batch() {
    examples_->next(chosen_.data());
    for (const Examples::Column& column : examples_->columns) {
      char* to = static_cast<char*>(spec_.inputs[static_cast<size_t>(column.input)].address);
      for (int32_t example : chosen_) {
        copy(to, static_cast<const char*>(column.rows) + static_cast<size_t>(example) * column.row_bytes,
             column.row_bytes);
        to += column.row_bytes;
      }
    }
  }

  void run_eager(const StepCall& call) {
    for (size_t i = 0; i < launches_.size(); ++i) {
      const int at = call.order.empty() ? static_cast<int>(i) : call.order[i];
      run_on_cpu({&launches_[static_cast<size_t>(at)], 1}, spec_.threads);
      if (call.after != nullptr && *call.after) (*call.after)(at);
    }
  }

  const StepSpec spec_;
  const HostLayout layout_;
  std::vector<BoundLaunch> launches_;
  std::shared_ptr<const Examples> examples_;
  std::vector<int32_t> chosen_;      // a batch of them
  uint64_t steps_ = 0, failed_ = 0;  // done; the first of them with an input error
};

class CpuQueue : public Queue {
 public:
  void upload(void* to, const void* from, size_t bytes) override { copy(to, from, bytes); }
  void download(void* to, const void* from, size_t bytes) override { copy(to, from, bytes); }
  void run(std::span<const BoundLaunch> launches, int threads) override { run_on_cpu(launches, threads); }
  void wait() override {}
  std::unique_ptr<StepRunner> make_runner(StepSpec spec, Mode) override {
    return std::make_unique<CpuRunner>(std::move(spec));
  }
};

class CpuBackend : public Backend {
 public:
  std::string_view name() const override { return "cpu"; }

  std::string description() const override {
    const int threads = base::ThreadPool::shared().default_threads();
    return fmt::format("{}, {}, {} thread{}", processor_name(), simd_target(), threads, threads == 1 ? "" : "s");
  }

  std::span<const Kernel> kernels() const override { return cpu::kernel_table(); }

  void* allocate(size_t bytes) override {
    const size_t available = bytes >= kCheckedBytes ? available_memory() : SIZE_MAX;
    const size_t rounded =
        bytes > SIZE_MAX - kAlignment ? 0 : std::max((bytes + kAlignment - 1) / kAlignment, size_t{1});
    void* memory = bytes <= available && rounded > 0 ? std::aligned_alloc(kAlignment, rounded * kAlignment) : nullptr;
    if (memory == nullptr) {
      const std::string left = available == SIZE_MAX ? "" : fmt::format(", {} bytes are available", available);
      throw Error(fmt::format("out of memory: {} bytes were asked for{}", bytes, left),
                  "use a smaller batch or a smaller model");
    }
    std::memset(memory, 0, rounded * kAlignment);
    return memory;
  }

  void release(void* memory) noexcept override { std::free(memory); }
  void* allocate_host(size_t bytes) override { return allocate(bytes); }
  void release_host(void* memory) noexcept override { release(memory); }
  std::unique_ptr<Queue> make_queue() override { return std::make_unique<CpuQueue>(); }
};

}  // namespace

Backend& cpu_backend() {
  // Never destroyed: a store of static storage may still release memory at exit.
  static Backend* const backend = new CpuBackend;
  return *backend;
}

void run_on_cpu(std::span<const BoundLaunch> launches, int threads) {
  base::ThreadPool& pool = base::ThreadPool::shared();
  if (threads <= 0) threads = pool.default_threads();
  const base::FlushSubnormals flush;
  for (const BoundLaunch& launch : launches) {
    if (launch.guard != nullptr && *launch.guard == 0) continue;
    for (const CpuPhase& phase : launch.kernel->phases) {
      PhaseTask task{phase.fn, {launch.buffers, launch.kernel->params.get()}};
      if (phase.parts == 1) {
        phase.fn(task.args, 0, 1);
      } else {
        pool.run(run_part, &task, phase.parts, threads);
      }
    }
  }
}

}  // namespace aicf::backend
