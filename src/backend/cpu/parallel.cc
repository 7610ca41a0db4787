// parallel on the CPU: each phase of the launch is that phase of all members, their parts side by side.
#include "ops/parallel.h"

#include <algorithm>
#include <array>
#include <utility>

#include "aicf/error.h"
#include "backend/cpu/kernels.h"

namespace aicf::backend::cpu {
namespace {

constexpr size_t kMaxPhases = 8;
constexpr size_t kMaxBuffers = 128;  // of a member
constexpr size_t kAlignment = 256;   // of a member's workspace

struct Member {
  PreparedKernel kernel;
  std::vector<int> buffers;
  size_t workspace = 0;  // offset
};

struct Params {
  std::vector<Member> members;
  int workspace_buffer = 0;
  std::array<std::vector<int>, kMaxPhases> ends;  // by phase: the parts of the members up to each
};

template <size_t kPhase>
void run_phase(const KernelArgs& args, int part, int) {
  const Params& p = *static_cast<const Params*>(args.params);
  const std::vector<int>& ends = p.ends[kPhase];
  const auto index = static_cast<size_t>(std::upper_bound(ends.begin(), ends.end(), part) - ends.begin());
  const Member& member = p.members[index];
  std::array<void*, kMaxBuffers> buffers;
  size_t count = 0;
  for (int b : member.buffers) buffers[count++] = args.buffers[b];
  if (member.kernel.workspace_bytes > 0) {
    buffers[count++] = static_cast<char*>(args.buffers[p.workspace_buffer]) + member.workspace;
  }
  const CpuPhase& phase = member.kernel.phases[kPhase];
  const int first = index == 0 ? 0 : ends[index - 1];
  phase.fn({buffers.data(), member.kernel.params.get()}, part - first, phase.parts);
}

template <size_t... kPhase>
constexpr std::array<CpuKernelFn, sizeof...(kPhase)> phase_table(std::index_sequence<kPhase...>) {
  return {run_phase<kPhase>...};
}
constexpr auto kRunPhase = phase_table(std::make_index_sequence<kMaxPhases>());

bool accepts(const KernelQuery& query) {
  for (const ops::ParallelMember& m : ops::parallel_members(*query.region)) {
    const KernelQuery own{*m.op->def, m.op->attrs, m.in, m.out, m.op->region.get(), query.tuning};
    const Kernel* kernel = choose(kernel_table(), own);
    if (kernel == nullptr || m.buffers.size() + 1 > kMaxBuffers) return false;
  }
  return true;
}

PreparedKernel prepare(const KernelQuery& query) {
  PreparedKernel result;
  auto params = std::make_shared<Params>();
  params->workspace_buffer = static_cast<int>(query.in.size() + query.out.size());
  size_t phases = 0;
  for (ops::ParallelMember& m : ops::parallel_members(*query.region)) {
    const KernelQuery own{*m.op->def, m.op->attrs, m.in, m.out, m.op->region.get(), query.tuning};
    Member member{choose(kernel_table(), own)->prepare(own), std::move(m.buffers)};
    member.workspace = result.workspace_bytes;
    result.workspace_bytes += (member.kernel.workspace_bytes + kAlignment - 1) / kAlignment * kAlignment;
    phases = std::max(phases, member.kernel.phases.size());
    params->members.push_back(std::move(member));
  }
  if (phases > kMaxPhases) throw InternalError("parallel: a kernel of " + std::to_string(phases) + " phases");
  for (size_t k = 0; k < phases; ++k) {
    int parts = 0;
    for (const Member& member : params->members) {
      if (k < member.kernel.phases.size()) parts += member.kernel.phases[k].parts;
      params->ends[k].push_back(parts);
    }
    result.phases.push_back({kRunPhase[k], parts});
  }
  result.params = std::move(params);
  return result;
}

}  // namespace

void register_parallel(KernelTable& table) { table.push_back({"parallel", "side by side", accepts, nullptr, prepare}); }

}  // namespace aicf::backend::cpu
