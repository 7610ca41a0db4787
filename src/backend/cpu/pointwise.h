// Pointwise ops on a run of contiguous elements: the tiles from which the driver here, and any interpreter of fused
// regions, is made.
#pragma once

#include <cstddef>

#include "aicf/dtype.h"
#include "ir/op.h"

namespace aicf::backend::cpu {

// Elements of one tile: operands, result and temporaries of a tile stay in the first-level cache.
inline constexpr size_t kTileElements = 1024;

// A result this large is out of the cache before anything reads it: it is written past the cache, which saves reading
// its lines first.
inline constexpr size_t kStreamBytes = size_t{16} << 20;
// Of a part: large enough to hide its hand-over, small enough to balance two threads on a megabyte.
inline constexpr int64_t kPartElements = 32 * 1024;

// out[i] = op(in[0][i], in[1][i], …) for i < n, for any n and alignment. `out` may be one of the operands, exactly,
// when the element sizes agree. A bool is one byte, 0 or 1.
using TileFn = void (*)(const void* const* in, void* out, size_t n);

// The tile of a pointwise op on operands of `dtype` (of `select`: the type chosen from). Null when there is none: for
// `cast` (see find_cast), and for bf16 and f16, which compute_dtype() says to convert first.
// `scalars`: bit k set, in[k] is one element, the same for all i; null also where there is no such tile.
TileFn find_tile(const ir::OpDef& def, DType dtype, unsigned scalars = 0);

// The type in which an op on `dtype` is computed: f32 for bf16 and f16, except for `select`, which moves bits.
DType compute_dtype(const ir::OpDef& def, DType dtype);

// out[i] = in[0][i] converted. To a float rounds to nearest even, to an integer truncates and saturates (NaN gives 0;
// between integers it wraps), to bool is x != 0. Subnormals survive flush-to-zero. Never null.
TileFn find_cast(DType from, DType to);

// f32 to f32: what find_cast(f32, half) and back give. `half`: bf16 or f16.
TileFn find_round(DType half);
// f32 to f32: to the nearest tf32, ties to even.
TileFn find_round_to_tf32();

}  // namespace aicf::backend::cpu
