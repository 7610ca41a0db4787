// What the losses share: how a loss is reduced, and the dtype it has.
#pragma once

#include <string>

#include "aicf/ops.h"
#include "ir/op.h"

namespace aicf::ops {

// The attribute `reduction`: "none", "sum" or "mean".
std::string reduction_name(Reduction reduction);
// Throws Error when the attribute is none of these.
Reduction reduction_of(const ir::InferCtx& ctx);
Reduction reduction_of(const ir::Op& op);

}  // namespace aicf::ops
