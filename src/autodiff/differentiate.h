// Reverse-mode differentiation of a graph, onto itself.
#pragma once

#include <optional>
#include <vector>

#include "ir/graph.h"

namespace aicf::autodiff {

// Appends the backward of `loss` to `graph` and returns one gradient per value in `wrt`, absent where no path leads
// from it to the loss. Composites without a gradient rule must have been expanded. `cotangent` is the loss's (of its
// type). Cotangents of one value are summed; an output nobody uses counts as zero. Gradients of externals are labelled
// KEY.grad. Throws Error naming the op and the path (value by value) when an op on the way is not differentiable.
std::vector<std::optional<ir::ValueId>> differentiate(ir::Graph& graph, ir::ValueId loss, ir::ValueId cotangent,
                                                      const std::vector<ir::ValueId>& wrt);

}  // namespace aicf::autodiff
