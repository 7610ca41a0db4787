// The driver of every pointwise op: walks the result in tiles, expanding operands that broadcast and converting 16-bit
// floats on the way. Allocates nothing.
#include "backend/cpu/pointwise.h"

#include <emmintrin.h>

#include <algorithm>
#include <cstring>
#include <optional>
#include <string_view>

#include "backend/cpu/broadcast_map.h"
#include "backend/cpu/kernels.h"
#include "backend/cpu/pointwise_tables.h"

namespace aicf::backend::cpu {
namespace {

constexpr int kMaxArity = 3;
constexpr size_t kMaxElementBytes = 8;
// A repeated row of up to a tile is expanded once a part, so that it can be read from any phase.
constexpr size_t kBufferElements = 2 * kTileElements;

std::optional<Pointwise> pointwise_of(std::string_view name) {
#define AICF_POINTWISE(op, arity, domain) \
  if (name == #op) return Pointwise::op;
#include "ops/ops.def"
  return std::nullopt;
}

struct Operand {
  BroadcastMap map;
  size_t size = 0;         // bytes of an element
  TileFn widen = nullptr;  // 16-bit floats to f32
};

struct Params {
  TileFn tile = nullptr;
  TileFn narrow = nullptr;  // f32 results to 16 bits
  int arity = 0;
  int64_t elements = 0;
  size_t out_size = 0;
  bool stream = false;
  Operand in[kMaxArity];
};

struct Buffers {
  alignas(64) char raw[kMaxArity][kBufferElements * kMaxElementBytes];
  alignas(64) float wide[kMaxArity][kBufferElements];
};

const void* widened(const Operand& operand, const void* data, float* wide, size_t n) {
  if (!operand.widen) return data;
  operand.widen(&data, wide, n);
  return wide;
}

// What a scalar or a short repeated row looks like to every tile of a part of `count` elements; null for other
// operands.
const void* expand_once(const Operand& operand, const void* data, void* raw, float* wide, int64_t count) {
  if (!operand.map.repeats_within(kTileElements)) return nullptr;
  const size_t n = static_cast<size_t>(std::min<int64_t>(count, kTileElements) + operand.map.period() - 1);
  operand.map.expand(data, operand.size, raw, 0, n);
  return widened(operand, raw, wide, n);
}

// Elements [begin, begin + n) of an operand, broadcast.
const void* operand_tile(const Operand& operand, const void* data, void* raw, float* wide, int64_t begin, size_t n) {
  const void* run = operand.map.contiguous(data, operand.size, begin, n);
  if (!run) {
    operand.map.expand(data, operand.size, raw, begin, n);
    run = raw;
  }
  return widened(operand, run, wide, n);
}

// What a tile reads from memory next.
struct Ahead {
  const char* at[kMaxArity];
  size_t bytes[kMaxArity];
  int count = 0;
};

// To 16-byte aligned memory, past the cache. Reads what is ahead at the same time, so that neither waits for the other.
void stream(const void* from, char* to, size_t bytes, const Ahead& ahead) {
  constexpr size_t kLine = 64;
  const char* x = static_cast<const char*>(from);
  size_t i = 0;
  for (; i + kLine <= bytes; i += kLine) {
    for (int k = 0; k < ahead.count; ++k) {
      if (i < ahead.bytes[k]) _mm_prefetch(ahead.at[k] + i, _MM_HINT_T0);
    }
    for (size_t j = i; j < i + kLine; j += 16) {
      _mm_stream_si128(reinterpret_cast<__m128i*>(to + j), _mm_load_si128(reinterpret_cast<const __m128i*>(x + j)));
    }
  }
  for (; i + 16 <= bytes; i += 16) {
    _mm_stream_si128(reinterpret_cast<__m128i*>(to + i), _mm_load_si128(reinterpret_cast<const __m128i*>(x + i)));
  }
  std::memcpy(to + i, x + i, bytes - i);
}

// Operands that the result replaces are in the cache.
bool in_place(const KernelArgs& args, int arity) {
  return std::find(args.buffers, args.buffers + arity, args.buffers[arity]) != args.buffers + arity;
}

void run_part(const KernelArgs& args, int part, int parts) {
  const Params& p = *static_cast<const Params*>(args.params);
  const int64_t tiles = (p.elements + kTileElements - 1) / kTileElements;
  const int64_t first = tiles * part / parts * kTileElements;
  const int64_t last = std::min<int64_t>(tiles * (part + 1) / parts * kTileElements, p.elements);
  Buffers buffers;
  alignas(64) char result[kTileElements * kMaxElementBytes], narrowed[kTileElements * sizeof(uint16_t)];
  char* const y = static_cast<char*>(args.buffers[p.arity]);
  const bool past_cache = p.stream && !in_place(args, p.arity) && reinterpret_cast<uintptr_t>(y) % 16 == 0;
  const void* fixed[kMaxArity];
  for (int k = 0; k < p.arity; ++k) {
    fixed[k] = expand_once(p.in[k], args.buffers[k], buffers.raw[k], buffers.wide[k], last - first);
  }
  for (int64_t begin = first; begin < last; begin += kTileElements) {
    const size_t n = static_cast<size_t>(std::min<int64_t>(kTileElements, last - begin));
    const void* in[kMaxArity];
    Ahead ahead;
    for (int k = 0; k < p.arity; ++k) {
      const Operand& operand = p.in[k];
      if (past_cache && !fixed[k] && operand.map.is_dense()) {
        ahead.at[ahead.count] = static_cast<const char*>(args.buffers[k]) + (begin + kTileElements) * operand.size;
        ahead.bytes[ahead.count++] = n * operand.size;
      }
      const size_t size = operand.widen ? sizeof(float) : operand.size;
      in[k] = fixed[k] ? static_cast<const char*>(fixed[k]) + begin % operand.map.period() * size
                       : operand_tile(operand, args.buffers[k], buffers.raw[k], buffers.wide[k], begin, n);
    }
    char* const to = y + begin * p.out_size;
    char* const out = !past_cache ? to : p.narrow ? narrowed : result;
    p.tile(in, p.narrow ? result : out, n);
    const void* wide = result;
    if (p.narrow) p.narrow(&wide, out, n);
    if (past_cache) stream(out, to, n * p.out_size, ahead);
  }
  if (past_cache) _mm_sfence();
}

// The dtype that decides the instance: the last operand's (the first of `select` is its condition).
DType operand_dtype(const KernelQuery& query) { return query.in.back().dtype; }

TileFn tile_of(const KernelQuery& query) {
  const DType dtype = operand_dtype(query);
  if (pointwise_of(query.def.name) == Pointwise::cast) return find_cast(dtype, query.out[0].dtype);
  return find_tile(query.def, compute_dtype(query.def, dtype));
}

bool accepts(const KernelQuery& query) { return tile_of(query) != nullptr; }

PreparedKernel prepare(const KernelQuery& query) {
  PreparedKernel kernel;
  kernel.variant = "tiles";
  auto params = std::make_shared<Params>();
  params->tile = tile_of(query);
  params->arity = static_cast<int>(query.in.size());
  params->elements = query.out[0].shape.elements();
  params->out_size = size_of(query.out[0].dtype);
  params->stream = query.out[0].bytes() >= kStreamBytes;
  const bool cast = pointwise_of(query.def.name) == Pointwise::cast;
  const DType dtype = operand_dtype(query);
  const DType compute = cast ? dtype : compute_dtype(query.def, dtype);
  for (int k = 0; k < params->arity; ++k) {
    Operand& operand = params->in[k];
    operand.map = BroadcastMap(query.in[k].shape, query.out[0].shape);
    operand.size = size_of(query.in[k].dtype);
    if (compute != dtype) operand.widen = find_cast(dtype, compute);
  }
  if (compute != dtype && query.out[0].dtype == dtype) params->narrow = find_cast(compute, dtype);
  if (params->elements > 0) {
    const int64_t parts = (params->elements + kPartElements - 1) / kPartElements;
    kernel.phases.push_back({run_part, static_cast<int>(std::min<int64_t>(parts, 1 << 20))});
  }
  kernel.params = std::move(params);
  return kernel;
}

}  // namespace

DType compute_dtype(const ir::OpDef& def, DType dtype) {
  const bool half = dtype == bf16 || dtype == f16;
  return half && pointwise_of(def.name) != Pointwise::select ? f32 : dtype;
}

TileFn find_tile(const ir::OpDef& def, DType dtype, unsigned scalars) {
  const std::optional<Pointwise> op = pointwise_of(def.name);
  if (!op) return nullptr;
  return dtype == f32 ? find_f32_tile(*op, scalars) : find_scalar_tile(*op, dtype, scalars);
}

Link::Fn find_op_link(const ir::OpDef& def, LinkForm form) {
  const std::optional<Pointwise> op = pointwise_of(def.name);
  return op ? find_f32_link(*op, form) : nullptr;
}

TileFn find_cast(DType from, DType to) {
  const TileFn vector = find_f32_cast(from, to);
  return vector ? vector : find_scalar_cast(from, to);
}

void register_pointwise(KernelTable& table) {
#define AICF_POINTWISE(name, arity, domain) table.push_back({#name, "tiles", accepts, nullptr, prepare});
#include "ops/ops.def"
}

}  // namespace aicf::backend::cpu
