// Runs a bound plan on the device, step after step, without the host waiting.
#include <emmintrin.h>
#include <fmt/format.h>
#include <time.h>

#include <algorithm>
#include <atomic>
#include <cstring>
#include <map>
#include <mutex>
#include <utility>

#include "aicf/error.h"
#include "backend/cuda/capture.h"
#include "backend/cuda/device.h"
#include "backend/cuda/error.h"
#include "backend/cuda/launch.h"
#include "backend/cuda/queue.h"
#include "backend/cuda/runner_kernels.h"
#include "base/thread_pool.h"

namespace aicf::backend::cuda {
namespace {

constexpr uint64_t kRingSteps = 1024;
constexpr size_t kScalarBytes = 1024;  // outputs up to this size go through the ring
constexpr size_t kPieceAlignment = 16;
constexpr uint64_t kEvents = 64;
// Of a graph of several steps: more of them save nothing, and each is made and sent to the device once.
constexpr size_t kMaxNodes = 2000;
constexpr int kMaxSteps = 256;
// Of the numbers of examples that are ahead of the steps.
constexpr size_t kRowsBytes = size_t{4} << 20;
constexpr uint64_t kFewestBatches = 16, kMostBatches = 4096;

size_t rounded_up(size_t bytes, size_t to) { return (bytes + to - 1) / to * to; }

// Large feeds are copied by several threads: one alone fills a third of the bus at best.
constexpr size_t kPart = size_t{1} << 20;
void copy_to_pinned(char* to, const void* from, size_t bytes) {
  struct Task {
    char* to;
    const char* from;
    size_t bytes;
  } task{to, static_cast<const char*>(from), bytes};
  if (bytes < 4 * kPart) {
    std::memcpy(to, from, bytes);
    return;
  }
  const auto part = [](void* ctx, int i, int) {
    const Task& t = *static_cast<const Task*>(ctx);
    const size_t begin = static_cast<size_t>(i) * kPart;
    std::memcpy(t.to + begin, t.from + begin, std::min(kPart, t.bytes - begin));
  };
  base::ThreadPool::shared().run(part, &task, static_cast<int>((bytes + kPart - 1) / kPart));
}

struct DeviceMemory {
  explicit DeviceMemory(size_t bytes) : data(backend().allocate(bytes)) {}
  DeviceMemory(const DeviceMemory&) = delete;
  DeviceMemory& operator=(const DeviceMemory&) = delete;
  ~DeviceMemory() { backend().release(data); }
  void* const data;
};

struct PinnedMemory {
  explicit PinnedMemory(size_t bytes) : data(backend().allocate_host(bytes)) { std::memset(data, 0, bytes); }
  PinnedMemory(const PinnedMemory&) = delete;
  PinnedMemory& operator=(const PinnedMemory&) = delete;
  ~PinnedMemory() { backend().release_host(data); }
  void* const data;
};

struct Event {
  Event() { check(cudaEventCreateWithFlags(&event, cudaEventDisableTiming), "creating an event"); }
  Event(const Event&) = delete;
  Event& operator=(const Event&) = delete;
  ~Event() { cudaEventDestroy(event); }
  void record(cudaStream_t stream) const { check(cudaEventRecord(event, stream), "recording an event"); }
  void before(cudaStream_t stream) const { check(cudaStreamWaitEvent(stream, event, 0), "waiting for an event"); }
  cudaEvent_t event = nullptr;
};

// Feeds on their way: pinned memory, then one of two slots on the device.
struct Staging {
  explicit Staging(size_t bytes) : slots(2 * bytes), pinned(2 * bytes) {}
  DeviceMemory slots;
  PinnedMemory pinned;
  Event copied[2], consumed[2];
  uint64_t fed = 0;
};

// The examples' numbers of the batches to come: a ring on the device, and its image in pinned memory.
class BatchRing {
 public:
  BatchRing(std::shared_ptr<const Examples> examples, std::span<const Block> inputs, Counters* counters)
      : examples_(std::move(examples)),
        row_(static_cast<size_t>(examples_->batch)),
        slots_(std::clamp<uint64_t>(kRowsBytes / (row_ * sizeof(int32_t)), kFewestBatches, kMostBatches)),
        device_(slots_ * row_ * sizeof(int32_t)),
        pinned_(slots_ * row_ * sizeof(int32_t)),
        taken_by_(slots_, 0) {
    if (examples_->columns.size() > kMaxColumns) {
      throw Error(fmt::format("a data set of {} tensors: at most {} can be kept on the device",
                              examples_->columns.size(), kMaxColumns));
    }
    for (const Examples::Column& c : examples_->columns) {
      batches_.columns[batches_.count++] = {static_cast<const char*>(c.rows),
                                            static_cast<char*>(inputs[static_cast<size_t>(c.input)].address),
                                            c.row_bytes};
    }
    batches_.batch = static_cast<uint32_t>(examples_->batch);
    batches_.slots = slots_;
    batches_.rows = static_cast<const int32_t*>(device_.data);
    batches_.counters = counters;
  }

