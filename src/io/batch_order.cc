#include "io/batch_order.h"

#include <fmt/format.h>

#include <limits>
#include <numeric>

#include "aicf/error.h"
#include "io/shuffle.h"

namespace aicf::io {

void set_order(std::vector<int64_t>& order, const LoaderOptions& options, const LoaderState& at) {
  std::iota(order.begin(), order.end(), int64_t{0});
  if (options.shuffle) shuffle(order, at.seed, at.epoch);
}

LoaderState normal(const LoaderState& at, int64_t examples, const LoaderOptions& options) {
  const int64_t left = examples - at.position;
  return left >= (options.drop_last ? options.batch : 1) ? at : LoaderState{at.seed, at.epoch + 1, 0};
}

void check_state(const LoaderState& at, int64_t examples) {
  constexpr int64_t kMaxEpoch = int64_t{1} << 62;
  if (at.epoch < 0 || at.epoch > kMaxEpoch || at.position < 0 || at.position > examples) {
    throw Error(fmt::format("Loader: expected an epoch from 0 to 2^62 and a position from 0 to {}, got {} and {}",
                            examples, at.epoch, at.position));
  }
}

BatchOrder::BatchOrder(int64_t examples, const LoaderOptions& options, const LoaderState& first)
    : examples_(examples), options_(options) {
  if (!options.drop_last) throw Error("a data set on the device: expected drop_last, so that every batch is whole");
  if (options.batch < 1) throw Error(fmt::format("expected a batch of at least 1, got {}", options.batch));
  if (examples < options.batch || examples > std::numeric_limits<int32_t>::max()) {
    throw Error(
        fmt::format("a data set on the device: expected {} to 2^31 - 1 examples, got {}", options.batch, examples));
  }
  check_state(first, examples);
  first_ = at_ = normal(first, examples_, options_);
  order_.resize(static_cast<size_t>(examples_));
  set_order(order_, options_, at_);
}

void BatchOrder::next(int32_t* to) {
  for (int64_t i = 0; i < options_.batch; ++i) {
    to[i] = static_cast<int32_t>(order_[static_cast<size_t>(at_.position + i)]);
  }
  const LoaderState next = normal({at_.seed, at_.epoch, at_.position + options_.batch}, examples_, options_);
  if (next.epoch != at_.epoch) set_order(order_, options_, next);
  at_ = next;
}

LoaderState BatchOrder::after(uint64_t batches) const {
  const auto of_epoch = static_cast<uint64_t>(examples_ / options_.batch);
  const auto of_first = static_cast<uint64_t>((examples_ - first_.position) / options_.batch);
  if (batches < of_first) {
    return {first_.seed, first_.epoch, first_.position + static_cast<int64_t>(batches) * options_.batch};
  }
  const uint64_t left = batches - of_first;
  return {first_.seed, first_.epoch + 1 + static_cast<int64_t>(left / of_epoch),
          static_cast<int64_t>(left % of_epoch) * options_.batch};
}

}  // namespace aicf::io
