// Ops on constants, computed at compile time.
#pragma once

#include <span>
#include <vector>

#include "aicf/tensor.h"
#include "ir/graph.h"

namespace aicf::lower {

// The results of an op without a body, by the CPU's kernels on one thread, which flush subnormals as in a step. Throws
// Error when no kernel accepts it.
std::vector<Tensor> evaluate_on_cpu(const ir::OpDef& def, const ir::Attrs& attrs,
                                    std::span<const Tensor* const> operands);

}  // namespace aicf::lower
