// Inlining of an op's region.
#pragma once

#include <vector>

#include "ir/graph.h"

namespace aicf::ops {

// Appends the region's ops to `graph`, its inputs in order being `inputs`; returns its outputs in order. Constants are
// copied, labels are not. Throws InternalError when the inputs are not the region's in number and type.
std::vector<Value> inline_region(const ir::Graph& region, ir::Graph& graph, const std::vector<Value>& inputs);

}  // namespace aicf::ops
