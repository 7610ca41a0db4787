// Runs one kernel on freshly allocated, guarded, poisoned buffers: no planner, no runtime.
#pragma once

#include <gtest/gtest.h>

#include <cstring>
#include <memory>
#include <string>
#include <vector>

#include "aicf/tensor.h"
#include "backend/api.h"
#include "backend/cpu/kernels.h"
#include "base/thread_pool.h"
#include "ir/op.h"

namespace aicf::test {

// 256-byte aligned memory between two guards.
class GuardedBuffer {
 public:
  explicit GuardedBuffer(size_t bytes) : bytes_(bytes), memory_(bytes + 3 * kGuard, kGuardByte) {
    const auto address = reinterpret_cast<uintptr_t>(memory_.data());
    data_ = memory_.data() + kGuard + (kGuard - address % kGuard) % kGuard;
  }
  void* data() { return data_; }
  size_t bytes() const { return bytes_; }
  void fill(unsigned char byte) { std::memset(data_, byte, bytes_); }
  bool intact() const {
    for (const unsigned char* p = memory_.data(); p != memory_.data() + memory_.size(); ++p) {
      const bool inside = p >= data_ && p < data_ + bytes_;
      if (!inside && *p != kGuardByte) return false;
    }
    return true;
  }

 private:
  static constexpr size_t kGuard = 256;
  static constexpr unsigned char kGuardByte = 0xAB;
  size_t bytes_;
  std::vector<unsigned char> memory_;
  unsigned char* data_ = nullptr;
};

struct RunMode {
  int threads = 0;               // 0: parts one after another on this thread; else through the pool
  bool last_part_first = false;  // with threads == 0
  unsigned char poison = 0xFF;   // of results and workspace; 0xFF is NaN in every float type
  int alias_out = -1;            // this result takes the storage of operand alias_in
  int alias_in = -1;
};

// A kernel of one op bound to its types.
struct BoundOp {
  const ir::OpDef* def = nullptr;
  ir::Attrs attrs;
  std::vector<TensorType> in, out;
  std::shared_ptr<const ir::Graph> region = nullptr;

  backend::KernelQuery query() const { return {*def, attrs, in, out, region.get()}; }
  std::vector<ir::AliasRule> alias_rules() const {
    ir::Op op;
    op.def = def, op.attrs = attrs, op.region = region;
    return ir::alias_rules(op);
  }
  std::string text() const { return ir::call_text(*def, in) + " " + ir::to_string(attrs); }
};

inline BoundOp bind(const ir::Graph& graph, const ir::Op& op) {
  BoundOp bound{op.def, op.attrs, {}, {}, op.region};
  for (ir::ValueId v : op.inputs) bound.in.push_back(graph.type(v));
  for (ir::ValueId v : op.outputs) bound.out.push_back(graph.type(v));
  return bound;
}

struct PhaseTask {
  backend::CpuKernelFn fn;
  backend::KernelArgs args;
};

inline void run_part(void* ctx, int part, int parts) {
  const base::FlushSubnormals flush;
  const auto* task = static_cast<const PhaseTask*>(ctx);
  task->fn(task->args, part, parts);
}

inline void run_phases(const backend::PreparedKernel& kernel, void* const* buffers, const RunMode& mode) {
  for (const backend::CpuPhase& phase : kernel.phases) {
    PhaseTask task{phase.fn, {buffers, kernel.params.get()}};
    if (mode.threads > 0) {
      base::ThreadPool::shared().run(run_part, &task, phase.parts, mode.threads);
      continue;
    }
    for (int i = 0; i < phase.parts; ++i) {
      run_part(&task, mode.last_part_first ? phase.parts - 1 - i : i, phase.parts);
    }
  }
}

// Operands holding one value share one buffer, as in a plan: `same_as[i]` >= 0 names the earlier operand.
inline std::vector<Tensor> run_kernel(const BoundOp& op, const backend::Kernel& kernel,
                                      const std::vector<const Tensor*>& operands, const RunMode& mode,
                                      const std::vector<int>& same_as = {}) {
  const backend::PreparedKernel prepared = kernel.prepare(op.query());
  const std::string where = op.text() + " by " + kernel.variant;
  std::vector<std::unique_ptr<GuardedBuffer>> owned;
  std::vector<GuardedBuffer*> in, out;
  std::vector<void*> buffers;
  const auto allocate = [&](size_t bytes) {
    owned.push_back(std::make_unique<GuardedBuffer>(bytes));
    return owned.back().get();
  };
  for (size_t i = 0; i < operands.size(); ++i) {
    const int same = i < same_as.size() ? same_as[i] : -1;
    in.push_back(same >= 0 ? in[same] : allocate(operands[i]->bytes()));
    if (operands[i]->bytes() > 0) std::memcpy(in[i]->data(), operands[i]->data(), operands[i]->bytes());
    buffers.push_back(in[i]->data());
  }
  bool empty = true;
  for (size_t o = 0; o < op.out.size(); ++o) {
    const bool aliased = static_cast<int>(o) == mode.alias_out;
    out.push_back(aliased ? in[mode.alias_in] : allocate(op.out[o].bytes()));
    if (!aliased) out.back()->fill(mode.poison);
    buffers.push_back(out.back()->data());
    empty = empty && op.out[o].bytes() == 0;
  }
  EXPECT_TRUE(!empty || prepared.phases.empty()) << where << ": launched for an empty result";
  GuardedBuffer* workspace = nullptr;
  if (prepared.workspace_bytes > 0) {
    workspace = allocate(prepared.workspace_bytes);
    workspace->fill(mode.poison);
    buffers.push_back(workspace->data());
  }
  // The addresses last as long as the launch; a kernel that keeps one finds it overwritten.
  run_phases(prepared, buffers.data(), mode);
  for (const auto& buffer : owned) EXPECT_TRUE(buffer->intact()) << where << ": wrote outside a buffer";
  for (size_t i = 0; i < operands.size(); ++i) {
    const bool aliased = mode.alias_in >= 0 && in[i] == in[mode.alias_in];
    if (aliased || operands[i]->bytes() == 0) continue;
    EXPECT_EQ(std::memcmp(in[i]->data(), operands[i]->data(), operands[i]->bytes()), 0)
        << where << ": wrote its operand " << i;
  }
  std::vector<Tensor> results;
  for (size_t o = 0; o < op.out.size(); ++o) results.emplace_back(TensorView(op.out[o], out[o]->data()));
  return results;
}

}  // namespace aicf::test
