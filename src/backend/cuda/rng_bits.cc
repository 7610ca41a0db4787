// rng_bits on CUDA: one thread draws one block, and stores its four elements at once.
#include <fmt/format.h>

#include "backend/cuda/code.h"
#include "backend/cuda/index_space.h"
#include "backend/cuda/kernels.h"
#include "backend/cuda/philox_text.h"

namespace aicf::backend::cuda {
namespace {

PreparedKernel prepare(const KernelQuery& query) {
  const TensorType& out = query.out[0];
  const int64_t n = out.shape.elements();
  if (n == 0) return {};
  const Grid grid = grid_for((n + 3) / 4);
  const IndexText index(n);
  Generated g;
  g.what = fmt::format("rng_bits {}", to_string(out));
  g.params = {{"const i64* seed", 0}, {"const i64* offset", 1}, {"int* y", 2}};
  g.blocks = grid.blocks;
  g.threads = grid.threads;
  g.helpers = kPhiloxText;
  g.body = fmt::format(R"(const {index} i = {thread} * 4;
if (i >= {n}) return;
u32 words[4];
philox(i / 4, {ordinal}, (u64)*seed, (u64)*offset, words);
Pack<int, 4> b;
#pragma unroll
for (int j = 0; j < 4; ++j) b.at[j] = (int)words[j];
store_pack(y + i, b, {n} - i < 4 ? (int)({n} - i) : 4);
)",
                       fmt::arg("index", index.type()), fmt::arg("thread", index.thread(grid.threads)),
                       fmt::arg("n", index.number(n)), fmt::arg("ordinal", query.attrs.get_int("ordinal")));
  return prepared({g});
}

}  // namespace

void register_rng_bits(KernelTable& table) {
  table.push_back(
      {.op = "rng_bits", .variant = "blocks", .accepts = [](const KernelQuery&) { return true; }, .prepare = prepare});
}

}  // namespace aicf::backend::cuda
