// What the norms over the last axis share. They work on (rows, C), forward and backward alike, so that [2,3,4] and
// [6,4] are one computation and give the same bits.
#pragma once

#include <vector>

#include "aicf/value.h"
#include "ir/op.h"

namespace aicf::ops {

// Operand 0 is (…, C), floats, C >= 1; the others are (C) of its dtype; eps is not negative.
std::vector<TensorType> infer_norm(const ir::InferCtx& ctx);

// The mean of each row of (rows, C), as (rows, 1).
Value row_mean(Value rows);
// 1 / sqrt(mean(rows²) + eps), as (rows, 1).
Value inverse_rms(Value rows, double eps);
// The gradient of a (C) operand from the (rows, C) one of its broadcast.
Value sum_of_rows(Value rows, const TensorType& type);
// (rows, C) back in the shape and dtype of operand 0.
Value from_rows(Value rows, const TensorType& type);

// Shapes common to the norms, with `params` operands of shape (C).
std::vector<ir::Sample> samples_norm(int params, double eps);

}  // namespace aicf::ops
