// The records, declared from ops.def, and the helpers that records share.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "aicf/ops.h"
#include "ir/op.h"

namespace aicf::ops {

#define AICF_POINTWISE(name, arity, domain) extern const ir::OpDef name##_def;
#define AICF_OP(name) extern const ir::OpDef name##_def;
#define AICF_COMPOSITE(name) extern const ir::OpDef name##_def;
#include "ops/ops.def"

// The numpy broadcast of two shapes. Returns false when they do not fit.
bool broadcast_shapes(const Shape& a, const Shape& b, Shape& out);

// Sums `x` down to `shape`, which broadcasts to x's: the one place where a gradient of a broadcast operand is formed.
Value sum_to_shape(Value x, const Shape& shape);

// Zeros of a type, in the graph of `like`.
Value zeros(Value like, const TensorType& type);
// A constant of every element `value` and this type, as a broadcast scalar.
Value filled(Value like, const TensorType& type, double value);

// The axis made non-negative. Throws Error naming the op when it is out of range.
int normalize_axis(const ir::OpDef& def, int64_t axis, int rank);

// True (bool[]) when every element of `index` is in [0, extent) or equals `ignore` when that is given.
Value in_range(Value index, int64_t extent, std::optional<int64_t> ignore = std::nullopt);

}  // namespace aicf::ops
