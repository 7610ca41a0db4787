// Which tile a problem is cut into: an estimate of cycles from measured rates of an H200, others being much the same.
#include <algorithm>

#include "backend/cuda/mma.h"

namespace aicf::backend::cuda {
namespace {

constexpr double kMultiprocessors = 132;
constexpr double kCyclesPerMicrosecond = 1755;
// Into one multiprocessor from L2, and from memory into all of them.
constexpr double kBytesPerCycle = 30;
constexpr double kMemoryBytesPerCycle = 2200;
// A round trip to L2, with what comes before and after the loop.
constexpr double kStart = 1400;
// Between tiles of the inner axis: the wait for copies, the barrier, fragments of the first step.
constexpr double kBetween = 110;
// From one instruction to the next that adds to its sum; and of one scheduler, by which an instruction is done.
constexpr double kLatency = 25, kIssue = 8;
// Of f32 without tensor cores: per scheduler and step of 8, for a piece of 16 × 8.
constexpr double kFmaIssue = 40;
constexpr int64_t kShared = 48 << 10;

// m, n, bytes of the inner axis, warps.
constexpr MmaTile kTiles[] = {
    {16, 8, 512, 1, 1, 8},  {16, 16, 256, 1, 1, 8}, {16, 32, 256, 1, 2, 4},  {32, 16, 256, 2, 1, 4},
    {32, 32, 128, 2, 2, 2}, {64, 32, 128, 2, 2, 2}, {32, 64, 128, 2, 2, 2},  {64, 64, 64, 2, 2, 2},
    {64, 64, 128, 2, 2, 2}, {128, 64, 64, 4, 2, 1}, {128, 128, 64, 4, 2, 1},
};

int64_t up(int64_t x, int64_t to) { return (x + to - 1) / to; }

// As padded() of the kernel.
int64_t operand_bytes(int rows, int inner, bool inner_rows, DType dtype) {
  const auto size = static_cast<int64_t>(size_of(dtype));
  if (inner_rows) return rows * (inner + (size == 4 ? 4 : 8)) * size;
  return inner * (rows + (rows % 16 == 0 ? 8 : 0)) * size;
}

int64_t stage_bytes(const MmaProblem& p, const MmaTile& t) {
  return operand_bytes(t.bm, t.bk, !p.grid.ta, p.in) + operand_bytes(t.bn, t.bk, p.grid.tb, p.in);
}

// The tile for this problem: its inner extent no longer than needed, and as many stages as find room and work.
MmaTile fitted(const MmaProblem& p, MmaTile t) {
  const auto size = static_cast<int>(size_of(p.in));
  const int step = size == 4 ? 8 : 16, least = step * t.inner;
  t.bk /= size;
  while (t.bk / 2 >= least && t.bk / 2 >= p.grid.k) t.bk /= 2;
  const int64_t tiles = std::max<int64_t>(1, up(p.grid.k, t.bk));
  t.stages = static_cast<int>(std::min({kShared / stage_bytes(p, t), int64_t{4}, tiles + 1}));
  return t;
}

double cycles(const MmaProblem& p, const MmaTile& t) {
  const MatmulGrid& g = p.grid;
  const auto size = static_cast<double>(size_of(p.in));
  const auto blocks = static_cast<double>(g.products() * up(g.m, t.bm) * up(g.n, t.bn));
  const int step = size_of(p.in) == 4 ? 8 : 16;
  const auto iterations = static_cast<double>(up(g.k, t.bk));
  // Of one block.
  const double bytes = iterations * t.bk * (t.bm + t.bn) * size;
  const double pieces = static_cast<double>(t.bm / t.m / 16) * (t.bn / t.n / 8);
  const double steps = iterations * t.bk / step / t.inner;  // of a warp
  const double issue = (p.tensor() ? kIssue : kFmaIssue) * pieces;
  const double warps = t.threads() / 32.0;
  const double busy = steps * issue * std::max(1.0, warps / 4);  // its scheduler
  const double chain = steps * std::max(issue, kLatency) + iterations * kBetween;
  const double resident = std::min(
      {65536.0 / (t.threads() * 128), static_cast<double>((227 << 10) / (stage_bytes(p, t) * t.stages + 1024)), 8.0});
  const double each = up(static_cast<int64_t>(blocks), static_cast<int64_t>(kMultiprocessors));  // blocks a processor
  const double rounds = std::max(1.0, each / std::max(1.0, resident));
  const double in = each * bytes / kBytesPerCycle;
  const double memory =
      (static_cast<double>(g.m) * static_cast<double>(g.k) + static_cast<double>(g.k) * static_cast<double>(g.n)) *
      static_cast<double>(g.products()) * size / kMemoryBytesPerCycle;
  return kStart * std::max(1.0, rounds / 2) + std::max({in, each * busy, rounds * chain, memory}) + t.inner * 20.0;
}

}  // namespace

int pool_bytes(const MmaProblem& problem, const MmaTile& tile) {
  const int64_t tiles = stage_bytes(problem, tile) * tile.stages;
  const int64_t sums = tile.inner > 1 ? int64_t{4} * tile.inner * tile.bm * (tile.bn + 8) : 0;
  return static_cast<int>(std::max(tiles, sums));
}

std::vector<MmaChoice> possible_tiles(const MmaProblem& problem) {
  std::vector<MmaChoice> choices;
  for (const MmaTile& tile : kTiles) {
    const MmaTile fit = fitted(problem, tile);
    if (fit.stages >= 2) choices.push_back({fit, cycles(problem, fit) / kCyclesPerMicrosecond});
  }
  return choices;
}

MmaChoice choose_tile(const MmaProblem& problem) {
  const std::vector<MmaChoice> all = possible_tiles(problem);
  return *std::min_element(all.begin(), all.end(),
                           [](const MmaChoice& x, const MmaChoice& y) { return x.microseconds < y.microseconds; });
}

}  // namespace aicf::backend::cuda
