// Regions as kernels: by the kind of their loops.
#include "backend/cuda/fused.h"

#include <fmt/format.h>

#include <algorithm>
#include <set>
#include <utility>

#include "backend/cuda/elementwise.h"
#include "backend/cuda/kernels.h"
#include "backend/cuda/text.h"

namespace aicf::backend::cuda {

using Node = ops::Loops::Node;

RegionKernels::RegionKernels(std::string what, const ops::Loops& loops, int first_result)
    : what_(std::move(what)), loops_(loops), first_result_(first_result), index_(largest_index(loops)) {
  helpers_ = helpers_text(loops);
  std::set<std::string> seen;
  for (const Node& node : loops.nodes) {
    if (node.kind != Node::Kind::reduce && node.kind != Node::Kind::column) continue;
    if (!seen.insert(space(node)).second) continue;
    helpers_ +=
        fmt::format("namespace {} {{\n{}}}\n", space(node), reduce_text(reduce_kind(node.def->name), node.dtype));
  }
}

bool RegionKernels::is_column(int result) const {
  return node(loops_.results[static_cast<size_t>(result)].node).kind == Node::Kind::column;
}

bool RegionKernels::is_full(int result) const {
  if (is_column(result)) return false;
  const std::vector<int64_t>& strides = loops_.results[static_cast<size_t>(result)].place.strides;
  return std::any_of(strides.begin() + loops_.first_reduced, strides.begin() + loops_.end_reduced,
                     [](int64_t s) { return s != 0; });
}

std::vector<int> RegionKernels::of_kind(Node::Kind kind) const {
  std::vector<int> ids;
  for (size_t i = 0; i < loops_.nodes.size(); ++i) {
    if (loops_.nodes[i].kind == kind) ids.push_back(static_cast<int>(i));
  }
  return ids;
}

std::string RegionKernels::space(const Node& reduction) {
  const char* const kinds[] = {"sum", "prod", "max", "min"};
  const char* const kind = kinds[static_cast<int>(reduce_kind(reduction.def->name))];
  return fmt::format("{}_{}", kind, is_float(reduction.dtype) ? "float" : name_of(reduction.dtype));
}

size_t RegionKernels::accumulator_size(const Node& reduction) { return reduction.dtype == i64 ? 8 : 4; }

std::string RegionKernels::name(const char* prefix, int id) { return fmt::format("{}{}", prefix, id); }

std::string RegionKernels::workspace(const char* prefix, int reduction, int64_t elements) {
  const Node& n = node(reduction);
  const std::string text = fmt::format("{0}::Acc* const {1} = ({0}::Acc*)(work + {2});\n", space(n),
                                       name(prefix, reduction), index_.number(static_cast<int64_t>(workspace_bytes_)));
  workspace_bytes_ += (static_cast<size_t>(elements) * accumulator_size(n) + 255) / 256 * 256;
  return text;
}

void RegionKernels::add(const std::string& body, const std::vector<bool>& needed, const std::vector<int>& results,
                        int64_t blocks, int threads) {
  Generated g;
  g.what = what_;
  g.params = operand_params(loops_, needed);
  for (int r : results) {
    const Node& n = node(loops_.results[static_cast<size_t>(r)].node);
    g.params.push_back({fmt::format("{}* y{}", element_type(loops_, n.dtype), r), first_result_ + r});
  }
  // Its buffer is the last one; a kernel whose launch has none does not get it.
  if (body.find("(work + ") != std::string::npos)
    g.params.push_back({"u8* work", first_result_ + static_cast<int>(loops_.results.size())});
  g.helpers = helpers_;
  g.body = constants_text(loops_) + body;
  g.blocks = blocks;
  g.threads = threads;
  kernels_.push_back(std::move(g));
}

std::vector<int> RegionKernels::kept_results() const {
  std::vector<int> list;
  for (size_t r = 0; r < loops_.results.size(); ++r) {
    if (!is_full(static_cast<int>(r)) && !is_column(static_cast<int>(r))) list.push_back(static_cast<int>(r));
  }
  return list;
}

std::string RegionKernels::store_kept(NodeText& scope, const std::vector<int>& results) const {
  std::string stores;
  for (int r : results) {
    const ops::Loops::Result& result = loops_.results[static_cast<size_t>(r)];
    stores += fmt::format("y{}[{}] = {};\n", r, scope.offset(result.place), scope.element(result.node));
  }
  return stores;
}

PreparedKernel RegionKernels::prepared_kernel(const char* variant) {
  PreparedKernel kernel = prepared(std::move(kernels_), workspace_bytes_);
  kernel.variant = variant;
  return kernel;
}

std::vector<std::string> coordinate_names(const ops::Loops& loops, const char* prefix) {
  std::vector<std::string> list;
  for (size_t k = 0; k < loops.dims.size(); ++k) list.push_back(fmt::format("{}{}", prefix, k));
  return list;
}

void give_an_axis(ops::Loops& loops) {
  if (!loops.dims.empty()) return;
  loops.dims = {1};
  loops.first_reduced = loops.end_reduced = 1;
  for (Node& node : loops.nodes) {
    const bool placed = node.kind == Node::Kind::load || node.kind == Node::Kind::index ||
                        node.kind == Node::Kind::bits || node.kind == Node::Kind::product;
    if (placed) node.place.strides = {0};
  }
  for (ops::Loops::Result& result : loops.results) result.place.strides = {0};
}

namespace {

bool accepts(const KernelQuery& query) {
  const auto is_f64 = [](const TensorType& t) { return t.dtype == f64; };
  if (std::any_of(query.in.begin(), query.in.end(), is_f64)) return false;
  const auto loops = ops::loops_of(*query.region);
  return loops && loops->kind != ops::Loops::Kind::epilogue &&
         std::none_of(loops->nodes.begin(), loops->nodes.end(), [](const Node& n) { return n.dtype == f64; });
}

PreparedKernel prepare(const KernelQuery& query) {
  ops::Loops loops = *ops::loops_of(*query.region);
  give_an_axis(loops);
  const std::string what = ir::call_text(query.def, query.in);
  const auto first_result = static_cast<int>(query.in.size());
  if (loops.kind == ops::Loops::Kind::pointwise) {
    PreparedKernel kernel = prepared(elementwise(what, loops, first_result));
    kernel.variant = "elementwise";
    return kernel;
  }
  RegionKernels kernels(what, loops, first_result);
  if (loops.inner() == 1) {
    add_row_kernels(kernels);
    return kernels.prepared_kernel("rows");
  }
  add_column_kernels(kernels);
  return kernels.prepared_kernel("columns");
}

}  // namespace

void register_fused(KernelTable& table) {
  table.push_back({.op = "fused", .variant = "loops", .accepts = accepts, .prepare = prepare});
  add_epilogue_kernels(table);
}

}  // namespace aicf::backend::cuda
