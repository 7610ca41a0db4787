// Runs a bound plan on the device, step after step, without the host waiting.
#include <emmintrin.h>
#include <fmt/format.h>
#include <time.h>

#include <algorithm>
#include <atomic>
#include <cstring>
#include <mutex>

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
    if (mode == Mode::graph) fed_graph();
  }

  ~CudaRunner() override {
    const OnDevice scope;
    cudaStreamSynchronize(streams_->feeds);
    cudaStreamSynchronize(streams_->work);
    cudaGetLastError();
    fed_graph_.reset();
    resident_graph_.reset();
  }

  uint64_t start(const StepCall& call) override {
    const OnDevice scope;
    const bool staged = !call.feeds.empty() && input_layout_.bytes > 0;
    if (staged) stage(call);
    if (call.mode == Mode::graph) {
      (staged ? fed_graph() : resident_graph()).launch(streams_->work);
    } else {
      run_launches(call, staged);
    }
    // Counted now, as the device counts: had the launch failed, the slot would be filled again.
    if (staged) staging_->consumed[staging_->fed++ % 2].record(streams_->work);
    ++started_;
    copy_large_outputs(call.host);
    return started_;
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
    const GraphExec* graph = fed_graph_ != nullptr ? fed_graph_.get() : resident_graph_.get();
    return graph != nullptr ? &graph->description() : nullptr;
  }

 private:
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

  std::vector<CaptureUnit> units(bool staged) {
    std::vector<CaptureUnit> list;
    const int first = staged ? 1 : 0;
    if (staged) {
      list.push_back({-1, kStaging, {}, [this](cudaStream_t stream) { enqueue_feeds(stream); }});
    }
    std::vector<char> followed(spec_.launches.size(), 0);
    for (size_t i = 0; i < spec_.launches.size(); ++i) {
      const StepLaunch& launch = spec_.launches[i];
      CaptureUnit unit{
          static_cast<int>(i), launch.name, {}, [&launch](cudaStream_t stream) { enqueue(launch.bound, stream); }};
      for (int p : launch.predecessors) {
        unit.predecessors.push_back(p + first);
        followed[static_cast<size_t>(p)] = 1;
      }
      if (staged && launch.reads_input) unit.predecessors.push_back(0);
      list.push_back(std::move(unit));
    }
    // Delivery follows everything: the step is done when it is.
    CaptureUnit last{-1, kDelivery, {}, [this, staged](cudaStream_t stream) { enqueue_results(staged, stream); }};
    if (staged) last.predecessors.push_back(0);
    for (size_t i = 0; i < followed.size(); ++i) {
      if (!followed[i]) last.predecessors.push_back(static_cast<int>(i) + first);
    }
    list.push_back(std::move(last));
    return list;
  }

  void enqueue_feeds(cudaStream_t stream) {
    enqueue_stage(staging().slots.data, input_layout_.bytes, spec_.inputs[0].address,
                  static_cast<const Counters*>(counters_.data), stream);
  }
  void enqueue_results(bool staged, cudaStream_t stream) {
    delivery_.staged = staged ? 1 : 0;
    enqueue_delivery(delivery_, stream);
  }

  std::unique_ptr<GraphExec> capture(bool staged) {
    auto graph = std::make_unique<GraphExec>(units(staged));
    if (spec_.check) spec_.check(graph->description());
    return graph;
  }

  const GraphExec& fed_graph() {
    if (input_layout_.bytes == 0) return resident_graph();
    if (fed_graph_ == nullptr) {
      staging();
      fed_graph_ = capture(true);
    }
    return *fed_graph_;
  }
  const GraphExec& resident_graph() {
    if (resident_graph_ == nullptr) resident_graph_ = capture(false);
    return *resident_graph_;
  }

  void run_launches(const StepCall& call, bool staged) {
    if (staged) enqueue_feeds(streams_->work);
    for (size_t i = 0; i < spec_.launches.size(); ++i) {
      const int at = call.order.empty() ? static_cast<int>(i) : call.order[i];
      enqueue(spec_.launches[static_cast<size_t>(at)].bound, streams_->work);
      if (call.mode != Mode::eager) continue;
      check(cudaStreamSynchronize(streams_->work), spec_.launches[static_cast<size_t>(at)].name.c_str());
      if (call.after != nullptr && *call.after) (*call.after)(at);
    }
    enqueue_results(staged, streams_->work);
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
  std::unique_ptr<GraphExec> fed_graph_, resident_graph_;
  uint64_t started_ = 0;
};

}  // namespace

std::unique_ptr<StepRunner> make_cuda_runner(std::shared_ptr<Streams> streams, StepSpec spec, Mode mode) {
  return std::make_unique<CudaRunner>(std::move(streams), std::move(spec), mode);
}

}  // namespace aicf::backend::cuda
