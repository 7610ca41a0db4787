// Batches in a seeded order, prepared ahead by one thread into a ring of buffers made once.
#include <fmt/format.h>

#include <condition_variable>
#include <cstring>
#include <exception>
#include <mutex>
#include <system_error>
#include <thread>

#include "aicf/data.h"
#include "aicf/error.h"
#include "io/batch_order.h"

namespace aicf {

namespace {

struct Slot {
  std::vector<Tensor> tensors;
  Batch batch;
  LoaderState next;  // the state once this batch is handed out
};

void check(const Dataset& data, const LoaderOptions& options) {
  if (options.batch < 1) throw Error(fmt::format("Loader: expected a batch of at least 1, got {}", options.batch));
  if (options.prefetch < 1)
    throw Error(fmt::format("Loader: expected a prefetch of at least 1, got {}", options.prefetch));
  const int64_t needed = options.drop_last ? options.batch : 1;
  if (data.size() < needed) {
    throw Error(fmt::format("Loader: expected a data set of at least {} examples, got {}", needed, data.size()),
                options.drop_last ? "a smaller batch, or drop_last = false" : "");
  }
}

}  // namespace

class Loader::Impl {
 public:
  Impl(Dataset data, LoaderOptions options)
      : data_(std::move(data)), options_(std::move(options)), slots_(static_cast<size_t>(options_.prefetch) + 1) {
    for (Slot& slot : slots_) {
      slot.tensors.reserve(data_.tensors().size());
      for (const auto& [name, source] : data_.tensors()) {
        std::vector<int64_t> dims(source.shape().begin(), source.shape().end());
        dims[0] = options_.batch;
        slot.tensors.emplace_back(TensorType{source.dtype(), Shape(dims)});
        slot.batch.feeds.push_back({name, slot.tensors.back()});
      }
    }
    order_.resize(static_cast<size_t>(data_.size()));
    start({options_.seed, 0, 0});
  }

  ~Impl() { stop(); }

  const Batch& next() {
    std::unique_lock lock(mutex_);
    held_ = false;
    freed_.notify_one();
    filled_.wait(lock, [&] { return ready_ > 0 || error_; });
    if (ready_ == 0) std::rethrow_exception(error_);
    const Slot& slot = slots_[head_];
    head_ = (head_ + 1) % slots_.size();
    --ready_;
    held_ = true;
    state_ = slot.next;
    return slot.batch;
  }

  int64_t batches_per_epoch() const {
    return (options_.drop_last ? data_.size() : data_.size() + options_.batch - 1) / options_.batch;
  }

  int64_t examples() const { return data_.size(); }

  const LoaderState& state() const { return state_; }

  void set_state(const LoaderState& state) {
    io::check_state(state, data_.size());
    stop();
    start(state);
  }

 private:
  LoaderState normal(const LoaderState& state) const { return io::normal(state, data_.size(), options_); }

  void start(const LoaderState& state) {
    state_ = normal(state);
    head_ = ready_ = 0;
    held_ = stopping_ = false;
    error_ = nullptr;
    try {
      thread_ = std::thread([this, first = state_] { run(first); });
    } catch (const std::system_error& e) {
      throw Error(fmt::format("Loader: cannot start its thread: {}", e.what()));
    }
  }

  void stop() {
    {
      std::lock_guard lock(mutex_);
      stopping_ = true;
    }
    freed_.notify_one();
    if (thread_.joinable()) thread_.join();
  }

  void run(LoaderState at) {
    try {
      set_order(at);
      for (size_t tail = 0;; tail = (tail + 1) % slots_.size()) {
        {
          std::unique_lock lock(mutex_);
          freed_.wait(lock, [&] { return stopping_ || ready_ + (held_ ? 1 : 0) < slots_.size(); });
          if (stopping_) return;
        }
        fill(slots_[tail], at);
        if (slots_[tail].next.epoch != at.epoch) set_order(slots_[tail].next);
        at = slots_[tail].next;
        {
          std::lock_guard lock(mutex_);
          ++ready_;
        }
        filled_.notify_one();
      }
    } catch (...) {
      {
        std::lock_guard lock(mutex_);
        error_ = std::current_exception();
      }
      filled_.notify_one();
    }
  }

  void set_order(const LoaderState& at) { io::set_order(order_, options_, at); }

  void fill(Slot& slot, const LoaderState& at) {
    Batch& batch = slot.batch;
    batch.at = at;
    batch.count = std::min(options_.batch, data_.size() - at.position);
    for (size_t t = 0; t < slot.tensors.size(); ++t) {
      const auto* from = static_cast<const std::byte*>(data_.tensors()[t].second.data());
      auto* to = static_cast<std::byte*>(slot.tensors[t].data());
      const size_t row = slot.tensors[t].bytes() / static_cast<size_t>(options_.batch);
      for (int64_t i = 0; row > 0 && i < options_.batch; ++i) {
        const int64_t example = i < batch.count ? order_[static_cast<size_t>(at.position + i)] : 0;
        std::memcpy(to + static_cast<size_t>(i) * row, from + static_cast<size_t>(example) * row, row);
      }
    }
    if (options_.transform) options_.transform(at, slot.tensors);
    slot.next = normal({at.seed, at.epoch, at.position + batch.count});
    batch.last = slot.next.epoch != at.epoch;
  }

  const Dataset data_;
  const LoaderOptions options_;
  LoaderState state_;           // the consumer's
  std::vector<int64_t> order_;  // the thread's
  std::vector<Slot> slots_;     // those filled are the consumer's, the others the thread's

  std::mutex mutex_;
  std::condition_variable filled_, freed_;
  // Guarded by mutex_. The slots filled begin at head_; the one before it is the consumer's while held_.
  size_t head_ = 0;
  size_t ready_ = 0;
  bool held_ = false;
  bool stopping_ = false;
  std::exception_ptr error_;

  std::thread thread_;
};

Loader::Loader(Dataset data, LoaderOptions options) {
  check(data, options);
  impl_ = std::make_unique<Impl>(std::move(data), std::move(options));
}
Loader::~Loader() = default;
Loader::Loader(Loader&&) noexcept = default;
Loader& Loader::operator=(Loader&&) noexcept = default;

const Batch& Loader::next() { return impl_->next(); }
int64_t Loader::batches_per_epoch() const { return impl_->batches_per_epoch(); }
int64_t Loader::examples() const { return impl_->examples(); }
LoaderState Loader::state() const { return impl_->state(); }
void Loader::set_state(const LoaderState& state) { impl_->set_state(state); }

}  // namespace aicf
