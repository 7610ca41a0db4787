// StepResult: reference-counted blocks that go back to their program's pool.
#include <utility>

#include "aicf/error.h"
#include "aicf/suggest.h"
#include "runtime/program.h"

namespace aicf {

namespace runtime {

ResultPool::ResultPool(backend::Backend& backend, std::vector<std::string> names, std::vector<TensorType> types)
    : backend_(backend), names_(std::move(names)), types_(std::move(types)) {
  std::vector<backend::Block> outputs;
  for (const TensorType& type : types_) outputs.push_back({nullptr, type.bytes()});
  layout_ = backend::host_layout(outputs);
}

void ResultPool::attach(std::shared_ptr<backend::StepRunner> runner,
                        std::function<std::string(const backend::InputFault&)> describe,
                        std::function<void()> on_fault) {
  const std::lock_guard<std::mutex> lock(mutex_);
  runner_ = std::move(runner);
  describe_ = std::move(describe);
  on_fault_ = std::move(on_fault);
  if (runner_->window() != UINT64_MAX) pending_.assign(runner_->window(), nullptr);
}

void ResultPool::detach() noexcept {
  const std::lock_guard<std::mutex> lock(mutex_);
  try {
    if (runner_ != nullptr) runner_->wait(0);  // blocks that nobody holds may still be written to
  } catch (const std::exception&) {
    // The device failed: each block below is told.
  }
  for (StepResult::Block* block : pending_) {
    if (block == nullptr) continue;
    try {
      collect(*block);
    } catch (const std::exception& e) {
      block->error = e.what();
      block->ready.store(true, std::memory_order_release);
    }
  }
  pending_.clear();
  runner_ = nullptr;
  describe_ = nullptr;
  on_fault_ = nullptr;
}

StepResult::Block* ResultPool::acquire() {
  const std::lock_guard<std::mutex> lock(mutex_);
  if (free_.empty()) {
    auto block = std::make_unique<StepResult::Block>();
    block->names = &names_;
    block->memory = HostMemory(backend_, layout_.bytes);
    for (size_t i = 0; i < types_.size(); ++i) {
      block->views.push_back({types_[i], static_cast<char*>(block->memory.data()) + layout_.offsets[i]});
    }
    blocks_.push_back(std::move(block));
    free_.reserve(blocks_.size());  // so that give_back never allocates
    free_.push_back(blocks_.back().get());
  }
  StepResult::Block* block = free_.back();
  free_.pop_back();
  block->references.store(1, std::memory_order_relaxed);
  block->pool = shared_from_this();
  block->step = 0;
  block->error.clear();
  block->ready.store(false, std::memory_order_relaxed);
  return block;
}

void ResultPool::make_room(uint64_t next) {
  const std::lock_guard<std::mutex> lock(mutex_);
  if (pending_.empty() || pending_[next % pending_.size()] == nullptr) return;
  // The older half, so that the device has steps to run meanwhile.
  for (StepResult::Block* block : pending_) {
    if (block != nullptr && block->step + pending_.size() <= next + pending_.size() / 2) collect(*block);
  }
}

void ResultPool::started(StepResult::Block* block, uint64_t step, bool ready) {
  const std::lock_guard<std::mutex> lock(mutex_);
  block->step = step;
  if (ready) {
    block->ready.store(true, std::memory_order_release);
  } else {
    pending_[step % pending_.size()] = block;
  }
}

void ResultPool::collect(StepResult::Block& block) {
  if (block.ready.load(std::memory_order_relaxed)) return;
  runner_->collect(block.step, block.memory.data());
  // Whoever completes a block looks: a failed step never yields a number.
  const backend::InputFault fault = runner_->fault();
  if (fault.code != 0 && fault.step <= block.step) block.error = describe_(fault);
  StepResult::Block*& slot = pending_[block.step % pending_.size()];
  if (slot == &block) slot = nullptr;
  block.ready.store(true, std::memory_order_release);
}

void ResultPool::complete(StepResult::Block* block) {
  if (!block->ready.load(std::memory_order_acquire)) {
    std::shared_ptr<backend::StepRunner> runner;
    std::function<void()> on_fault;
    {
      const std::lock_guard<std::mutex> lock(mutex_);
      runner = runner_;
      on_fault = on_fault_;
    }
    // Without the lock, so that nobody who wants another result waits for this one.
    if (runner != nullptr) {
      runner->wait(block->step);
      const backend::InputFault fault = runner->fault();
      if (fault.code != 0 && fault.step <= block->step && on_fault) on_fault();
    }
    const std::lock_guard<std::mutex> lock(mutex_);
    collect(*block);
  }
  if (!block->error.empty()) throw Error(block->error);
}

void ResultPool::fail(uint64_t first, uint64_t last, const std::string& message) {
  const std::lock_guard<std::mutex> lock(mutex_);
  for (const auto& block : blocks_) {
    const bool in_use = block->references.load(std::memory_order_relaxed) > 0;
    if (!in_use || block->step < first || block->step > last || block->ready.load(std::memory_order_relaxed)) continue;
    StepResult::Block*& slot = pending_[block->step % pending_.size()];
    if (slot == block.get()) slot = nullptr;
    block->error = message;
    block->ready.store(true, std::memory_order_release);
  }
}

void ResultPool::give_back(StepResult::Block* block) noexcept {
  // The block may hold the last reference to this pool: it goes when the lock is released.
  const std::shared_ptr<ResultPool> self = std::move(block->pool);
  const std::lock_guard<std::mutex> lock(mutex_);
  if (!pending_.empty()) {
    StepResult::Block*& slot = pending_[block->step % pending_.size()];
    if (slot == block) slot = nullptr;
  }
  free_.push_back(block);
}

}  // namespace runtime

StepResult::StepResult(const StepResult& other) noexcept : block_(other.block_) {
  if (block_ != nullptr) block_->references.fetch_add(1, std::memory_order_relaxed);
}

StepResult::StepResult(StepResult&& other) noexcept : block_(std::exchange(other.block_, nullptr)) {}

StepResult& StepResult::operator=(StepResult other) noexcept {
  std::swap(block_, other.block_);
  return *this;
}

StepResult::~StepResult() {
  if (block_ == nullptr || block_->references.fetch_sub(1, std::memory_order_acq_rel) != 1) return;
  runtime::ResultPool* pool = block_->pool.get();
  pool->give_back(block_);
}

TensorView StepResult::view(std::string_view name) const {
  if (block_ == nullptr) throw Error("an empty step result was read");
  const std::shared_ptr<runtime::ResultPool> pool = block_->pool;
  pool->complete(block_);
  const std::vector<std::string>& names = *block_->names;
  for (size_t i = 0; i < names.size(); ++i) {
    if (names[i] == name) return block_->views[i];
  }
  const std::string near = base::nearest(name, names);
  throw Error(
      "the step returned no '" + std::string(name) + "'",
      near.empty() ? "values are returned when listed in outputs or fetch at compile" : "did you mean '" + near + "'?");
}

Tensor StepResult::operator[](std::string_view name) const { return Tensor(view(name)); }

double StepResult::scalar(std::string_view name) const {
  const TensorView v = view(name);
  if (v.type.shape.elements() != 1) {
    throw Error("'" + std::string(name) + "' has type " + to_string(v.type) + ": expected one element");
  }
  return element_as_double(v.type.dtype, v.data, 0);
}

std::vector<std::string> StepResult::names() const {
  return block_ == nullptr ? std::vector<std::string>{} : *block_->names;
}

}  // namespace aicf
