// What the record of a pointwise op is made of, one of each for every row of ops.def.
#pragma once

#include <vector>

#include "ir/op.h"

namespace aicf::ops {

#define AICF_POINTWISE(name, arity, domain)       \
  ir::GradResult grad_##name(const ir::GradCtx&); \
  std::vector<ir::Sample> samples_##name();
#include "ops/ops.def"

}  // namespace aicf::ops
