// Every pointwise op on CUDA: a region of one op.
#include <algorithm>

#include "backend/cuda/elementwise.h"
#include "backend/cuda/index_space.h"
#include "backend/cuda/kernels.h"

namespace aicf::backend::cuda {
namespace {

bool accepts(const KernelQuery& query) {
  const auto is_f64 = [](const TensorType& t) { return t.dtype == f64; };
  return std::none_of(query.in.begin(), query.in.end(), is_f64) && query.out[0].dtype != f64;
}

PreparedKernel prepare(const KernelQuery& query) {
  const TensorType& out = query.out[0];
  const int arity = static_cast<int>(query.in.size());
  Region region;
  region.what = ir::call_text(query.def, query.in);
  region.shape = out.shape;
  region.ops = {{&query.def, out.dtype, {}}};
  for (int k = 0; k < arity; ++k) {
    region.operands.push_back({query.in[k].dtype, broadcast_strides(query.in[k].shape, out.shape), 0, k});
    region.ops[0].values.push_back(k);
  }
  region.results = {{arity, arity}};
  return prepared(elementwise(region));
}

}  // namespace

void register_pointwise(KernelTable& table) {
#define AICF_POINTWISE(name, arity, domain) table.push_back({#name, "elementwise", accepts, nullptr, prepare});
#include "ops/ops.def"
}

}  // namespace aicf::backend::cuda
