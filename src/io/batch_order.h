// Which examples are in which batch: a function of the data set's size, the options and a state alone.
#pragma once

#include <cstdint>
#include <vector>

#include "aicf/data.h"

namespace aicf::io {

// The examples of an epoch, in its order.
void set_order(std::vector<int64_t>& order, const LoaderOptions& options, const LoaderState& at);
// The state itself, or the start of the next epoch when no batch is left in this one.
LoaderState normal(const LoaderState& at, int64_t examples, const LoaderOptions& options);
// Throws Error when the state is none of a data set of so many examples.
void check_state(const LoaderState& at, int64_t examples);

// Whole batches, one after another without end.
class BatchOrder {
 public:
  // Throws Error as Loader does, and on drop_last = false or more examples than an i32 counts.
  BatchOrder(int64_t examples, const LoaderOptions& options, const LoaderState& first);

  // Writes the examples of the next batch.
  void next(int32_t* to);
  // The state after so many batches from the first.
  LoaderState after(uint64_t batches) const;
  int64_t examples() const { return examples_; }
  const LoaderOptions& options() const { return options_; }

 private:
  int64_t examples_;
  LoaderOptions options_;
  LoaderState first_, at_;
  std::vector<int64_t> order_;  // of the epoch of at_
};

}  // namespace aicf::io
