// Fused regions that reduce along rows and use the results with the same rows; and sums over the rows beside.
#include <algorithm>
#include <cstring>

#include "backend/cpu/fused.h"
#include "backend/cpu/partition.h"

namespace aicf::backend::cpu {
namespace {

using Node = ops::Loops::Node;

void run_rows(const KernelArgs& args, int part, int parts) {
  const FusedParams& params = fused_params(args);
  const Program& p = params.main;
  TileRun run(p, args);
  run.set_block_row(part);
  if (p.columns.empty()) {
    const Range groups = share((p.rows + p.group - 1) / p.group, part, parts);
    run.rows(groups.begin * p.group, std::min(groups.end * p.group, p.rows));
    return;
  }
  constexpr auto kChunk = static_cast<int64_t>(kColumnChunk);
  const Range chunks = share(params.chunks, part, parts);
  for (int64_t chunk = chunks.begin; chunk < chunks.end; ++chunk) {
    run.set_chunk(chunk);
    run.start_chunk(0, p.length);
    run.rows(chunk * kChunk, std::min((chunk + 1) * kChunk, p.rows));
  }
}

// The chunks' results to one, and to the region's.
void finish_columns(const KernelArgs& args, int part, int parts) {
  const FusedParams& params = fused_params(args);
  const Range columns = share(params.main.length, part, parts);
  const auto first = static_cast<size_t>(columns.begin), n = static_cast<size_t>(columns.end - columns.begin);
  for (const FusedParams::Meeting& m : params.meetings) {
    const Partial& r = m.partial;
    char* const x = r.at.in(args) + first * r.size;
    r.tree->combine_chunks(r.kind, x, static_cast<size_t>(params.chunks), static_cast<size_t>(params.main.length), n);
    const size_t size = m.narrow != nullptr ? sizeof(uint16_t) : r.size;
    for (const At& result : m.results) {
      char* const to = result.in(args) + first * size;
      const void* const from = x;
      if (m.narrow != nullptr) {
        m.narrow(&from, to, n);
      } else {
        std::memcpy(to, from, n * size);
      }
    }
  }
}

}  // namespace

bool prepare_rows(const FusedQuery& query, FusedParams& params, PreparedKernel& kernel) {
  const ops::Loops& loops = query.loops;
  Frame frame = {.axes = query.all_axes(), .row_axes = loops.first_reduced};
  frame.reduces = query.nodes(Node::Kind::reduce);
  frame.columns = query.nodes(Node::Kind::column);
  for (int r = 0; r < query.results; ++r) {
    const Node& node = loops.nodes[static_cast<size_t>(loops.results[static_cast<size_t>(r)].node)];
    if (node.kind != Node::Kind::column) frame.results.push_back(r);
  }
  std::optional<Program> program = compile(loops, query.region, frame, {.operands = query.operands});
  if (!program) return false;
  Program& p = params.main = std::move(*program);
  params.chunks = static_cast<int64_t>(blocks_of(static_cast<size_t>(p.rows), kColumnChunk));
  const bool has_columns = !p.columns.empty();
  const int parts = parts_for(loops.elements(), has_columns ? params.chunks : (p.rows + p.group - 1) / p.group);
  for (Partial& r : p.reduces) {
    r.at = reserve(kernel, query, static_cast<size_t>(parts * p.blocks()) * r.size);
  }
  for (Partial& r : p.columns) {
    r.at = reserve(kernel, query, static_cast<size_t>(params.chunks * p.length) * r.size);
    const DType dtype = loops.nodes[static_cast<size_t>(r.node)].dtype;
    FusedParams::Meeting m = {.partial = r};
    if (dtype == bf16 || dtype == f16) m.narrow = find_cast(f32, dtype);
    for (int i = 0; i < query.results; ++i) {
      if (loops.results[static_cast<size_t>(i)].node == r.node) m.results.push_back({query.operands + i, 0});
    }
    params.meetings.push_back(std::move(m));
  }
  kernel.phases.push_back({run_rows, parts});
  if (has_columns) kernel.phases.push_back({finish_columns, parts_for(params.chunks * p.length, p.length)});
  return true;
}

}  // namespace aicf::backend::cpu
