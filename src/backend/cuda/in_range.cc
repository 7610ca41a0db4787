// in_range: whether every element of an index is in [0, extent), or equals `ignore`.
#include <algorithm>

#include "backend/cuda/code.h"
#include "backend/cuda/kernels.h"
#include "backend/cuda/text.h"

namespace aicf::backend::cuda {
namespace {

constexpr int64_t kElementsOfBlock = 8192;

// One flag from each thread block.
constexpr const char* kBody = R"cuda(
bool ok = true;
#pragma unroll 8
for (Index i = (Index)blockIdx.x * T + threadIdx.x; i < N; i += (Index)BLOCKS * T) ok &= in_range(x[i]);
const bool all = __syncthreads_and(ok);
if (threadIdx.x == 0) y[blockIdx.x] = all;
)cuda";

bool accepts(const KernelQuery& query) { return query.in[0].dtype == i32 || query.in[0].dtype == i64; }

Generated check(const KernelQuery& query, const char* type, int in, int out, int64_t n, int64_t blocks) {
  Generated kernel;
  kernel.what = ir::call_text(query.def, query.in);
  kernel.params = {{std::string("const ") + type + "* x", in}, {"u8* y", out}};
  kernel.threads = n <= 256 ? 128 : 1024;
  kernel.blocks = blocks;
  kernel.body =
      types({{"Index", index_type(n)}}) + constants({{"N", n}, {"T", kernel.threads}, {"BLOCKS", blocks}}) + kBody;
  return kernel;
}

PreparedKernel prepare(const KernelQuery& query) {
  const int64_t n = query.in[0].shape.elements();
  const int64_t blocks = n <= 2 * kElementsOfBlock ? 1 : std::min<int64_t>(264, n / kElementsOfBlock);
  std::string test = "(v >= 0 && v < EXTENT)";
  std::string named = constants({{"EXTENT", query.attrs.get_int("extent")}});
  if (query.attrs.has("ignore")) {
    named += constants({{"IGNORE", query.attrs.get_int("ignore")}});
    test += " || v == IGNORE";
  }
  const char* type = c_type(query.in[0].dtype);
  std::vector<Generated> kernels = {check(query, type, 0, blocks == 1 ? 1 : 2, n, blocks)};
  kernels[0].helpers = named + "DEVICE bool in_range(i64 v) { return " + test + "; }\n";
  if (blocks > 1) {
    kernels.push_back(check(query, "u8", 2, 1, blocks, 1));
    kernels[1].helpers = "DEVICE bool in_range(u8 flag) { return flag; }\n";
  }
  PreparedKernel kernel = prepared(std::move(kernels), blocks > 1 ? static_cast<size_t>(blocks) : 0);
  kernel.variant = "scan";
  return kernel;
}

}  // namespace

void register_in_range(KernelTable& table) { table.push_back({"in_range", "scan", accepts, nullptr, prepare}); }

}  // namespace aicf::backend::cuda
