// A step of several micro-batches: its graph of one, forward and backward, once for each of them, one after another.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "ir/graph.h"

namespace aicf::passes {

// A loss as a sum over its elements and what the sum is divided by: the mean of several batches is the sum of their
// sums by the sum of their counts, whatever each holds.
struct SummedLoss {
  ir::ValueId sum = ir::kNoValue;
  ir::ValueId count = ir::kNoValue;  // f32[]; kNoValue: the loss is a sum and is divided by nothing
  int64_t elements = 1;              // `count` is at most this
};

// Appends the sum and the count of the loss: of cross_entropy, mse, mean() and sum(), and multiples of them. Throws
// Error on another, and on one that depends on no input that is split. `shared`: as in micro_batches().
SummedLoss summed_loss(ir::Graph& graph, ir::ValueId loss, const std::vector<std::string>& shared);

// What is wanted of the micro-batches: before, a value of the graph of one; after, of that of all.
struct Wanted {
  std::string name;  // for messages
  ir::ValueId value = ir::kNoValue;
  enum class Kind : uint8_t {
    sum,     // over the micro-batches, in their order
    rows,    // one after another along axis 0; what is the same in all of them, as it is
    pieces,  // one after another in any case
  } kind = Kind::sum;
};

// The graph of `count` micro-batches, without outputs. An input of (n, …) becomes one of (count·n, …), of which each
// micro-batch reads its n rows, but for those named in `shared`, which all of them read whole. Draws differ from one to
// the next. A state that is updated from the inputs goes from one to the next: each sees what the one before made of
// it. What depends on none of these is computed once. Throws Error on an input without an axis to split, and on rows of
// what has none.
ir::Graph micro_batches(const ir::Graph& graph, int64_t count, const std::vector<std::string>& shared,
                        std::vector<Wanted>& wanted);

}  // namespace aicf::passes
