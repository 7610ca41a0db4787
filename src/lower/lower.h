// Lowering: picks a kernel variant for every op.
#pragma once

#include <span>
#include <vector>

#include "backend/api.h"
#include "ir/graph.h"

namespace aicf::lower {

// One prepared kernel per op, by op id. Throws Error naming the op and its types when no kernel accepts it.
std::vector<backend::PreparedKernel> lower(const ir::Graph& graph, std::span<const backend::Kernel> kernels);

}  // namespace aicf::lower
