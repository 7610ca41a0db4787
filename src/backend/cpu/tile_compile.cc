// The choice of the tile: a region is compiled for smaller and smaller ones until its values fit the scratch.
#include <algorithm>

#include "backend/cpu/tile_draft.h"

namespace aicf::backend::cpu {
namespace {

// Enough to hide what an instruction costs beside its elements. Values of rows that are reduced pass through the
// scratch more often.
constexpr int64_t kMostElements = 2048, kMostOfRows = 1024, kFewestElements = 256;
// Of a row that is held as a whole.
constexpr int64_t kLongestRow = 4096;
constexpr int64_t kMostRows = 256;
// Rows of a band: those that a line of an operand reaches into. Its rows' lengths: what is read of a shorter one stays
// in the first-level cache from row to row.
constexpr int64_t kBandRows = 16, kBandElements = 256, kShortestOfBand = 256, kLongestOfBand = 2048;
// Of slots, beside the operands and results that pass through the first-level cache.
constexpr size_t kSlotsBytes = size_t{20} << 10;

// How many rows are loaded together, because an operand lies across lines; 1: none does.
int64_t band_of(const ops::Loops& loops, const Frame& frame) {
  const bool across = std::any_of(loops.nodes.begin(), loops.nodes.end(), [&](const ops::Loops::Node& node) {
    return node.kind == ops::Loops::Node::Kind::load && node.pick == 0 && across_of(loops, frame, node.place) != 0;
  });
  if (!across || !frame.columns.empty() || frame.blocks_apart) return 1;
  const int64_t rows = loops.dims[static_cast<size_t>(frame.axes[static_cast<size_t>(frame.row_axes) - 1])];
  int64_t band = kBandRows;
  while (rows % band != 0) --band;
  return band;
}

}  // namespace

std::optional<Program> compile(const ops::Loops& loops, const ir::Graph& region, const Frame& frame,
                               const Sources& sources) {
  int64_t rows = 1, length = 1;
  for (size_t i = 0; i < frame.axes.size(); ++i) {
    (static_cast<int>(i) < frame.row_axes ? rows : length) *= loops.dims[static_cast<size_t>(frame.axes[i])];
  }
  const bool reduces = !frame.reduces.empty();
  const auto at = [&](const Shape& shape) {
    Draft draft = draft_of(loops, region, frame, sources, shape);
    form_chains(draft);
    allocate(draft);
    return std::move(draft.program);
  };
  const auto rows_of = [&](int64_t elements) {
    return std::clamp<int64_t>(elements / length, 1, std::min(rows, kMostRows));
  };
  const int64_t band = band_of(loops, frame);
  if (band > 1 && length >= kShortestOfBand && (!reduces || length <= kLongestOfBand)) {
    const int64_t tile = reduces ? length : kBandElements;
    Program program = at({.group = 1, .tile = tile, .whole = reduces, .band = band});
    if (program.scratch_bytes <= kScratchBytes) return program;
  }
  if (reduces && !frame.blocks_apart && length <= kLongestRow) {
    for (int64_t elements = kMostOfRows;; elements /= 2) {
      const int64_t group = rows_of(elements);
      Program program = at({.group = group, .tile = group * length, .whole = true});
      const bool small = program.slots_bytes <= kSlotsBytes || elements <= kFewestElements;
      if (program.scratch_bytes <= kScratchBytes && (small || group == 1)) return program;
      if (group == 1) break;
    }
  }
  // Lanes are started with a block of a row: a tile lies within one.
  const int64_t most = reduces ? static_cast<int64_t>(kRowBlock) : kMostElements;
  for (int64_t elements = most; elements >= static_cast<int64_t>(kRowLanes); elements /= 2) {
    const bool grouped = !reduces && length <= elements;
    const int64_t group = grouped ? rows_of(elements) : 1;
    Program program = at({.group = group, .tile = grouped ? group * length : elements});
    const bool small = program.slots_bytes <= kSlotsBytes || elements <= kFewestElements;
    if (small && program.scratch_bytes <= kScratchBytes) return program;
  }
  return std::nullopt;
}

}  // namespace aicf::backend::cpu
