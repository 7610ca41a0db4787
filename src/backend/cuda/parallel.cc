// parallel on CUDA: the members' kernels as one, whose blocks choose their role by their number. What is alike but for
// addresses is one role with several instances. Members of several kernels take as many launches as the longest; what
// the library does comes before all of them.
#include "ops/parallel.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <map>

#include "aicf/error.h"
#include "backend/cuda/code.h"
#include "backend/cuda/kernels.h"

namespace aicf::backend::cuda {
namespace {

constexpr size_t kAlignment = 256;         // of a member's workspace
constexpr size_t kMaxParams = 4000;        // of a kernel: 32 KB of them
constexpr int kMaxSharedBytes = 48 << 10;  // of a kernel
// Of an array that a text declares, at most; roles have theirs apart.
constexpr int kArrayBytes = 9 << 10;
constexpr size_t kFewInstances = 12;

// The library's share of a launch.
class LibraryCalls {
 public:
  using Call = std::function<void(cudaStream_t, void* const*)>;

  void add(Call call, std::vector<int> buffers, size_t workspace) {
    if (buffers.size() + 1 > kMaxBuffers) throw InternalError("parallel: a library call of too many operands");
    calls_.push_back({std::move(call), std::move(buffers), workspace});
  }
  bool empty() const { return calls_.empty(); }
  Call together(int workspace_buffer) && {
    return [calls = std::move(calls_), workspace_buffer](cudaStream_t stream, void* const* buffers) {
      for (const Member& member : calls) {
        std::array<void*, kMaxBuffers> own;
        size_t count = 0;
        for (int b : member.buffers) own[count++] = buffers[b];
        if (member.workspace != kNone) own[count] = static_cast<char*>(buffers[workspace_buffer]) + member.workspace;
        member.call(stream, own.data());
      }
    };
  }
  static constexpr size_t kNone = ~size_t{0};

 private:
  static constexpr size_t kMaxBuffers = 64;
  struct Member {
    Call call;
    std::vector<int> buffers;
    size_t workspace;  // its offset, or kNone
  };
  std::vector<Member> calls_;
};

// A kernel of a member, its buffers those of the launch.
Generated placed(Generated kernel, const ops::ParallelMember& member, int workspace_buffer, size_t workspace) {
  for (Generated::Param& p : kernel.params) {
    const bool own = static_cast<size_t>(p.buffer) < member.buffers.size();
    p.offset += own ? 0 : workspace;
    p.buffer = own ? member.buffers[static_cast<size_t>(p.buffer)] : workspace_buffer;
  }
  return kernel;
}

// Several kernels as one.
class Merger {
 public:
  bool fits(const Generated& kernel) const {
    const bool known = roles_.contains(text_of(kernel));
    const int arrays = arrays_ + (known ? 0 : arrays_of(kernel));
    const int shared = arrays * kArrayBytes + std::max(pool_bytes_, kernel.pool_bytes);
    return instances_.empty() || (params_ + kernel.params.size() <= kMaxParams && shared <= kMaxSharedBytes);
  }

  void add(Generated kernel) {
    const auto [role, added] = roles_.emplace(text_of(kernel), static_cast<int>(roles_.size()));
    if (added) arrays_ += arrays_of(kernel);
    pool_bytes_ = std::max(pool_bytes_, kernel.pool_bytes);
    params_ += kernel.params.size();
    instances_.push_back({role->second, std::move(kernel)});
  }

  Generated merged() {
    if (instances_.size() == 1) return std::move(instances_[0].kernel);
    Generated all;
    all.table = true;
    all.pool_bytes = pool_bytes_;
    all.threads = 0;
    for (const Instance& i : instances_) {
      all.what += (all.what.empty() ? "" : ", ") + i.kernel.what;
      all.threads = std::max(all.threads, i.kernel.threads);
      all.min_blocks = std::max(all.min_blocks, std::min(i.kernel.min_blocks, 1));
      all.blocks += i.kernel.blocks;
      all.params.insert(all.params.end(), i.kernel.params.begin(), i.kernel.params.end());
    }
    all.helpers = roles_text() + tables_text();
    all.body = choice_text() + dispatch_text();
    return all;
  }

 private:
  struct Instance {
    int role = 0;
    Generated kernel;
  };

  static int arrays_of(const Generated& kernel) {
    int count = 0;
    for (const std::string* text : {&kernel.helpers, &kernel.body}) {
      for (size_t at = text->find("__shared__"); at != std::string::npos; at = text->find("__shared__", at + 1))
        ++count;
    }
    return count;
  }

  static std::string text_of(const Generated& kernel) {
    std::string text = fmt::format("{}\n{}\n", kernel.threads, kernel.helpers);
    for (const Generated::Param& p : kernel.params) text += p.declaration + "\n";
    return text + kernel.body;
  }

  const Generated& example(int role) const {
    return std::find_if(instances_.begin(), instances_.end(), [&](const Instance& i) { return i.role == role; })
        ->kernel;
  }

