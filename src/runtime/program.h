// Program::Impl: an executable, the store it shares, and the pool of result blocks.
#pragma once

#include <atomic>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "aicf/program.h"
#include "runtime/executable.h"

namespace aicf {

namespace runtime {
class ResultPool;
}

// One step's outputs, held by results and, between uses, by the pool.
struct StepResult::Block {
  std::atomic<int> references{0};
  std::shared_ptr<runtime::ResultPool> pool;  // set while handed out: a block outlives its program
  const std::vector<std::string>* names = nullptr;
  runtime::HostMemory memory;
  std::vector<TensorView> views;  // into it
  uint64_t step = 0;              // the runner's number
  std::atomic<bool> ready{false};
  std::string error;  // set before ready: the step's inputs were out of range, and there is nothing to read
};

namespace runtime {

// The blocks of one program. A block whose step may still be running is completed when it is read, when the runner's
// window closes on it, or when the program goes, whichever comes first.
class ResultPool : public std::enable_shared_from_this<ResultPool> {
 public:
  ResultPool(backend::Backend& backend, std::vector<std::string> names, std::vector<TensorType> types);
  // Before the first step: the runner, what to say of a fault (called with locks held), and what to do when one is
  // seen on reading (called without).
  void attach(std::shared_ptr<backend::StepRunner> runner,
              std::function<std::string(const backend::InputFault&)> describe, std::function<void()> on_fault);
  // The program goes: completes what is handed out.
  void detach() noexcept;

  // A block with one reference. Allocates only when every block is in use.
  StepResult::Block* acquire();
  // Before step `next` is started: completes the blocks that it would take the memory of.
  void make_room(uint64_t next);
  // The block's step was started under this number.
  void started(StepResult::Block* block, uint64_t step, bool ready);
  // Returns when the block can be read. Throws Error when its step failed.
  void complete(StepResult::Block* block);
  // Steps first … last had an index out of range: their results, read or not yet read, are errors.
  void fail(uint64_t first, uint64_t last, const std::string& message);
  void give_back(StepResult::Block* block) noexcept;
  const std::vector<std::string>& names() const { return names_; }

 private:
  void collect(StepResult::Block& block);  // REQUIRES mutex_

  backend::Backend& backend_;
  const std::vector<std::string> names_;
  const std::vector<TensorType> types_;
  backend::HostLayout layout_;
  std::mutex mutex_;
  std::shared_ptr<backend::StepRunner> runner_;
  std::function<std::string(const backend::InputFault&)> describe_;
  std::function<void()> on_fault_;
  std::vector<std::unique_ptr<StepResult::Block>> blocks_;
  std::vector<StepResult::Block*> free_;
  std::vector<StepResult::Block*> pending_;  // by step modulo the window; null: none
};

}  // namespace runtime

class Program::Impl : public std::enable_shared_from_this<Program::Impl> {
 public:
  // Captures, in graph mode. REQUIRES the store's mutex.
  Impl(std::shared_ptr<const runtime::Compiled> compiled, std::shared_ptr<runtime::Store> store, Mode mode,
       int threads);
  ~Impl();

  // It belongs to the store as it is now. REQUIRES the store's mutex.
  void joined();
  // Throws Error when another program has taken over the training that this one is of, or what it reads is gone.
  // REQUIRES the store's mutex.
  void require_current(const char* call);

  StepResult step(std::span<const Feed> feeds, const StepOptions& options);
  StepResult repeat();
  std::vector<StepResult> steps(int64_t n);
  void wait();

  // What steps() takes its inputs from: rows of tensors, `batch` of them a step, whose numbers `next` writes.
  struct Source {
    NamedTensors columns;
    int64_t batch = 0;
  };
  // Writes the numbers of the next batch, and what the caller keeps with it.
  struct Order {
    std::function<void(int32_t*)> next;
    std::shared_ptr<const void> kept;
  };
  // Keeps the rows in the backend's memory.
  void attach(const Source& source, Order order);
  // The same rows in the order that `make` makes of what was kept with the last one (null: nothing is attached, and it
  // must throw).
  void reorder(const std::function<Order(const void* kept)>& make);
  // What is kept with the order (null: nothing is attached), and the batches taken since.
  std::pair<std::shared_ptr<const void>, uint64_t> order();
  GraphInfo graph_info();
  // The captured graph, or the plan's own where nothing is captured.
  backend::CapturedGraph step_graph();

  Tensor read(std::string_view name);
  void write(std::string_view name, const TensorView& value);
  LoadReport load(const NamedTensors& tensors, const LoadOptions& options);
  void reset();
  NamedTensors snapshot(const LoadOptions& which);
  TensorType type(std::string_view name);
  void* address(std::string_view name);

  const runtime::Compiled& compiled() const { return *compiled_; }
  const std::shared_ptr<const runtime::Compiled>& shared_compiled() const { return compiled_; }
  const std::shared_ptr<runtime::Store>& store() const { return store_; }
  runtime::Executable& executable() { return executable_; }
  Mode mode() const { return mode_; }
  void set_mode(Mode mode);  // takes effect at the next step

  // For verification: run eagerly in this order from now on (empty: plan order), and observe launches.
  void set_eager_order(std::vector<int> order) { order_ = std::move(order); }
  void set_observer(std::function<void(int)> observer) { observer_ = std::move(observer); }

 private:
  struct Input {
    std::string name;
    TensorType type;
    void* address;
    bool used;
    bool fed = false;  // since the program was made
  };
  struct Place {  // where a named external lives
    ir::Role role;
    TensorType type;
    void* address;
    runtime::External* external;  // null: an input
  };

  // REQUIRES the store's mutex, all of these.
  StepResult run(std::span<const Feed> feeds, const StepOptions& options);
  void attach_results();
  void require_inputs(const char* call) const;
  [[noreturn]] void throw_stale(const char* call, size_t by) const;
  void throw_on_fault();
  // Throws Error on a name pattern that selects nothing.
  void check_names(const char* call, const LoadOptions& options) const;
  Place place(std::string_view name) const;
  void check_feeds(std::span<const Feed> feeds, const StepOptions& options);
  bool makes_stale();
  // Copies into params and states, and refreshes what derives from them. Throws Error, with nothing changed, when an
  // index of a derived state would be out of range.
  struct Copy {
    runtime::External* to;
    const void* from;
  };
  void assign(std::span<const Copy> copies);

  std::shared_ptr<const runtime::Compiled> compiled_;
  std::shared_ptr<runtime::Store> store_;
  runtime::Executable executable_;
  std::atomic<Mode> mode_;
  std::vector<Input> inputs_;
  std::vector<char> fed_;  // scratch of check_feeds, one per input
  std::shared_ptr<runtime::ResultPool> results_;
  std::vector<Copy> copies_;                     // scratch of step
  std::vector<backend::StepFeed> sources_;       // likewise
  size_t joined_ = 0, seen_ = 0;                 // so many of the store's reconfigurations: at first, and by now
  size_t stale_by_ = runtime::External::kStays;  // the one that made it stale
  size_t known_refreshers_ = 0;
  bool makes_stale_ = false;  // a step of this program leaves stale what one of those derives
  bool attached_ = false;     // the pool has the runner
  // The attached data set.
  std::vector<runtime::Allocation> rows_;
  backend::Examples examples_;
  std::shared_ptr<const void> order_of_examples_;
  uint64_t batches_ = 0;
  std::vector<int> order_;
  std::function<void(int)> observer_;
};

}  // namespace aicf