  const Batches& batches() const { return batches_; }
  // Of one launch, so that the numbers of the next can be on their way meanwhile.
  uint64_t most_steps() const { return slots_ / 2; }

  // `count` batches from now on have numbers on the device when `work` gets there.
  template <class Wait>
  void prepare(uint64_t count, cudaStream_t feeds, cudaStream_t work, const Wait& wait) {
    if (started_ + count > filled_) {
      // A part of the ring at a time: one copy for many steps.
      const uint64_t until = started_ + std::max(count, slots_ / 4);
      const uint64_t begin = filled_;
      for (; filled_ < until; ++filled_) {
        const uint64_t slot = filled_ % slots_;
        wait(taken_by_[slot]);
        examples_->next(static_cast<int32_t*>(pinned_.data) + slot * row_);
      }
      for (uint64_t from = begin; from < until;) {
        const uint64_t slot = from % slots_, n = std::min(until - from, slots_ - slot);
        const size_t at = slot * row_ * sizeof(int32_t);
        check(cudaMemcpyAsync(static_cast<char*>(device_.data) + at, static_cast<char*>(pinned_.data) + at,
                              n * row_ * sizeof(int32_t), cudaMemcpyHostToDevice, feeds),
              "copying the order of examples");
        from += n;
      }
      copied_.record(feeds);
      copied_.before(work);
    }
  }
  // Steps first … take them: they are started.
  void take(uint64_t first, uint64_t count) {
    for (uint64_t i = 0; i < count; ++i) taken_by_[(started_ + i) % slots_] = first + i;
    started_ += count;
  }

 private:
  const std::shared_ptr<const Examples> examples_;
  const size_t row_;
  const uint64_t slots_;
  DeviceMemory device_;
  PinnedMemory pinned_;
  std::vector<uint64_t> taken_by_;  // by slot: the step that took its last batch
  Batches batches_ = {};
  Event copied_;
  uint64_t filled_ = 0, started_ = 0;  // batches
};

class CudaRunner : public StepRunner {
 public:
  CudaRunner(std::shared_ptr<Streams> streams, StepSpec spec, Mode mode)
      : streams_(std::move(streams)),
        spec_(std::move(spec)),
        layout_(host_layout(spec_.outputs)),
        input_layout_(host_layout(spec_.inputs)),
        counters_(sizeof(Counters)),
        status_(sizeof(Status)) {
    for (size_t i = 0; i < spec_.inputs.size(); ++i) {
      // One block in the layout of host_layout, so that one copy fills them all.
      const auto* expected = static_cast<const char*>(spec_.inputs[0].address) + input_layout_.offsets[i];
      if (spec_.inputs[i].address != expected) throw InternalError("the inputs are not one block");
    }
    lay_out_ring();
    if (mode == Mode::graph) graph(input_layout_.bytes > 0 ? Inputs::staged : Inputs::resident, 1);
  }

  ~CudaRunner() override {
    const OnDevice scope;
    cudaStreamSynchronize(streams_->feeds);
    cudaStreamSynchronize(streams_->work);
    cudaGetLastError();
    graphs_.clear();
  }

