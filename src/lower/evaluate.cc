#include "lower/evaluate.h"

#include <cstring>
#include <memory>

#include "aicf/error.h"
#include "backend/api.h"
#include "ir/op.h"

namespace aicf::lower {
namespace {

// Aligned as a store's buffers are.
class Memory {
 public:
  void* allocate(size_t bytes) {
    owned_.emplace_back(backend::cpu_backend().allocate(bytes), release);
    return owned_.back().get();
  }

 private:
  static void release(void* memory) { backend::cpu_backend().release(memory); }
  std::vector<std::unique_ptr<void, void (*)(void*)>> owned_;
};

}  // namespace

std::vector<Tensor> evaluate_on_cpu(const ir::OpDef& def, const ir::Attrs& attrs,
                                    std::span<const Tensor* const> operands) {
  std::vector<TensorType> in;
  for (const Tensor* t : operands) in.push_back(t->type());
  const std::vector<TensorType> out = def.infer({def, in, attrs, nullptr});
  const backend::KernelQuery query{def, attrs, in, out};
  const backend::Kernel* kernel = backend::choose(backend::cpu_backend().kernels(), query);
  if (kernel == nullptr) throw Error(ir::call_text(def, in) + ": the CPU has no kernel for it");
  const backend::PreparedKernel prepared = kernel->prepare(query);

  Memory memory;
  std::vector<void*> buffers;
  for (const Tensor* t : operands) {
    buffers.push_back(memory.allocate(t->bytes()));
    if (t->bytes() > 0) std::memcpy(buffers.back(), t->data(), t->bytes());
  }
  for (const TensorType& type : out) buffers.push_back(memory.allocate(type.bytes()));
  if (prepared.workspace_bytes > 0) buffers.push_back(memory.allocate(prepared.workspace_bytes));
  const backend::BoundLaunch launch{&prepared, buffers.data(), nullptr};
  backend::run_on_cpu({&launch, 1}, 1);

  std::vector<Tensor> results;
  for (size_t i = 0; i < out.size(); ++i) results.emplace_back(TensorView(out[i], buffers[in.size() + i]));
  return results;
}

}  // namespace aicf::lower
