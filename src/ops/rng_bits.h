// Random draws in a graph: the states they are keyed by, and the op that makes them.
#pragma once

#include <span>

#include "aicf/value.h"
#include "ir/op.h"

namespace aicf::ops {

inline constexpr const char* kRngSeed = "rng.seed";
inline constexpr const char* kRngOffset = "rng.offset";

struct RngStates {
  Value seed;    // the model's seed, unless declared otherwise
  Value offset;  // 0 at first; each training step adds 1 (api/stages.cc)
};

// Declares them on first use. Throws Error when the graph has something else of these names.
RngStates rng_states(ir::Graph& graph);

// The number of the next op that draws in this graph: more than that of any other, so that no two share their draws.
// Throws Error when none is left.
int64_t next_ordinal(const ir::Graph& graph);

// Of a shape rule: throws Error unless `keys` are seed and offset, the attribute `ordinal` is one, and the shape is not
// beyond what a stream has words for.
void check_draws(const ir::InferCtx& ctx, std::span<const TensorType> keys, const Shape& shape);

// i32 of this shape, every value equally likely. The words of a base::PhiloxStream: element e is word e % 4 of block e
// / 4.
Value rng_bits(Value seed, Value offset, const Shape& shape, int64_t ordinal);

}  // namespace aicf::ops
