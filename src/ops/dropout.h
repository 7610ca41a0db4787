// What ops that drop elements share: the mask, and what it makes of a value. The gradient of an op asks for the mask of
// its forward by the same attributes, and so has the same.
#pragma once

#include "aicf/value.h"
#include "ir/op.h"

namespace aicf::ops {

// The share that is dropped (attribute `p`). Of a shape rule: throws Error unless it is in [0, 1).
void check_share(const ir::InferCtx& ctx);

// bool of this shape, true with probability 1 - p: drawn by the op's attributes `p` and `ordinal`.
Value kept_elements(Value seed, Value offset, const Shape& shape, const ir::Attrs& attrs);
// x / (1 - p) where it is kept, computed in f32 or better and rounded once; else 0, whatever x is.
Value with_dropped(Value x, Value kept, const ir::Attrs& attrs);

}  // namespace aicf::ops
