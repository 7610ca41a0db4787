// What the shape rules of the structural ops share: the form of their errors and the reading of their attributes.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "ir/op.h"

namespace aicf::ops {

// "op(types): expected E, got G".
Error mismatch(const ir::InferCtx& ctx, const std::string& expected, const std::string& got,
               const std::string& hint = {});

// "[1,2]"
std::string list_text(const std::vector<int64_t>& values);

// The attribute as a shape. Throws Error on a negative extent or too many of them.
Shape shape_attr(const ir::InferCtx& ctx, const char* name);
// The attribute as one non-negative number per axis of a tensor of this rank.
std::vector<int64_t> extents_attr(const ir::InferCtx& ctx, const char* name, int rank);
// The attribute as an axis, which a record holds non-negative: 0 <= axis < rank.
int axis_attr(const ir::InferCtx& ctx, int rank);

std::vector<int64_t> to_vector(const Shape& shape);
Shape to_shape(const std::vector<int64_t>& dims);
// The shape with one extent replaced.
Shape with_dim(const Shape& shape, int axis, int64_t extent);

// Product of the extents of axes begin … end-1.
int64_t product(const Shape& shape, int begin, int end);

// All dtypes: what an op that only moves elements runs on.
const std::vector<DType>& all_dtypes();

}  // namespace aicf::ops
