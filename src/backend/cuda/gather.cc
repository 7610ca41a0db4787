// gather: rows of bytes picked by index; an index out of range reads nothing and gives zeros.
#include "ops/gather.h"

#include <algorithm>

#include "backend/cuda/code.h"
#include "backend/cuda/kernels.h"
#include "backend/cuda/text.h"

namespace aicf::backend::cuda {
namespace {

// Each thread moves MANY pieces of the result, T apart; their reads are in flight together.
constexpr const char* kBody = R"cuda(
Piece moved[MANY];
const Index first = (Index)blockIdx.x * (T * MANY) + threadIdx.x;
#pragma unroll
for (int m = 0; m < MANY; ++m) {
  const Index at = first + m * T;
  moved[m] = {};
  if (at >= TOTAL) continue;
  const Index picked = at / ROW, slab = picked / PICKS;
  const i64 k = index[slab / OUTER * PICKS + picked % PICKS];
  if (k >= 0 && k < EXTENT) moved[m] = x[(slab * EXTENT + (Index)k) * ROW + at % ROW];
}
#pragma unroll
for (int m = 0; m < MANY; ++m) {
  if (first + m * T < TOTAL) y[first + m * T] = moved[m];
}
)cuda";

PreparedKernel prepare(const KernelQuery& query) {
  const TensorType& out = query.out[0];
  if (out.bytes() == 0) return {};
  const ops::GatherDims d = ops::gather_dims(query.in[0].shape, query.in[1].shape, query.attrs);
  const int64_t row_bytes = d.inner * static_cast<int64_t>(size_of(out.dtype));
  const int64_t piece = vector_length(row_bytes, 1);
  const int64_t row = row_bytes / piece, total = d.batch * d.outer * d.picks * row;
  const int64_t many = total < 4 * kFewThreads ? 1 : 4;
  Generated kernel;
  kernel.what = ir::call_text(query.def, query.in);
  kernel.params = {
      {"const Piece* x", 0}, {std::string("const ") + c_type(query.in[1].dtype) + "* index", 1}, {"Piece* y", 2}};
  // Only moved, so the dtype does not matter.
  const char* unit = piece == 1 ? "u8" : piece == 2 ? "u16" : "u32";
  kernel.helpers = types({{"Piece", piece <= 4 ? unit : "Pack<u32, " + std::to_string(piece / 4) + ">"}});
  kernel.threads = total < kFewThreads ? 64 : 256;
  kernel.blocks = (total + kernel.threads * many - 1) / (kernel.threads * many);
  kernel.body =
      types({{"Index", index_type(std::max({total, d.batch * d.outer * d.extent * row, d.batch * d.picks}))}}) +
      constants({{"T", kernel.threads},
                 {"MANY", many},
                 {"TOTAL", total},
                 {"ROW", row},
                 {"PICKS", d.picks},
                 {"OUTER", d.outer},
                 {"EXTENT", d.extent}}) +
      kBody;
  PreparedKernel result = prepared({std::move(kernel)});
  result.variant = "rows";
  return result;
}

bool accepts(const KernelQuery& query) { return query.in[0].dtype != f64; }

}  // namespace

void register_gather(KernelTable& table) {
  table.push_back({.op = "gather", .variant = "rows", .accepts = accepts, .prepare = prepare});
}

}  // namespace aicf::backend::cuda