  uint64_t start(const StepCall& call) override {
    const OnDevice scope;
    const bool staged = !call.feeds.empty() && input_layout_.bytes > 0;
    if (staged) stage(call);
    const Inputs inputs = call.next_batch ? Inputs::batch : staged ? Inputs::staged : Inputs::resident;
    run(call, inputs, 1);
    // Counted now, as the device counts: had the launch failed, the slot would be filled again.
    if (staged) staging_->consumed[staging_->fed++ % 2].record(streams_->work);
    copy_large_outputs(call.host);
    return started_;
  }

  uint64_t start(const StepCall& call, std::span<void* const> hosts) override {
    const OnDevice scope;
    if (has_large_) throw InternalError("several steps whose results are large");
    const Inputs inputs = call.next_batch ? Inputs::batch : Inputs::resident;
    for (size_t left = hosts.size(); left > 0;) {
      uint64_t count = 1;
      while (call.mode == Mode::graph && 2 * count <= std::min<uint64_t>(left, steps_per_launch())) count *= 2;
      run(call, inputs, count);
      left -= count;
    }
    return started_;
  }

  void set_examples(std::shared_ptr<const Examples> examples) override {
    const OnDevice scope;
    wait(0);
    auto* const counters = static_cast<Counters*>(counters_.data);
    std::unique_ptr<BatchRing> ring;  // first: where there is no memory for it, all is as it was
    if (examples != nullptr) ring = std::make_unique<BatchRing>(std::move(examples), spec_.inputs, counters);
    check(cudaMemset(&counters->batches, 0, sizeof counters->batches), "starting with the first batch");
    std::erase_if(graphs_, [](const auto& graph) { return graph.first.first == Inputs::batch; });
    ring_of_batches_ = std::move(ring);
  }
  std::vector<size_t> kept_once() const override { return large_; }

  // A power of two, so that few graphs make any number of steps.
  int steps_per_launch() override {
    const size_t nodes = std::max<size_t>(graph(Inputs::resident, 1).description().nodes.size() + 1, 1);
    uint64_t most = std::min<uint64_t>(kMaxNodes / nodes, kMaxSteps);
    if (ring_of_batches_ != nullptr) most = std::min(most, ring_of_batches_->most_steps());
    int steps = 1;
    while (2 * static_cast<uint64_t>(steps) <= most) steps *= 2;
    return steps;
  }

  uint64_t started() const override { return started_; }

  void order_after(void* stream) override {
    const OnDevice scope;
    const auto caller = static_cast<cudaStream_t>(stream);
    refuse_captured(caller);
    outside_.record(caller);
    outside_.before(streams_->work);
  }
  void order_before(void* stream) override {
    const OnDevice scope;
    const auto caller = static_cast<cudaStream_t>(stream);
    refuse_captured(caller);
    done_.record(streams_->work);
    done_.before(caller);
  }

  void wait(uint64_t step) override {
    const OnDevice scope;
    if (step == 0) {
      check(cudaStreamSynchronize(streams_->work), "waiting for the device");
      return;
    }
    wait_for_status(step);
    if (has_large_) {
      // Events are recorded in order, so that of a later step will do.
      const uint64_t latest = large_events_recorded_.load(std::memory_order_acquire);
      const uint64_t oldest = latest > kEvents ? latest - kEvents + 1 : 1;
      check(cudaEventSynchronize(events_[std::max(step, oldest) % kEvents]->event), "waiting for results");
    }
  }

  uint64_t window() const override { return kRingSteps; }

  void collect(uint64_t step, void* host) override {
    const OnDevice scope;
    wait(step);
    if (delivery_.count == 0) return;
    const std::lock_guard<std::mutex> lock(collecting_);
    const char* slot = delivery_.ring + (step - 1) % kRingSteps * delivery_.slot_bytes;
    check(cudaMemcpyAsync(bounce_->data, slot, delivery_.slot_bytes, cudaMemcpyDeviceToHost, streams_->results),
          "collecting results");
    check(cudaStreamSynchronize(streams_->results), "collecting results");
    for (uint32_t p = 0; p < delivery_.count; ++p) {
      std::memcpy(static_cast<char*>(host) + layout_.offsets[scalars_[p]],
                  static_cast<const char*>(bounce_->data) + delivery_.pieces[p].offset, delivery_.pieces[p].bytes);
    }
  }

