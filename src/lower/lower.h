// Lowering: picks a kernel variant for every op.
#pragma once

#include <span>
#include <vector>

#include "backend/api.h"
#include "ir/graph.h"
#include "plan/plan.h"

namespace aicf::lower {

// One prepared kernel per op, by op id. Throws Error naming the op and its types when no kernel accepts it.
std::vector<backend::PreparedKernel> lower(const ir::Graph& graph, std::span<const backend::Kernel> kernels,
                                           const backend::Tuning& tuning = {});

// Gives the plan's copies their kernels, and links all of its launches. Throws Error naming the op whose kernel does
// not compile.
void link(plan::ExecPlan& plan, backend::Backend& backend);

}  // namespace aicf::lower
