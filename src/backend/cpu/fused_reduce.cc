// Fused regions that use the results of reductions only after them: blocks of rows or chunks of columns are shared out,
// their results meet, and a program over the kept axes does the rest.
#include <algorithm>
#include <cstring>

#include "backend/cpu/fused.h"
#include "backend/cpu/partition.h"
#include "backend/cpu/reduce_tree.h"

namespace aicf::backend::cpu {
namespace {

using Node = ops::Loops::Node;

constexpr auto kChunk = static_cast<int64_t>(kColumnChunk), kBlock = static_cast<int64_t>(kRowBlock);
// With so many rows none need be shared.
constexpr int64_t kManyRows = 16;

// Units are (row, block).
void run_blocks(const KernelArgs& args, int part, int parts) {
  const Program& p = fused_params(args).main;
  TileRun run(p, args);
  const Range units = share(p.rows * p.blocks(), part, parts);
  for (int64_t unit = units.begin; unit < units.end; ++unit) {
    const int64_t row = unit / p.blocks(), from = unit % p.blocks() * kBlock;
    run.set_block_row(row);
    run.band(row, row + 1, from, std::min(kBlock, p.length - from));
  }
}

int64_t column_tiles(const Program& p) { return p.tiles(); }

// Units are (outer, chunk, tile of columns), the tile fastest.
void run_chunks(const KernelArgs& args, int part, int parts) {
  const FusedParams& params = fused_params(args);
  const Program& p = params.main;
  TileRun run(p, args);
  const int64_t tiles = column_tiles(p);
  const Range units = share(params.outer * params.chunks * tiles, part, parts);
  for (int64_t unit = units.begin; unit < units.end; ++unit) {
    const int64_t chunk = unit / tiles, from = unit % tiles * p.tile, row = chunk % params.chunks * kChunk;
    const int64_t first = chunk / params.chunks * params.n + row, rows = std::min(kChunk, params.n - row);
    run.set_chunk(chunk);
    if (tiles == 1) {
      run.start_chunk(0, p.length);
      run.rows(first, first + rows);
    } else {
      const int64_t n = std::min(p.tile, p.length - from);
      run.start_chunk(from, n);
      run.band(first, first + rows, from, n);
    }
  }
}

void meet_blocks(const KernelArgs& args) {
  const FusedParams& params = fused_params(args);
  const auto blocks = static_cast<size_t>(params.main.blocks());
  for (const FusedParams::Meeting& m : params.meetings) {
    const Partial& r = m.partial;
    for (size_t row = 0; row < static_cast<size_t>(params.outer); ++row) {
      r.tree->combine_blocks(r.kind, r.at.in(args) + row * blocks * r.size, blocks, m.finished.in(args) + row * r.size);
    }
  }
}

int64_t meeting_tiles(const FusedParams& params) {
  return static_cast<int64_t>(blocks_of(static_cast<size_t>(params.inner), kColumnTile));
}

// Units are (outer, tile of columns).
void meet_chunks(const KernelArgs& args, int part, int parts) {
  const FusedParams& params = fused_params(args);
  const auto inner = static_cast<size_t>(params.inner), chunks = static_cast<size_t>(params.chunks);
  const int64_t tiles = meeting_tiles(params);
  const Range units = share(params.outer * tiles, part, parts);
  for (const FusedParams::Meeting& m : params.meetings) {
    const Partial& r = m.partial;
    for (int64_t unit = units.begin; unit < units.end; ++unit) {
      const auto outer = static_cast<size_t>(unit / tiles), from = static_cast<size_t>(unit % tiles) * kColumnTile;
      const size_t n = std::min(kColumnTile, inner - from);
      char* const x = r.at.in(args) + (outer * chunks * inner + from) * r.size;
      r.tree->combine_chunks(r.kind, x, chunks, inner, n);
      std::memcpy(m.finished.in(args) + (outer * inner + from) * r.size, x, n * r.size);
    }
  }
}

void run_finish(const KernelArgs& args, int part, int parts) {
  const Program& p = fused_params(args).finish;
  const Range range = share(p.units(), part, parts);
  TileRun(p, args).units(range.begin, range.end);
}

void meet_and_finish(const KernelArgs& args, int, int) {
  meet_blocks(args);
  run_finish(args, 0, 1);
}

bool has_reduced_axes(const ops::Loops& loops, const ops::Loops::Place& place) {
  for (int k = loops.first_reduced; k < loops.end_reduced; ++k) {
    if (place.strides[static_cast<size_t>(k)] != 0) return true;
  }
  return false;
}

// Space for the partial results, `count` of each, and the finished ones.
void reserve_partials(const FusedQuery& query, std::vector<Partial>& partials, int64_t count, FusedParams& params,
                      PreparedKernel& kernel) {
  const int64_t finished = params.outer * params.inner;
  for (Partial& r : partials) {
    r.at = reserve(kernel, query, static_cast<size_t>(count) * r.size);
    const At to = count == finished ? r.at : reserve(kernel, query, static_cast<size_t>(finished) * r.size);
    params.meetings.push_back({.partial = r, .finished = to});
  }
}

bool prepare_finish(const FusedQuery& query, FusedParams& params) {
  const ops::Loops& loops = query.loops;
  Frame frame = {.axes = query.axes(0, loops.first_reduced), .after_reductions = true};
  for (int k : query.axes(loops.end_reduced, static_cast<int>(loops.dims.size()))) frame.axes.push_back(k);
  for (int r = 0; r < query.results; ++r) {
    if (!has_reduced_axes(loops, loops.results[static_cast<size_t>(r)].place)) frame.results.push_back(r);
  }
  Sources sources = {.operands = query.operands};
  sources.reduced.resize(loops.nodes.size());
  for (const FusedParams::Meeting& m : params.meetings) {
    sources.reduced[static_cast<size_t>(m.partial.node)] = m.finished;
  }
  std::optional<Program> program = compile(loops, query.region, frame, sources);
  if (!program) return false;
  params.finish = std::move(*program);
  return true;
}

}  // namespace

bool prepare_reduce(const FusedQuery& query, FusedParams& params, PreparedKernel& kernel) {
  const ops::Loops& loops = query.loops;
  const bool rows = params.inner == 1;
  if (rows && (params.n <= kBlock || params.outer >= kManyRows)) return prepare_rows(query, params, kernel);
  Frame frame = {.axes = query.all_axes(), .row_axes = rows ? loops.first_reduced : loops.end_reduced};
  frame.blocks_apart = rows;
  (rows ? frame.reduces : frame.columns) = query.nodes(Node::Kind::reduce);
  for (int r = 0; r < query.results; ++r) {
    if (has_reduced_axes(loops, loops.results[static_cast<size_t>(r)].place)) frame.results.push_back(r);
  }
  std::optional<Program> program = compile(loops, query.region, frame, {.operands = query.operands});
  if (!program) return false;
  Program& p = params.main = std::move(*program);
  params.chunks = static_cast<int64_t>(blocks_of(static_cast<size_t>(params.n), kColumnChunk));
  const int64_t elements = loops.elements(), kept = params.outer * params.inner;
  if (rows) {
    reserve_partials(query, p.reduces, params.outer * p.blocks(), params, kernel);
    if (!prepare_finish(query, params)) return false;
    kernel.phases.push_back({run_blocks, parts_for(elements, p.rows * p.blocks())});
    kernel.phases.push_back({meet_and_finish, 1});
    return true;
  }
  reserve_partials(query, p.columns, params.outer * params.chunks * params.inner, params, kernel);
  if (!prepare_finish(query, params)) return false;
  kernel.phases.push_back({run_chunks, parts_for(elements, params.outer * params.chunks * column_tiles(p))});
  if (params.chunks > 1) {
    kernel.phases.push_back({meet_chunks, parts_for(kept * params.chunks, params.outer * meeting_tiles(params))});
  }
  kernel.phases.push_back({run_finish, parts_for(kept, params.finish.units())});
  return true;
}

}  // namespace aicf::backend::cpu
