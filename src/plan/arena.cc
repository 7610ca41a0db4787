// Offsets of the arena: buffers whose lifetimes do not meet may share bytes.
#include <algorithm>
#include <cstdint>
#include <numeric>
#include <utility>

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

// Which buffers may share bytes.
class Sharing {
 public:
  static Sharing none() { return Sharing(); }
  // Those apart in launch order, whatever other order there is.
  static Sharing in_launch_order() {
    Sharing s;
    s.from_bytes_ = 0;
    return s;
  }
  // Those that `after` says are apart in every order of the plan's edges: after[b] holds bit i when launch i follows
  // every launch that touches buffer b. And those apart in launch order when both are at least this large.
  static Sharing in_any_order(std::vector<std::vector<bool>> after, size_t from_bytes) {
    Sharing s;
    s.after_ = std::move(after);
    s.from_bytes_ = from_bytes;
    return s;
  }

  bool ordered(const Life& earlier, const Life& later) const {
    return !after_.empty() && after_[static_cast<size_t>(earlier.buffer)][static_cast<size_t>(later.first)];
  }
  bool may(const Life& a, const Life& b) const {
    const Life& earlier = a.first < b.first ? a : b;
    const Life& later = a.first < b.first ? b : a;
    if (earlier.last >= later.first) return false;
    return ordered(earlier, later) || std::min(a.bytes, b.bytes) >= from_bytes_;
  }
  void also_from(size_t bytes) { from_bytes_ = bytes; }

 private:
  Sharing() = default;
  std::vector<std::vector<bool>> after_;
  size_t from_bytes_ = SIZE_MAX;
};

// By buffer: the launches that follow, by the plan's edges, all launches that touch it.
std::vector<std::vector<bool>> launches_after(const ExecPlan& plan) {
  const size_t count = plan.launches.size();
  std::vector<std::vector<bool>> reach(count, std::vector<bool>(count, false));
  for (size_t i = plan.edges.size(); i-- > 0;) {  // sorted by `from`: the reach of `to` is complete
    const auto from = static_cast<size_t>(plan.edges[i].from), to = static_cast<size_t>(plan.edges[i].to);
    if (reach[from][to]) continue;
    reach[from][to] = true;
    for (size_t k = to + 1; k < count; ++k) {
      if (reach[to][k]) reach[from][k] = true;
    }
  }
  std::vector<std::vector<bool>> after(plan.buffers.size());
  for (size_t i = 0; i < count; ++i) {
    const auto touch = [&](BufferId b) {
      if (b == kNoBuffer || plan.buffers[static_cast<size_t>(b)].home != Home::arena) return;
      std::vector<bool>& mask = after[static_cast<size_t>(b)];
      if (mask.empty()) mask.assign(count, true);
      for (size_t k = 0; k < count; ++k) mask[k] = mask[k] && reach[i][k];
    };
    const Launch& launch = plan.launches[i];
    for (BufferId b : launch.reads) touch(b);
    for (BufferId b : launch.writes) touch(b);
    touch(launch.workspace);
    touch(launch.guard);
  }
  return after;
}

// Gives each buffer, in this order, the lowest offset free for its whole life. Returns the arena's size.
size_t first_fit(std::vector<Life>& lives, const std::vector<size_t>& order, const Sharing& sharing) {
  std::vector<size_t> placed;  // sorted by offset
  size_t arena = 0;
  for (size_t index : order) {
    Life& life = lives[index];
    life.offset = 0;
    for (size_t other : placed) {
      const Life& o = lives[other];
      if (sharing.may(o, life)) continue;
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

// First fit in launch order, and again with the largest first: each beats the other on some graphs, the smaller is
// kept.
size_t place(std::vector<Life>& lives, const Sharing& sharing, size_t lower_bound) {
  std::vector<size_t> order(lives.size());
  std::iota(order.begin(), order.end(), size_t{0});
  std::stable_sort(order.begin(), order.end(), [&](size_t a, size_t b) { return lives[a].first < lives[b].first; });
  const size_t bytes = first_fit(lives, order, sharing);
  if (bytes <= lower_bound) return bytes;
  std::vector<Life> again = lives;
  std::stable_sort(order.begin(), order.end(), [&](size_t a, size_t b) { return lives[a].bytes > lives[b].bytes; });
  const size_t other = first_fit(again, order, sharing);
  if (other >= bytes) return bytes;
  lives = std::move(again);
  return other;
}

void store(ExecPlan& plan, const std::vector<Life>& lives, size_t bytes) {
  plan.arena_bytes = bytes;
  for (const Life& life : lives) plan.buffers[static_cast<size_t>(life.buffer)].offset = life.offset;
}

// Shares only what an order exists for anyway; where that takes too much, the largest buffers share in launch order
// too.
void place_concurrent(ExecPlan& plan, std::vector<Life>& lives, const Options& options) {
  // The order that there is without sharing.
  store(plan, lives, place(lives, Sharing::none(), 0));
  add_edges(plan);
  Sharing sharing = Sharing::in_any_order(launches_after(plan), SIZE_MAX);
  plan.edges.clear();
  std::vector<size_t> sizes;
  for (const Life& life : lives) sizes.push_back(life.bytes);
  std::sort(sizes.rbegin(), sizes.rend());
  sizes.erase(std::unique(sizes.begin(), sizes.end()), sizes.end());
  const size_t limit = std::max(options.ample_bytes, plan.live_peak_bytes + plan.live_peak_bytes / 10);
  size_t bytes = place(lives, sharing, plan.live_peak_bytes);
  for (size_t from : sizes) {
    if (bytes <= limit) break;
    sharing.also_from(from);
    bytes = place(lives, sharing, plan.live_peak_bytes);
  }
  store(plan, lives, bytes);
  for (const Life& later : lives) {
    for (const Life& earlier : lives) {
      const bool meet = earlier.offset < later.offset + later.bytes && later.offset < earlier.offset + earlier.bytes;
      if (meet && earlier.first < later.first && !sharing.ordered(earlier, later)) {
        plan.memory_orders.push_back(
            {earlier.buffer, later.buffer, plan.buffers[static_cast<size_t>(later.buffer)].bytes});
      }
    }
  }
}

}  // namespace

void place_arena(ExecPlan& plan, const Options& options) {
  std::vector<Life> lives = lifetimes(plan);
  plan.live_peak_bytes = live_peak(lives, plan.launches.size());
  if (options.reuse && options.concurrent) {
    place_concurrent(plan, lives, options);
  } else {
    const Sharing sharing = options.reuse ? Sharing::in_launch_order() : Sharing::none();
    store(plan, lives, place(lives, sharing, plan.live_peak_bytes));
  }
}

}  // namespace aicf::plan
