#include "backend/cuda/fused_row_plan.h"

#include <algorithm>
#include <array>
#include <bit>
#include <string_view>

#include "backend/cuda/text.h"

namespace aicf::backend::cuda {

using Node = ops::Loops::Node;

namespace {

// Registers of a thread for what it keeps.
constexpr int64_t kKeptWords = 96;
// Groups of a thread block, so that each thread may have 128 registers.
constexpr int64_t kMostGroups = 16;
// Elements of a thread in short rows: more of them to a warp is worth wider loads.
constexpr int64_t kFewElements = 16;

// To compute it again is cheaper than to keep it.
bool is_light(const Node& node) {
  constexpr std::array kLight = {"add",     "sub",         "mul",        "neg",           "abs",
                                 "maximum", "minimum",     "equal",      "less",          "not_equal",
                                 "cast",    "less_equal",  "greater",    "greater_equal", "select",
                                 "relu",    "logical_and", "logical_or", "logical_not"};
  if (node.kind == Node::Kind::bits) return false;
  return node.kind != Node::Kind::op ||
         std::any_of(kLight.begin(), kLight.end(), [&](std::string_view name) { return name == node.def->name; });
}

}  // namespace

RowPlan::RowPlan(const RegionKernels& kernels) : kernels_(kernels), loops_(kernels.loops()) {
  rows = loops_.outer();
  n = loops_.n();
  find_stages();
  choose_arrays(false);
  share_out();
  if (spread) {
    resident = false;
  } else {
    choose_arrays(true);
    resident = kept_words() <= kKeptWords;
    if (!resident) choose_arrays(false);
  }
  int64_t column_words = 0;
  for (int id : kernels_.of_kind(Node::Kind::column)) {
    column_words +=
        static_cast<int64_t>(kernels_.accumulator_size(kernels_.node(id))) / 4 * group_blocks * block_packs * length;
  }
  columns_kept = resident && kept_words() + column_words <= kKeptWords * 3 / 2;
}

bool RowPlan::is_exact() const {
  const int64_t per_block = static_cast<int64_t>(group) * length * block_packs;
  return n % per_block == 0 && (spread || blocks == static_cast<int64_t>(groups) * group_blocks);
}

void RowPlan::find_stages() {
  for (const Node& node : loops_.nodes) {
    if (node.kind != Node::Kind::reduce) continue;
    last_stage = std::max(last_stage, node.stage);
    element_stage = std::max(element_stage, node.stage - 1);
  }
  for (size_t r = 0; r < loops_.results.size(); ++r) {
    const int id = loops_.results[r].node;
    if (kernels_.is_column(static_cast<int>(r)) || kernels_.is_full(static_cast<int>(r)))
      element_stage = std::max(element_stage, kernels_.node(id).stage);
  }
}

void RowPlan::demand(int node, int stage) {
  const Node& n = kernels_.node(node);
  if (!kernels_.varies(node) || visits[stage][node]) return;
  visits[stage][node] = true;
  if (cut_[node] >= 0 && stage > cut_[node]) {
    demand(node, cut_[node]);
    return;
  }
  for (int input : n.inputs) demand(input, stage);
}

void RowPlan::demand_all() {
  visits.assign(static_cast<size_t>(last_stage) + 1, std::vector<bool>(loops_.nodes.size(), false));
  for (const Node& node : loops_.nodes) {
    if (node.kind == Node::Kind::reduce) demand(node.inputs[0], node.stage - 1);
    if (node.kind == Node::Kind::column) demand(node.inputs[0], element_stage);
  }
  for (size_t r = 0; r < loops_.results.size(); ++r) {
    if (kernels_.is_full(static_cast<int>(r))) demand(loops_.results[r].node, element_stage);
  }
}

// Read from memory, and not out of a cache.
bool RowPlan::is_stream(int node) const {
  const Node& n = kernels_.node(node);
  const uint64_t outer = ops::Loops::mask(0, loops_.first_reduced);
  return n.kind == Node::Kind::load && (outer == 0 || (n.axes & outer) != 0);
}

void RowPlan::choose_arrays(bool keep) {
  cut_.assign(loops_.nodes.size(), -1);
  arrays.assign(loops_.nodes.size(), {});
  demand_all();
  const auto range_of = [&](size_t id) {
    Array range;
    for (int stage = 0; stage <= last_stage; ++stage) {
      if (!visits[stage][id]) continue;
      if (range.first < 0) range.first = stage;
      range.last = stage;
    }
    return range;
  };
  if (keep) {
    for (size_t id = 0; id < loops_.nodes.size(); ++id) {
      const Array range = range_of(id);
      const bool worth = is_stream(static_cast<int>(id)) || !is_light(loops_.nodes[id]);
      if (worth && range.first < range.last) cut_[id] = range.first;
    }
    demand_all();
  }
  for (size_t id = 0; id < loops_.nodes.size(); ++id) {
    const Array range = range_of(id);
    if (range.first >= 0 && (is_stream(static_cast<int>(id)) || (cut_[id] >= 0 && range.first < range.last)))
      arrays[id] = range;
  }
}

int64_t RowPlan::pack_words(int node) const {
  return std::max<int64_t>(1, length * static_cast<int64_t>(size_of(kernels_.node(node).dtype)) / 4);
}

int64_t RowPlan::kept_words() const {
  int64_t most = 0;
  for (int stage = 0; stage <= last_stage; ++stage) {
    int64_t words = 0;
    for (size_t id = 0; id < arrays.size(); ++id) {
      if (arrays[id].first >= 0 && arrays[id].first <= stage && stage <= arrays[id].last)
        words += pack_words(static_cast<int>(id)) * group_blocks * block_packs;
    }
    most = std::max(most, words);
  }
  return most;
}

void RowPlan::share_out() {
  const auto block = static_cast<int64_t>(kRowBlock);
  blocks = static_cast<int64_t>(blocks_of(static_cast<size_t>(n), kRowBlock));
  const bool columns = !kernels_.of_kind(Node::Kind::column).empty();
  chunks = static_cast<int64_t>(blocks_of(static_cast<size_t>(rows), kColumnChunk));
  // A thread block that walks a long row alone would leave the others idle.
  spread = loops_.kind == ops::Loops::Kind::reduce && (blocks > block || (blocks > 64 && rows < 264));

  const auto lanes = static_cast<int64_t>(std::min<uint64_t>(kRowLanes, std::bit_ceil(static_cast<uint64_t>(n))));
  size_t widest = 1;
  for (size_t id = 0; id < arrays.size(); ++id) {
    if (arrays[id].first >= 0) widest = std::max(widest, size_of(loops_.nodes[id].dtype));
  }
  const int64_t last_axis = loops_.dims[static_cast<size_t>(loops_.end_reduced) - 1];
  const auto elements = [&] {  // of a thread in one block
    return (std::min(n, block) * length + lanes - 1) / lanes;
  };
  length = static_cast<int>(std::min<int64_t>(vector_length(last_axis, widest), lanes));
  const int64_t together = columns ? chunks : spread ? rows * blocks : rows;
  while (length > 1 && lanes / length < 32 &&
         (elements() > kFewElements || together * (lanes / length) < kFewThreads)) {
    length /= 2;
  }
  group = static_cast<int>(std::min<int64_t>(32, lanes / length));
  vectors = static_cast<int>(lanes / length / group);
  const int64_t step = static_cast<int64_t>(group) * length;
  block_packs = static_cast<int>((std::min(n, block) + step - 1) / step);
  if (!spread && blocks > 1) {
    group_blocks = static_cast<int>((blocks + kMostGroups - 1) / kMostGroups);
    groups = static_cast<int>((blocks + group_blocks - 1) / group_blocks);
  }
  threads = groups > 1 ? group * groups : 128;
  while (blocks == 1 && threads > 32 && together * group < 264 * threads) threads /= 2;
  units = threads / (group * groups);
  thread_blocks = (together + units - 1) / units;
}

}  // namespace aicf::backend::cuda