  InputFault fault() override {
    const auto* status = static_cast<const volatile Status*>(status_.data);
    const int64_t code = status->error;
    std::atomic_thread_fence(std::memory_order_acquire);
    return {code, status->error_step, status->error_named};
  }
  void clear_fault() override {
    auto* status = static_cast<volatile Status*>(status_.data);
    status->error = 0;
    status->error_step = 0;
    status->error_named = 0;
    std::atomic_thread_fence(std::memory_order_seq_cst);
  }

  const CapturedGraph* captured() override {
    for (Inputs inputs : {Inputs::staged, Inputs::resident, Inputs::batch}) {
      if (const auto known = graphs_.find({inputs, 1}); known != graphs_.end()) return &known->second->description();
    }
    return nullptr;
  }

 private:
  // Where a step's inputs come from: they are as they were left, or feeds, or a batch of the examples.
  enum class Inputs : uint8_t { resident, staged, batch };

  void lay_out_ring() {
    size_t offset = 0;
    for (size_t i = 0; i < spec_.outputs.size(); ++i) {
      const Block& output = spec_.outputs[i];
      if (output.bytes > kScalarBytes || delivery_.count == kMaxScalars) {
        large_.push_back(i);
        continue;
      }
      delivery_.pieces[delivery_.count++] = {output.address, static_cast<uint32_t>(offset),
                                             static_cast<uint32_t>(output.bytes)};
      scalars_.push_back(i);
      offset += rounded_up(output.bytes, kPieceAlignment);
    }
    delivery_.slot_bytes = static_cast<uint32_t>(std::max(offset, kPieceAlignment));
    delivery_.slots = kRingSteps;
    ring_ = std::make_unique<DeviceMemory>(kRingSteps * delivery_.slot_bytes);
    bounce_ = std::make_unique<PinnedMemory>(delivery_.slot_bytes);
    delivery_.ring = static_cast<char*>(ring_->data);
    delivery_.counters = static_cast<Counters*>(counters_.data);
    delivery_.status = static_cast<Status*>(status_.data);
    delivery_.error = spec_.error;
    delivery_.error_named = spec_.error_named;
    has_large_ = !large_.empty();
    for (uint64_t i = 0; has_large_ && i < kEvents; ++i) events_.push_back(std::make_unique<Event>());
  }

  Staging& staging() {
    if (staging_ == nullptr) staging_ = std::make_unique<Staging>(input_layout_.bytes);
    return *staging_;
  }

  // Feeds into the next slot. The caller may reuse its memory when this returns.
  void stage(const StepCall& call) {
    Staging& s = staging();
    const size_t slot = s.fed % 2, bytes = input_layout_.bytes;
    char* const pinned = static_cast<char*>(s.pinned.data) + slot * bytes;
    char* const device = static_cast<char*>(s.slots.data) + slot * bytes;
    check(cudaEventSynchronize(s.copied[slot].event), "waiting for a feed's copy");
    s.consumed[slot].before(streams_->feeds);
    size_t first = bytes, last = 0;  // of what comes from the host
    for (const StepFeed& feed : call.feeds) {
      const size_t at = input_layout_.offsets[static_cast<size_t>(feed.input)];
      const size_t size = spec_.inputs[static_cast<size_t>(feed.input)].bytes;
      if (size == 0 || feed.on_device) continue;
      copy_to_pinned(pinned + at, feed.data, size);
      first = std::min(first, at);
      last = std::max(last, at + size);
    }
    if (first < last) {
      check(cudaMemcpyAsync(device + first, pinned + first, last - first, cudaMemcpyHostToDevice, streams_->feeds),
            "copying feeds");
    }
    stage_device_feeds(call, device);
    s.copied[slot].record(streams_->feeds);
    s.copied[slot].before(streams_->work);
  }

