#include "lower/lower.h"

#include "aicf/error.h"
#include "ir/op.h"

namespace aicf::lower {

std::vector<backend::PreparedKernel> lower(const ir::Graph& graph, std::span<const backend::Kernel> kernels,
                                           const backend::Tuning& tuning) {
  std::vector<backend::PreparedKernel> prepared;
  prepared.reserve(static_cast<size_t>(graph.num_ops()));
  for (const ir::Op& op : graph.ops()) {
    std::vector<TensorType> in, out;
    for (ir::ValueId v : op.inputs) in.push_back(graph.type(v));
    for (ir::ValueId v : op.outputs) out.push_back(graph.type(v));
    const backend::KernelQuery query{*op.def, op.attrs, in, out, op.region.get(), tuning};
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

namespace {

// A byte copy is what the backend's reshape kernel does.
backend::PreparedKernel copy_kernel(backend::Backend& backend, size_t bytes) {
  const std::vector<TensorType> types = {{u8, {static_cast<int64_t>(bytes)}}};
  const ir::Attrs attrs{{"shape", std::vector<int64_t>{static_cast<int64_t>(bytes)}}};
  const backend::KernelQuery query{*ir::find_op("reshape"), attrs, types, types};
  const backend::Kernel* kernel = backend::choose(backend.kernels(), query);
  if (kernel == nullptr) throw InternalError("no copy kernel for " + to_string(types[0]));
  return kernel->prepare(query);
}

}  // namespace

void link(plan::ExecPlan& plan, backend::Backend& backend) {
  std::vector<backend::PreparedKernel*> kernels;
  for (plan::Launch& launch : plan.launches) {
    if (launch.kind == plan::LaunchKind::copy) {
      launch.kernel = copy_kernel(backend, plan.buffers[static_cast<size_t>(launch.writes[0])].bytes);
    }
    kernels.push_back(&launch.kernel);
  }
  backend.link(kernels);
}

}  // namespace aicf::lower
