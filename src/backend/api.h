// What a backend offers: kernels, memory, and a way to run a bound list of launches.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "aicf/mode.h"
#include "aicf/shape.h"
#include "ir/graph.h"
#include "ir/op.h"

namespace aicf::backend {

// The variant of each matrix product, by product_key(): a text that makes the choice again.
using Choices = std::map<std::string, std::string>;

// How variants are chosen where several fit.
struct Tuning {
  bool measure = false;            // by timing them on scratch; else by the backend's estimate
  double* budget_s = nullptr;      // seconds left for timing, counted down; null: no limit
  const Choices* known = nullptr;  // taken where they run; null: none
  Choices* taken = nullptr;        // gets what each product is computed by; null: nobody asks
};

// The op a kernel is asked to run: types are the operands' and results' in record order.
struct KernelQuery {
  const ir::OpDef& def;
  const ir::Attrs& attrs;
  std::span<const TensorType> in;
  std::span<const TensorType> out;
  const ir::Graph* region = nullptr;  // of an op that has a body
  Tuning tuning = {};
};

// A matmul by itself, wherever it stands in a plan: "matmul f32[2,3] f32[3,4] {ta=true}".
std::string product_key(const ir::OpDef& def, std::span<const TensorType> in, const ir::Attrs& attrs);
// What is known of how this product was computed, or "".
std::string known_choice(const KernelQuery& product);
// It is computed by this.
void note_choice(const KernelQuery& product, const std::string& choice);

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

// What a backend other than the CPU runs for a kernel; each has its own kind.
struct DeviceCode {
  virtual ~DeviceCode() = default;
};

// A kernel bound to types: everything decided but the addresses.
struct PreparedKernel {
  std::string variant = {};                 // for dumps
  std::vector<CpuPhase> phases = {};        // CPU
  std::shared_ptr<const void> params = {};  // owned by the launch
  size_t workspace_bytes = 0;
  std::shared_ptr<DeviceCode> code = {};  // other backends; complete once linked
  // False: it runs whatever the guard says (a library call), so the planner gives it none.
  bool guardable = true;

