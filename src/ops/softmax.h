// What softmax, log_softmax and cross_entropy compute of a row, safe for -inf.
#pragma once

#include <vector>

#include "aicf/value.h"
#include "ir/op.h"

namespace aicf::ops {

// Along one axis, which is kept as 1. A row of -inf is shifted by the lowest finite value, so that no -inf minus -inf
// occurs: its exponentials are 0.
struct Exponentials {
  Value top;      // the largest element
  Value shifted;  // x - top: at most 0
  Value exps;     // exp(shifted)
  Value total;    // the sum of exps: at least 1 but for a row of -inf, where it is 0
};
// REQUIRES: x is f32 or f64, and the axis is not empty.
Exponentials exponentials(Value x, int axis);

// What the elements of a row with this top are shifted by.
Value at_least_lowest(Value top);

// exps · (1 / total), 0 in a row of -inf.
Value probabilities(const Exponentials& row);
// log(total), finite in a row of -inf too.
Value log_total(const Exponentials& row);

// Whether an element, or the top of a row, is -inf.
Value is_minus_infinity(Value x);

// The shape rule and samples of an op on the rows along `axis`.
std::vector<TensorType> infer_along_axis(const ir::InferCtx& ctx);
std::vector<ir::Sample> samples_along_axis();

}  // namespace aicf::ops
