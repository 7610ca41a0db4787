// Fused regions on the CPU: pointwise loops, and the choice among the kinds of loops.
#include "backend/cpu/fused.h"

#include <algorithm>

#include "backend/cpu/kernels.h"
#include "backend/cpu/partition.h"

namespace aicf::backend::cpu {
namespace {

// Rows shorter than this are no rows: what is the same along them is not worth looking for.
constexpr int64_t kShortestRow = 16;

void run_elements(const KernelArgs& args, int part, int parts) {
  const Program& p = fused_params(args).main;
  const Range range = share(p.units(), part, parts);
  TileRun(p, args).units(range.begin, range.end);
}

// The number of outer axes, such that the rest make a row.
int row_axes_of(const std::vector<int64_t>& dims) {
  int64_t length = 1;
  for (int k = static_cast<int>(dims.size()); k-- > 0;) {
    length *= dims[static_cast<size_t>(k)];
    if (length >= kShortestRow) return k;
  }
  return 0;
}

// Null when no kernel here runs the region.
std::shared_ptr<FusedParams> prepare_into(const KernelQuery& query, PreparedKernel& kernel) {
  if (query.region == nullptr) return nullptr;
  const std::optional<ops::Loops> loops = ops::loops_of(*query.region);
  if (!loops) return nullptr;
  const FusedQuery fused{*loops, *query.region, static_cast<int>(query.in.size()), static_cast<int>(query.out.size()),
                         query.tuning};
  auto params = std::make_shared<FusedParams>();
  params->outer = loops->outer(), params->n = loops->n(), params->inner = loops->inner();
  bool fits = false;
  switch (loops->kind) {
    case ops::Loops::Kind::pointwise:
      fits = prepare_elements(fused, *params, kernel);
      break;
    case ops::Loops::Kind::row:
      fits = prepare_rows(fused, *params, kernel);
      break;
    case ops::Loops::Kind::reduce:
      fits = prepare_reduce(fused, *params, kernel);
      break;
    case ops::Loops::Kind::epilogue:
      fits = prepare_epilogue(fused, *params, kernel);
      break;
  }
  return fits ? params : nullptr;
}

bool accepts(const KernelQuery& query) {
  PreparedKernel kernel;
  return prepare_into(query, kernel) != nullptr;
}

PreparedKernel prepare(const KernelQuery& query) {
  PreparedKernel kernel = {.variant = "tiles"};
  kernel.params = prepare_into(query, kernel);
  return kernel;
}

}  // namespace

std::vector<int> FusedQuery::axes(int begin, int end) const {
  std::vector<int> axes;
  for (int k = begin; k < end; ++k) axes.push_back(k);
  return axes;
}

std::vector<int> FusedQuery::nodes(ops::Loops::Node::Kind kind) const {
  std::vector<int> found;
  for (size_t n = 0; n < loops.nodes.size(); ++n) {
    if (loops.nodes[n].kind == kind) found.push_back(static_cast<int>(n));
  }
  return found;
}

At reserve(PreparedKernel& kernel, const FusedQuery& query, size_t bytes) {
  constexpr size_t kAlignment = 256;
  const At at{query.workspace(), kernel.workspace_bytes};
  kernel.workspace_bytes += (bytes + kAlignment - 1) / kAlignment * kAlignment;
  return at;
}

int parts_for(int64_t elements, int64_t units) {
  const int64_t parts = (elements + kPartElements - 1) / kPartElements;
  return static_cast<int>(std::clamp<int64_t>(std::min(units, parts), 1, 1 << 16));
}

bool prepare_elements(const FusedQuery& query, FusedParams& params, PreparedKernel& kernel) {
  Frame frame = {.axes = query.all_axes(), .row_axes = row_axes_of(query.loops.dims)};
  for (int r = 0; r < query.results; ++r) frame.results.push_back(r);
  Sources sources = {.operands = query.operands};
  if (!params.matmul_buffers.empty()) sources.product = params.matmul_buffers[2];
  std::optional<Program> program = compile(query.loops, query.region, frame, sources);
  if (!program) return false;
  params.main = std::move(*program);
  kernel.phases.push_back({run_elements, parts_for(query.loops.elements(), params.main.units())});
  return true;
}

void register_fused(KernelTable& table) { table.push_back({"fused", "tiles", accepts, nullptr, prepare}); }

}  // namespace aicf::backend::cpu
