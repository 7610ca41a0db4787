// The geometry that gather and scatter_add share, in ops and kernels alike.
#pragma once

#include "ir/op.h"

namespace aicf::ops {

// x is (batch, outer, extent, inner), index (batch, picks), and the picked elements (batch, outer, picks, inner).
struct GatherDims {
  int64_t batch = 1, outer = 1, extent = 1, inner = 1, picks = 1;
};
GatherDims gather_dims(const Shape& x, const Shape& index, const ir::Attrs& attrs);

// The shape of what is picked. Throws Error when the operands do not fit.
Shape gathered_shape(const ir::InferCtx& ctx, const TensorType& x, const TensorType& index);

// The extent an index is held against: that of operand 0's axis.
int64_t gather_extent(std::span<const TensorType> in, const ir::Attrs& attrs);

// axis and, when it is not 0, batch_dims.
ir::Attrs gather_attrs(const ir::OpDef& def, const Shape& x, int axis, int batch_dims);

}  // namespace aicf::ops