  void stage_device_feeds(const StepCall& call, char* slot) {
    const auto on_device = [](const StepFeed& feed) { return feed.on_device; };
    if (std::none_of(call.feeds.begin(), call.feeds.end(), on_device)) return;
    outside_.before(streams_->feeds);
    for (const StepFeed& feed : call.feeds) {
      const Block& input = spec_.inputs[static_cast<size_t>(feed.input)];
      if (!feed.on_device || input.bytes == 0) continue;
      check(cudaMemcpyAsync(slot + input_layout_.offsets[static_cast<size_t>(feed.input)], feed.data, input.bytes,
                            cudaMemcpyDeviceToDevice, streams_->feeds),
            "copying feeds");
    }
  }

  // Its work would become part of the caller's graph, and never run.
  static void refuse_captured(cudaStream_t caller) {
    cudaStreamCaptureStatus status = cudaStreamCaptureStatusNone;
    check(cudaStreamIsCapturing(caller, &status), "asking a stream");
    if (status != cudaStreamCaptureStatusNone) throw Error("step: the caller's stream is being captured");
  }

  // Appends one step, which follows unit `after` (-1: nothing). Returns the unit that it ends with.
  int add_step(std::vector<CaptureUnit>& list, Inputs inputs, int step, int after) {
    const auto follow = [after](CaptureUnit& unit) {
      if (unit.predecessors.empty() && after >= 0) unit.predecessors.push_back(after);
    };
    int source = -1;
    if (inputs != Inputs::resident) {
      source = static_cast<int>(list.size());
      CaptureUnit unit{-1, step, kStaging, {}, [this, inputs](cudaStream_t stream) { enqueue_inputs(inputs, stream); }};
      follow(unit);
      list.push_back(std::move(unit));
    }
    const int first = static_cast<int>(list.size());
    std::vector<char> followed(spec_.launches.size(), 0);
    for (size_t i = 0; i < spec_.launches.size(); ++i) {
      const StepLaunch& launch = spec_.launches[i];
      CaptureUnit unit{static_cast<int>(i), step, launch.name, {}, [&launch](cudaStream_t stream) {
                         enqueue(launch.bound, stream);
                       }};
      for (int p : launch.predecessors) {
        unit.predecessors.push_back(p + first);
        followed[static_cast<size_t>(p)] = 1;
      }
      if (source >= 0 && launch.reads_input) unit.predecessors.push_back(source);
      follow(unit);
      list.push_back(std::move(unit));
    }
    // Delivery follows everything: the step is done when it is.
    CaptureUnit last{-1, step, kDelivery, {}, [this, inputs](cudaStream_t stream) { enqueue_results(inputs, stream); }};
    if (source >= 0) last.predecessors.push_back(source);
    for (size_t i = 0; i < followed.size(); ++i) {
      if (!followed[i]) last.predecessors.push_back(static_cast<int>(i) + first);
    }
    follow(last);
    list.push_back(std::move(last));
    return static_cast<int>(list.size()) - 1;
  }

  void enqueue_inputs(Inputs inputs, cudaStream_t stream) {
    if (inputs == Inputs::batch) {
      enqueue_batch(ring_of_batches_->batches(), stream);
    } else {
      enqueue_stage(staging().slots.data, input_layout_.bytes, spec_.inputs[0].address,
                    static_cast<const Counters*>(counters_.data), stream);
    }
  }
  void enqueue_results(Inputs inputs, cudaStream_t stream) {
    delivery_.staged = inputs == Inputs::staged ? 1 : 0;
    delivery_.batched = inputs == Inputs::batch ? 1 : 0;
    enqueue_delivery(delivery_, stream);
  }

  const GraphExec& graph(Inputs inputs, int steps) {
    if (const auto known = graphs_.find({inputs, steps}); known != graphs_.end()) return *known->second;
    if (inputs == Inputs::staged) staging();
    std::vector<CaptureUnit> units;
    for (int step = 0, last = -1; step < steps; ++step) last = add_step(units, inputs, step, last);
    auto made = std::make_unique<GraphExec>(units);
    if (spec_.check) spec_.check(made->description());
    return *graphs_.emplace(std::pair{inputs, steps}, std::move(made)).first->second;
  }

