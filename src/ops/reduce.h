// The geometry of a reduction, in ops and kernels alike.
#pragma once

#include "aicf/shape.h"
#include "ir/attrs.h"

namespace aicf::ops {

// The operand is (outer, n, inner), reduced over n.
struct ReduceDims {
  int64_t outer = 1, n = 1, inner = 1;
};
// By the attribute `axes`, or `axis` of argmax.
ReduceDims reduce_dims(const Shape& x, const ir::Attrs& attrs);

}  // namespace aicf::ops
