// StepResult: reference-counted blocks that go back to their program's pool.
#include <utility>

#include "aicf/error.h"
#include "aicf/suggest.h"
#include "runtime/program.h"

namespace aicf {

namespace runtime {

ResultPool::ResultPool(std::vector<std::string> names, std::vector<TensorType> types)
    : names_(std::move(names)), types_(std::move(types)) {}

StepResult::Block* ResultPool::acquire() {
  const std::lock_guard<std::mutex> lock(mutex_);
  if (free_.empty()) {
    auto block = std::make_unique<StepResult::Block>();
    block->names = &names_;
    for (const TensorType& type : types_) block->tensors.emplace_back(type);
    blocks_.push_back(std::move(block));
    free_.reserve(blocks_.size());  // so that give_back never allocates
    free_.push_back(blocks_.back().get());
  }
  StepResult::Block* block = free_.back();
  free_.pop_back();
  block->references.store(1, std::memory_order_relaxed);
  block->pool = shared_from_this();
  return block;
}

void ResultPool::give_back(StepResult::Block* block) noexcept {
  // The block may hold the last reference to this pool: it goes when the lock is released.
  const std::shared_ptr<ResultPool> self = std::move(block->pool);
  const std::lock_guard<std::mutex> lock(mutex_);
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
  const std::vector<std::string>& names = *block_->names;
  for (size_t i = 0; i < names.size(); ++i) {
    if (names[i] == name) return block_->tensors[i];
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