  // Starts `count` steps: one unless in a graph. Nothing is counted that the device was not given.
  void run(const StepCall& call, Inputs inputs, uint64_t count) {
    const GraphExec* const captured = call.mode == Mode::graph ? &graph(inputs, static_cast<int>(count)) : nullptr;
    if (inputs == Inputs::batch) {
      ring_of_batches_->prepare(count, streams_->feeds, streams_->work, [this](uint64_t step) {
        if (step > 0) wait_for_status(step);
      });
    }
    if (captured != nullptr) {
      captured->launch(streams_->work);
    } else {
      run_launches(call, inputs);
    }
    if (inputs == Inputs::batch) ring_of_batches_->take(started_ + 1, count);
    started_ += count;
  }

  void run_launches(const StepCall& call, Inputs inputs) {
    if (inputs != Inputs::resident) enqueue_inputs(inputs, streams_->work);
    for (size_t i = 0; i < spec_.launches.size(); ++i) {
      const int at = call.order.empty() ? static_cast<int>(i) : call.order[i];
      enqueue(spec_.launches[static_cast<size_t>(at)].bound, streams_->work);
      if (call.mode != Mode::eager) continue;
      check(cudaStreamSynchronize(streams_->work), spec_.launches[static_cast<size_t>(at)].name.c_str());
      if (call.after != nullptr && *call.after) (*call.after)(at);
    }
    enqueue_results(inputs, streams_->work);
  }

  void copy_large_outputs(void* host) {
    if (!has_large_) return;
    for (size_t i : large_) {
      check(cudaMemcpyAsync(static_cast<char*>(host) + layout_.offsets[i], spec_.outputs[i].address,
                            spec_.outputs[i].bytes, cudaMemcpyDeviceToHost, streams_->work),
            "copying results");
    }
    events_[started_ % kEvents]->record(streams_->work);
    large_events_recorded_.store(started_, std::memory_order_release);
  }

  // Spins on the word the device writes; looks at the device itself now and then, since one that failed writes nothing.
  void wait_for_status(uint64_t step) const {
    const auto* status = static_cast<const volatile Status*>(status_.data);
    constexpr int kSpins = 4096;  // some tens of microseconds
    for (int round = 0; status->done < step; ++round) {
      for (int i = 0; i < kSpins && status->done < step; ++i) _mm_pause();
      if (status->done >= step) break;
      const cudaError_t state = cudaStreamQuery(streams_->work);
      cudaGetLastError();  // "not ready" is no error to be found later
      if (state != cudaErrorNotReady) {
        check(state, "waiting for the device");
        if (status->done < step) throw InternalError(fmt::format("step {} was waited for and never started", step));
        break;
      }
      if (round > 16) {
        const timespec pause{0, 20000};
        nanosleep(&pause, nullptr);
      }
    }
    std::atomic_thread_fence(std::memory_order_acquire);
  }

  const std::shared_ptr<Streams> streams_;
  const StepSpec spec_;
  const HostLayout layout_, input_layout_;
  DeviceMemory counters_;
  PinnedMemory status_;
  std::unique_ptr<DeviceMemory> ring_;
  std::unique_ptr<PinnedMemory> bounce_;
  std::mutex collecting_;
  std::unique_ptr<Staging> staging_;
  Event outside_, done_;  // the caller's work before a step, and the steps before the caller's
  std::vector<std::unique_ptr<Event>> events_;
  std::atomic<uint64_t> large_events_recorded_ = 0;
  Delivery delivery_ = {};
  std::vector<size_t> scalars_, large_;  // output indices
  bool has_large_ = false;
  std::unique_ptr<BatchRing> ring_of_batches_;
  std::map<std::pair<Inputs, int>, std::unique_ptr<GraphExec>> graphs_;  // by inputs and steps
  uint64_t started_ = 0;
};

}  // namespace

std::unique_ptr<StepRunner> make_cuda_runner(std::shared_ptr<Streams> streams, StepSpec spec, Mode mode) {
  return std::make_unique<CudaRunner>(std::move(streams), std::move(spec), mode);
}

}  // namespace aicf::backend::cuda
