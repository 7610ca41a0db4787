// A matmul by its own kernel, and the pointwise loops of its elements.
#include <array>
#include <utility>

#include "backend/cpu/fused.h"
#include "backend/cpu/kernels.h"
#include "ops/defs.h"

namespace aicf::backend::cpu {
namespace {

constexpr size_t kMostPhases = 8;

template <size_t kPhase>
void matmul_phase(const KernelArgs& args, int part, int parts) {
  const FusedParams& params = fused_params(args);
  void* buffers[4] = {};
  for (size_t i = 0; i < params.matmul_buffers.size(); ++i) buffers[i] = params.matmul_buffers[i].in(args);
  params.matmul.phases[kPhase].fn({buffers, params.matmul.params.get()}, part, parts);
}

template <size_t... kPhases>
constexpr std::array<CpuKernelFn, sizeof...(kPhases)> all_phases(std::index_sequence<kPhases...>) {
  return {matmul_phase<kPhases>...};
}
constexpr auto kMatmulPhases = all_phases(std::make_index_sequence<kMostPhases>());

// A result that is the product itself, and that may not take an operand's storage: the rest still reads those.
int product_result(const FusedQuery& query, int product) {
  const std::vector<ir::AliasRule> rules = ops::alias_rules_of(query.loops, query.region);
  for (int r = 0; r < query.results; ++r) {
    const bool taken =
        std::any_of(rules.begin(), rules.end(), [&](const ir::AliasRule& rule) { return rule.out == r; });
    if (query.loops.results[static_cast<size_t>(r)].node == product && !taken) return r;
  }
  return -1;
}

}  // namespace

bool prepare_epilogue(const FusedQuery& query, FusedParams& params, PreparedKernel& kernel) {
  const std::vector<int> products = query.nodes(ops::Loops::Node::Kind::product);
  if (products.empty()) return prepare_elements(query, params, kernel);  // no result needs it
  const int product = products[0];
  const ir::Op* matmul = nullptr;
  for (const ir::Op& op : query.region.ops()) {
    if (op.def == &ops::matmul_def) matmul = &op;
  }
  const ops::Loops::Node& node = query.loops.nodes[static_cast<size_t>(product)];
  const std::vector<TensorType> in = {query.region.type(matmul->inputs[0]), query.region.type(matmul->inputs[1])};
  const std::vector<TensorType> out = {query.region.type(matmul->outputs[0])};
  const KernelQuery own{*matmul->def, matmul->attrs, in, out, nullptr, query.tuning};
  const Kernel* const chosen = choose(kernel_table(), own);
  if (chosen == nullptr) return false;
  params.matmul = chosen->prepare(own);
  if (params.matmul.phases.size() > kMostPhases) return false;
  const int result = product_result(query, product);
  params.matmul_buffers = {{node.factors[0], 0}, {node.factors[1], 0}};
  params.matmul_buffers.push_back(result >= 0 ? At{query.operands + result, 0}
                                              : reserve(kernel, query, out[0].bytes()));
  if (params.matmul.workspace_bytes > 0) {
    params.matmul_buffers.push_back(reserve(kernel, query, params.matmul.workspace_bytes));
  }
  for (size_t i = 0; i < params.matmul.phases.size(); ++i) {
    kernel.phases.push_back({kMatmulPhases[i], params.matmul.phases[i].parts});
  }
  return prepare_elements(query, params, kernel);
}

}  // namespace aicf::backend::cpu
