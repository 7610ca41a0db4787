// Every pointwise op on CUDA: loops of one op.
#include <algorithm>

#include "backend/cuda/elementwise.h"
#include "backend/cuda/kernels.h"

namespace aicf::backend::cuda {
namespace {

bool accepts(const KernelQuery& query) {
  const auto is_f64 = [](const TensorType& t) { return t.dtype == f64; };
  return std::none_of(query.in.begin(), query.in.end(), is_f64) && query.out[0].dtype != f64;
}

PreparedKernel prepare(const KernelQuery& query) {
  if (query.out[0].shape.elements() == 0) return {};
  const int results = static_cast<int>(query.in.size());
  return prepared(elementwise(ir::call_text(query.def, query.in), loops_of_op(query), results));
}

}  // namespace

void register_pointwise(KernelTable& table) {
#define AICF_POINTWISE(name, arity, domain) table.push_back({#name, "elementwise", accepts, nullptr, prepare});
#include "ops/ops.def"
}

}  // namespace aicf::backend::cuda
