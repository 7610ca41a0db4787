// The precision of ops that sum products (matmul, attention): attributes `compute` and `out`.
//
// The operands have one float dtype, or `compute` says what they are rounded to before they are multiplied: "tf32"
// (operands f32), "bf16" or "f16" (each operand f32 or that dtype). Sums are f32 (f64 of f64 operands) and are rounded
// once, to `out`: f32 or the 16-bit dtype multiplied in. Without `out`: the operands' dtype where they agree, else f32.
#pragma once

#include <span>
#include <string>

#include "ir/op.h"

namespace aicf::ops {

inline constexpr const char* kCompute = "compute";
inline constexpr const char* kOut = "out";

// The dtype of the result of these operands (of all, unless given). Throws Error on operands or attributes that do
// not fit.
DType result_dtype(const ir::InferCtx& ctx, std::span<const TensorType> operands);
inline DType result_dtype(const ir::InferCtx& ctx) { return result_dtype(ctx, ctx.in); }

// What the factors of an op are rounded to, as `compute` names it; "" where they are multiplied as they are, in f32 or
// f64.
std::string compute_of(const ir::Attrs& attrs, DType a, DType b);

// Sets both for operands of these dtypes. What goes without saying is left out, so that equal ops have equal text:
// `compute` of operands that have that dtype, and the default `out`.
void set_compute(ir::Attrs& attrs, std::span<const DType> operands, const std::string& compute, DType out);
inline void set_compute(ir::Attrs& attrs, DType a, DType b, const std::string& compute, DType out) {
  const DType both[] = {a, b};
  set_compute(attrs, both, compute, out);
}

}  // namespace aicf::ops
