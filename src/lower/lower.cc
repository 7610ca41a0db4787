#include "lower/lower.h"

#include "aicf/error.h"
#include "ir/op.h"

namespace aicf::lower {

std::vector<backend::PreparedKernel> lower(const ir::Graph& graph, std::span<const backend::Kernel> kernels) {
  std::vector<backend::PreparedKernel> prepared;
  prepared.reserve(static_cast<size_t>(graph.num_ops()));
  for (const ir::Op& op : graph.ops()) {
    std::vector<TensorType> in, out;
    for (ir::ValueId v : op.inputs) in.push_back(graph.type(v));
    for (ir::ValueId v : op.outputs) out.push_back(graph.type(v));
    const backend::KernelQuery query{*op.def, op.attrs, in, out};
    const backend::Kernel* kernel = backend::choose(kernels, query);
    if (kernel == nullptr) {
      throw Error(call_text(*op.def, in) + ": this backend has no kernel for it",
                  "cast the operands, or choose another backend");
    }
    prepared.push_back(kernel->prepare(query));
    if (prepared.back().variant.empty()) prepared.back().variant = kernel->variant;
  }
  return prepared;
}

}  // namespace aicf::lower