  // The names blockIdx and blockDim of a role are its own.
  std::string roles_text() const {
    std::string text =
        "struct Extent { u32 x; };\nstruct Any {\n  void* at;\n"
        "  template <class T> __device__ operator T*() const { return (T*)at; }\n};\n";
    for (int role = 0; role < static_cast<int>(roles_.size()); ++role) {
      const Generated& kernel = example(role);
      text += fmt::format("namespace role{} {{\n{}\nDEVICE void run(", role, kernel.helpers);
      for (const Generated::Param& p : kernel.params) text += p.declaration + ", ";
      text += "u8* const pool, const Extent blockIdx, const Extent blockDim) {\n" + kernel.body + "}\n}\n";
    }
    return text;
  }

  template <class F>
  std::string table(const char* name, F value) const {
    std::string text = fmt::format("__constant__ const u32 {}[] = {{", name);
    for (const Instance& i : instances_) text += fmt::format("{}, ", value(i));
    return text + "};\n";
  }

  std::string tables_text() const {
    int64_t block = 0;
    size_t param = 0;
    const auto next = [](auto& sum, auto more) {
      const auto was = sum;
      sum += more;
      return was;
    };
    return table("starts", [&](const Instance& i) { return next(block, i.kernel.blocks); }) +
           table("params", [&](const Instance& i) { return next(param, i.kernel.params.size()); }) +
           table("roles", [&](const Instance& i) { return i.role; });
  }

  // The number of the instance that the block belongs to.
  std::string choice_text() const {
    if (instances_.size() > kFewInstances) {
      return fmt::format(
          "int instance = 0;\nfor (int end = {}; end - instance > 1;) {{\n  const int middle = (instance + end) / 2;\n"
          "  if (starts[middle] <= blockIdx.x) instance = middle;\n  else end = middle;\n}}\n",
          instances_.size());
    }
    std::string text = "const int instance = 0";
    int64_t block = 0;
    for (size_t i = 1; i < instances_.size(); ++i) {
      block += instances_[i - 1].kernel.blocks;
      text += fmt::format(" + (blockIdx.x >= {}u)", block);
    }
    return text + ";\n";
  }

  std::string dispatch_text() const {
    std::string text =
        "const Extent own = {blockIdx.x - starts[instance]};\nvoid* const* const p = table.at + params[instance];\n"
        "switch (roles[instance]) {\n";
    for (int role = 0; role < static_cast<int>(roles_.size()); ++role) {
      const Generated& kernel = example(role);
      text += fmt::format("  case {}: if (threadIdx.x < {}) role{}::run(", role, kernel.threads, role);
      for (size_t i = 0; i < kernel.params.size(); ++i) text += fmt::format("Any{{p[{}]}}, ", i);
      text += fmt::format("{}, own, Extent{{{}}}); break;\n", pool_bytes_ > 0 ? "pool" : "nullptr", kernel.threads);
    }
    return text + "}\n";
  }

  std::map<std::string, int> roles_;  // by text
  std::vector<Instance> instances_;
  size_t params_ = 0;
  int arrays_ = 0, pool_bytes_ = 0;
};

KernelQuery query_of(const ops::ParallelMember& m, const KernelQuery& query) {
  return {*m.op->def, m.op->attrs, m.in, m.out, m.op->region.get(), query.tuning};
}

bool accepts(const KernelQuery& query) {
  for (const ops::ParallelMember& m : ops::parallel_members(*query.region)) {
    if (choose(kernel_table(), query_of(m, query)) == nullptr) return false;
  }
  return true;
}

PreparedKernel prepare(const KernelQuery& query) {
  const auto workspace_buffer = static_cast<int>(query.in.size() + query.out.size());
  std::vector<std::vector<Generated>> stages;
  LibraryCalls calls;
  size_t workspace = 0;
  for (const ops::ParallelMember& m : ops::parallel_members(*query.region)) {
    const KernelQuery own = query_of(m, query);
    const PreparedKernel kernel = choose(kernel_table(), own)->prepare(own);
    if (kernel.code == nullptr) continue;
    const Code& code = static_cast<const Code&>(*kernel.code);
    if (code.library) {
      calls.add(code.library, m.buffers, kernel.workspace_bytes > 0 ? workspace : LibraryCalls::kNone);
    }
    if (stages.size() < code.kernels.size()) stages.resize(code.kernels.size());
    for (size_t k = 0; k < code.kernels.size(); ++k) {
      stages[k].push_back(placed(code.kernels[k], m, workspace_buffer, workspace));
    }
    workspace += (kernel.workspace_bytes + kAlignment - 1) / kAlignment * kAlignment;
  }
  std::vector<Generated> kernels;
  for (std::vector<Generated>& stage : stages) {
    std::vector<Merger> mergers(1);
    for (Generated& kernel : stage) {
      if (!mergers.back().fits(kernel)) mergers.emplace_back();
      mergers.back().add(std::move(kernel));
    }
    for (Merger& merger : mergers) kernels.push_back(merger.merged());
  }
  PreparedKernel result = prepared(std::move(kernels), workspace);
  if (!calls.empty()) {
    result.guardable = false;
    result.workspace_bytes = workspace;
    if (result.code == nullptr) result.code = std::make_shared<Code>();
    static_cast<Code&>(*result.code).library = std::move(calls).together(workspace_buffer);
  }
  return result;
}

}  // namespace

void register_parallel(KernelTable& table) { table.push_back({"parallel", "roles", accepts, nullptr, prepare}); }

}  // namespace aicf::backend::cuda
