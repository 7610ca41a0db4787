// The tables behind find_tile and find_cast, one function per implementation file.
#pragma once

#include <cstdint>

#include "backend/cpu/pointwise.h"
#include "backend/cpu/pointwise_chain.h"

namespace aicf::backend::cpu {

// The pointwise ops of ops.def, in its order.
enum class Pointwise : uint8_t {
#define AICF_POINTWISE(name, arity, domain) name,
#include "ops/ops.def"
};

// Null where the op has no instance of the type, or none that takes those operands as scalars.
TileFn find_f32_tile(Pointwise op, unsigned scalars = 0);
TileFn find_scalar_tile(Pointwise op, DType dtype, unsigned scalars = 0);
// Null where the op has no link of that form.
Link::Fn find_f32_link(Pointwise op, LinkForm form);
// The casts with a vector form; null for the others.
TileFn find_f32_cast(DType from, DType to);
TileFn find_scalar_cast(DType from, DType to);

}  // namespace aicf::backend::cpu
