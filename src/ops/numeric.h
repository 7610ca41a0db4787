// Numeric helpers of gradient rules and composites: precision, rows, guards against infinities.
#pragma once

#include <span>

#include "aicf/value.h"
#include "ir/op.h"

namespace aicf::ops {

// f32 for the 16-bit floats, else the dtype itself: what sums, norms and losses are computed in.
DType wide(DType dtype);
Value widen(Value x);

// `x` itself when it has that shape.
Value reshaped(Value x, const Shape& shape);
// (…, C) as (rows, C). REQUIRES rank >= 1.
Value rows_of(Value x);

// The most negative finite value: everything below it is -inf.
double lowest(DType dtype);
// The smallest normal f32: a floor that keeps log and div finite and changes no sum of exponentials of a live row.
double smallest_normal();

// Operands and results once; `flops` for each element of operand 0.
ir::Cost cost_per_element(std::span<const TensorType> in, std::span<const TensorType> out, double flops);

}  // namespace aicf::ops
