// Offsets of the arena: buffers whose lifetimes in launch order do not meet may share bytes.
#include <algorithm>
#include <numeric>

#include "plan/draft.h"

namespace aicf::plan {
namespace {

constexpr size_t kAlignment = 256;

size_t round_up(size_t bytes) { return (bytes + kAlignment - 1) / kAlignment * kAlignment; }

struct Life {
  BufferId buffer = kNoBuffer;
  size_t bytes = 0;  // rounded up
  int first = -1;    // launches
  int last = -1;
  size_t offset = 0;
};

// Only buffers with bytes: an empty one conflicts with nothing.
std::vector<Life> lifetimes(const ExecPlan& plan) {
  std::vector<Life> by_buffer(plan.buffers.size());
  for (int i = 0; i < static_cast<int>(plan.launches.size()); ++i) {
    const Launch& launch = plan.launches[i];
    auto touch = [&](BufferId b) {
      if (b == kNoBuffer) return;
      if (by_buffer[b].first < 0) by_buffer[b].first = i;
      by_buffer[b].last = i;
    };
    for (BufferId b : launch.reads) touch(b);
    for (BufferId b : launch.writes) touch(b);
    touch(launch.workspace);
    touch(launch.guard);
  }
  std::vector<Life> lives;
  for (BufferId b = 0; b < static_cast<BufferId>(plan.buffers.size()); ++b) {
    if (plan.buffers[b].home != Home::arena || plan.buffers[b].bytes == 0) continue;
    by_buffer[b].buffer = b;
    by_buffer[b].bytes = round_up(plan.buffers[b].bytes);
    lives.push_back(by_buffer[b]);
  }
  return lives;
}

size_t live_peak(const std::vector<Life>& lives, size_t launches) {
  std::vector<size_t> starting(launches + 1, 0), ending(launches + 1, 0);
  for (const Life& life : lives) {
    starting[life.first] += life.bytes;
    ending[life.last + 1] += life.bytes;
  }
  size_t now = 0, peak = 0;
  for (size_t i = 0; i < launches; ++i) {
    now += starting[i] - ending[i];
    peak = std::max(peak, now);
  }
  return peak;
}

// Gives each buffer, in this order, the lowest offset free for its whole life. Returns the arena's size.
size_t first_fit(std::vector<Life>& lives, const std::vector<size_t>& order, bool reuse) {
  std::vector<size_t> placed;  // sorted by offset
  size_t arena = 0;
  for (size_t index : order) {
    Life& life = lives[index];
    life.offset = 0;
    for (size_t other : placed) {
      const Life& o = lives[other];
      if (reuse && (o.last < life.first || life.last < o.first)) continue;
      if (o.offset >= life.offset + life.bytes) break;
      life.offset = std::max(life.offset, o.offset + o.bytes);
    }
    arena = std::max(arena, life.offset + life.bytes);
    placed.insert(std::upper_bound(placed.begin(), placed.end(), index,
                                   [&](size_t a, size_t b) { return lives[a].offset < lives[b].offset; }),
                  index);
  }
  return arena;
}

}  // namespace

// First fit in launch order, and again with the largest first: each beats the other on some graphs, the smaller is
// kept.
void place_arena(ExecPlan& plan, bool reuse) {
  std::vector<Life> lives = lifetimes(plan);
  plan.live_peak_bytes = live_peak(lives, plan.launches.size());
  std::vector<size_t> order(lives.size());
  std::iota(order.begin(), order.end(), size_t{0});
  std::stable_sort(order.begin(), order.end(), [&](size_t a, size_t b) { return lives[a].first < lives[b].first; });
  plan.arena_bytes = first_fit(lives, order, reuse);
  if (reuse && plan.arena_bytes > plan.live_peak_bytes) {
    std::vector<Life> again = lives;
    std::stable_sort(order.begin(), order.end(), [&](size_t a, size_t b) { return lives[a].bytes > lives[b].bytes; });
    const size_t bytes = first_fit(again, order, reuse);
    if (bytes < plan.arena_bytes) {
      plan.arena_bytes = bytes;
      lives = std::move(again);
    }
  }
  for (const Life& life : lives) plan.buffers[life.buffer].offset = life.offset;
}

}  // namespace aicf::plan
