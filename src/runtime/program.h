// Program::Impl: an executable, the store it shares, and the pool of result blocks.
#pragma once

#include <atomic>
#include <memory>
#include <mutex>
#include <string>
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
  std::vector<Tensor> tensors;
};

namespace runtime {

class ResultPool : public std::enable_shared_from_this<ResultPool> {
 public:
  ResultPool(std::vector<std::string> names, std::vector<TensorType> types);
  // A block with one reference. Allocates only when every block is in use.
  StepResult::Block* acquire();
  void give_back(StepResult::Block* block) noexcept;
  const std::vector<std::string>& names() const { return names_; }

 private:
  const std::vector<std::string> names_;
  const std::vector<TensorType> types_;
  std::mutex mutex_;
  std::vector<std::unique_ptr<StepResult::Block>> blocks_;
  std::vector<StepResult::Block*> free_;
};

}  // namespace runtime

class Program::Impl {
 public:
  Impl(std::shared_ptr<const runtime::Compiled> compiled, std::shared_ptr<runtime::Store> store, Mode mode,
       int threads);

  StepResult step(std::span<const Feed> feeds, StepMode mode);
  StepResult repeat();
  void wait();

  Tensor read(std::string_view name);
  void write(std::string_view name, const TensorView& value);
  void load(const NamedTensors& tensors, const LoadOptions& options);
  void reset();
  NamedTensors snapshot(const LoadOptions& which);
  TensorType type(std::string_view name);

  const runtime::Compiled& compiled() const { return *compiled_; }
  const std::shared_ptr<const runtime::Compiled>& shared_compiled() const { return compiled_; }
  const std::shared_ptr<runtime::Store>& store() const { return store_; }
  runtime::Executable& executable() { return executable_; }
  Mode mode() const { return mode_; }
  void set_mode(Mode mode) { mode_ = mode; }  // takes effect at the next step

  // For verification: run eagerly in this order from now on (empty: plan order), and observe launches.
  void set_eager_order(std::vector<int> order) { order_ = std::move(order); }
  void set_observer(std::function<void(int)> observer) { observer_ = std::move(observer); }

 private:
  struct Input {
    std::string name;
    TensorType type;
    void* address;
    bool used;
    bool fed = false;  // once
  };
  struct Place {  // where a named external lives
    ir::Role role;
    TensorType type;
    void* address;
    runtime::External* external;  // null: an input
  };

  Place place(std::string_view name) const;
  void check_feeds(std::span<const Feed> feeds, StepMode mode);
  bool makes_stale();
  StepResult run(std::span<const Feed> feeds);
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
  std::vector<const void*> output_addresses_;
  std::shared_ptr<runtime::ResultPool> results_;
  std::vector<Copy> copies_;  // scratch of step
  size_t known_refreshers_ = 0;
  bool makes_stale_ = false;  // a step of this program leaves stale what one of those derives
  std::vector<int> order_;
  std::function<void(int)> observer_;
};

}  // namespace aicf