  // Nothing to do: an empty tensor.
  bool empty() const { return phases.empty() && code == nullptr; }
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

// One launch of a plan and who must wait for it.
struct StepLaunch {
  BoundLaunch bound;
  std::string name;               // for messages and dumps
  std::vector<int> predecessors;  // launch indices, each once, all smaller
  bool reads_input = false;       // or writes one: follows the staging of feeds
};

struct Block {
  void* address = nullptr;
  size_t bytes = 0;
};

// What a captured graph is made of, read back from the driver.
struct GraphNode {
  enum class Kind : uint8_t { kernel, copy, fill, host, allocation, other } kind = Kind::kernel;
  int launch = -1;                    // -1: added by the runner (staging of feeds, delivery of results)
  int step = 0;                       // of a graph of several
  std::string name;                   // the launch's, or what the runner adds it for
  const void* host_source = nullptr;  // of a copy from host memory
  bool host_source_owned = false;     // by the program
};
struct GraphEdge {
  int from = 0, to = 0;  // node indices
  bool programmatic = false;
};
// The names of the runner's own nodes.
inline constexpr const char* kStaging = "feeds";
inline constexpr const char* kDelivery = "results";
struct CapturedGraph {
  std::vector<GraphNode> nodes;
  std::vector<GraphEdge> edges;
};

// A bound plan as it is run over and over.
struct StepSpec {
  std::vector<StepLaunch> launches;
  // Fed each step: one block of memory, laid out as host_layout() says and of its size.
  std::vector<Block> inputs;
  std::vector<Block> outputs;            // read after each step, in a host block (see HostLayout)
  const int64_t* error = nullptr;        // device word that input checks set, or null
  const int64_t* error_named = nullptr;  // device word with the program's own number of that step, or null
  // Sees every graph that is captured, before it is used; throws when it is not what it should be.
  std::function<void(const CapturedGraph&)> check = nullptr;
  std::shared_ptr<const void> keep = nullptr;  // what the launches refer to
  int threads = 0;
};

// Where each block lies when they are packed, 256-byte aligned: inputs on the device, outputs in a result's host
// memory.
struct HostLayout {
  std::vector<size_t> offsets;
  size_t bytes = 0;
};
HostLayout host_layout(std::span<const Block> blocks);

// A data set in the backend's memory, of which a step's inputs can be taken: a batch of examples each.
struct Examples {
  struct Column {
    int input = 0;  // index into StepSpec::inputs, whose block is a batch of rows
    const void* rows = nullptr;
    size_t row_bytes = 0;
  };
  std::vector<Column> columns;
  int64_t batch = 0;
  // Writes the examples of the next batch, `batch` of them. Called for one batch after another, some of them long
  // before the step that takes it.
  std::function<void(int32_t*)> next;
  std::shared_ptr<const void> keep = nullptr;  // what all this refers to
};

struct StepFeed {
  int input = 0;               // index into StepSpec::inputs
  const void* data = nullptr;  // of that input's size
  bool on_device = false;      // memory of the backend, valid in the order of order_after()
};

struct StepCall {
  std::span<const StepFeed> feeds;  // none: the inputs are as they were left
  bool next_batch = false;          // the inputs are the next batch of the examples; no feeds then
  Mode mode = Mode::graph;
  std::span<const int> order = {};                         // eager: a permutation of the launches; empty: plan order
  const std::function<void(int launch)>* after = nullptr;  // eager: sees each launch when it is done
  void* host = nullptr;  // HostLayout::bytes of the backend's host memory, for the outputs
};

struct InputFault {
  int64_t code = 0;   // 0: none
  uint64_t step = 0;  // the runner's number
  int64_t named = 0;  // the program's, or 0
};

// Runs one bound plan, step after step, in order. Not thread-safe but for wait() and collect().
class StepRunner {
 public:
  virtual ~StepRunner() = default;  // waits for what is in flight
  // Starts a step and returns its number, 1 for the first; it may return before the step is done. What the feeds point
  // to may be reused on return. Throws Error when the device fails.
  virtual uint64_t start(const StepCall& call) = 0;
  // Starts up to hosts.size() such steps, one after another, and returns the number of the last; the outputs of the
  // i-th are for hosts[i]. A backend that captures does it by one launch of a graph that holds them all.
  // REQUIRES: no feeds, and at most window() hosts.
  virtual uint64_t start(const StepCall& call, std::span<void* const> hosts) = 0;
  // The examples that next_batch takes from now on, or null. Waits for what is in flight.
  virtual void set_examples(std::shared_ptr<const Examples> examples) = 0;
  // Outputs that are not kept for each of several steps of one launch, by index; those steps cannot be started.
  virtual std::vector<size_t> kept_once() const { return {}; }
  // The most steps that one launch holds.
  virtual int steps_per_launch() { return 1; }
  virtual uint64_t started() const = 0;
  // All work started from now on runs after what is in the caller's stream (CUDA: a cudaStream_t), or the caller's
  // later work after all that was started. The host waits for neither. Throw Error where there are no streams.
  virtual void order_after(void* stream) = 0;
  virtual void order_before(void* stream) = 0;
  // Returns when that step (0: every one started) is done. Throws Error when the device failed.
  virtual void wait(uint64_t step) = 0;
  // Steps kept for collect(): the outputs of step s can be collected until step s + window() is started.
  virtual uint64_t window() const = 0;
  // Waits for the step and completes its outputs in `host`, which start() was given.
  virtual void collect(uint64_t step, void* host) = 0;
  // The error word as last heard of, without waiting (exact after wait()), and the first step that set it.
  virtual InputFault fault() = 0;
  // After the error word was cleared, with nothing in flight.
  virtual void clear_fault() = 0;
  // The captured graph, or null: this backend, or this runner so far, has none.
  virtual const CapturedGraph* captured() { return nullptr; }
};

// An in-order line of work of one store, which outlives what was made from it.
class Queue {
 public:
  virtual ~Queue() = default;
  // Between host and backend memory, in order; complete on return.
  virtual void upload(void* to, const void* from, size_t bytes) = 0;
  virtual void download(void* to, const void* from, size_t bytes) = 0;
  // Runs the launches in order; may return before they are done. Allocates nothing.
  virtual void run(std::span<const BoundLaunch> launches, int threads) = 0;
  // Returns when all is done. Throws Error when the device failed.
  virtual void wait() = 0;
  // Prepares to run a plan. In graph mode a backend that captures does it here: throws Error naming the launch that
  // cannot be captured, with nothing run and the queue usable.
  virtual std::unique_ptr<StepRunner> make_runner(StepSpec spec, Mode mode) = 0;
};

class Backend {
 public:
  virtual ~Backend() = default;
  virtual std::string_view name() const = 0;
  // Processor, instruction set, threads: part of cache keys and shown by `aicf info`.
  virtual std::string description() const = 0;
  // "" when it can run; else why not (it may still prepare and link kernels).
  virtual std::string unusable() const { return {}; }
  virtual std::span<const Kernel> kernels() const = 0;
  // Launches of a plan that no path orders may run side by side.
  virtual bool concurrent() const { return false; }
  // Completes the code of these kernels: compiles, loads. Throws Error naming the op that does not compile.
  virtual void link(std::span<PreparedKernel* const>) {}

  // 256-byte aligned, zero-filled. Throws Error when there is not that much memory.
  virtual void* allocate(size_t bytes) = 0;
  virtual void release(void* memory) noexcept = 0;
  // Host memory that the backend copies to fastest.
  virtual void* allocate_host(size_t bytes) = 0;
  virtual void release_host(void* memory) noexcept = 0;
  virtual std::unique_ptr<Queue> make_queue() = 0;
};

// The CPU backend, one per process (named so because `cpu` is a namespace).
Backend& cpu_backend();
// Runs the launches in order and returns when they are done. `threads` 0: the default. Subnormals are flushed while
// kernels run and the caller's floating-point state is restored. Allocates nothing.
void run_on_cpu(std::span<const BoundLaunch> launches, int threads);
// "cpu" or "cuda". Throws Error naming what was looked for and not found, or why it cannot run here.
Backend& find(std::string_view name);
// As find(), also for a backend that cannot run here but can compile.
Backend& find_compiler(std::string_view name);

// What a plugin exports under the name kPluginSymbol.
struct PluginEntry {
  const char* build_id;
  Backend* (*backend)();  // one per process, never destroyed
};
inline constexpr const char* kPluginSymbol = "aicf_plugin";

// The cheapest accepting kernel, or null.
const Kernel* choose(std::span<const Kernel> kernels, const KernelQuery& query);

}  // namespace aicf::backend
