// Dependency edges: for each byte, who must wait for whom.
#include <algorithm>
#include <tuple>

#include "plan/draft.h"

namespace aicf::plan {
namespace {

// A run of bytes that every buffer covers wholly or not at all.
struct Run {
  int writer = -1;
  std::vector<int> readers;  // since that write
};

// The runs of each buffer: arena buffers are cut where any of them begins or ends; any other buffer is one run.
class Memory {
 public:
  explicit Memory(const ExecPlan& plan) {
    std::vector<size_t> cuts;
    for (const Buffer& b : plan.buffers) {
      if (b.home == Home::arena && b.bytes > 0) cuts.insert(cuts.end(), {b.offset, b.offset + b.bytes});
    }
    std::sort(cuts.begin(), cuts.end());
    cuts.erase(std::unique(cuts.begin(), cuts.end()), cuts.end());
    size_t count = cuts.size();
    auto cut = [&](size_t at) {
      return static_cast<size_t>(std::lower_bound(cuts.begin(), cuts.end(), at) - cuts.begin());
    };
    for (const Buffer& b : plan.buffers) {
      if (b.bytes == 0) {
        range_.push_back({0, 0});
      } else if (b.home == Home::arena) {
        range_.push_back({cut(b.offset), cut(b.offset + b.bytes)});
      } else {
        range_.push_back({count, count + 1});
        ++count;
      }
    }
    runs_.resize(count);
  }

  std::span<Run> runs(BufferId buffer) {
    return std::span(runs_).subspan(range_[buffer].first, range_[buffer].second - range_[buffer].first);
  }

 private:
  std::vector<Run> runs_;
  std::vector<std::pair<size_t, size_t>> range_;
};

}  // namespace

void add_edges(ExecPlan& plan) {
  Memory memory(plan);
  auto add = [&](int from, int to, Hazard hazard) {
    if (from >= 0 && from != to) plan.edges.push_back({from, to, hazard});
  };
  for (int i = 0; i < static_cast<int>(plan.launches.size()); ++i) {
    const Launch& launch = plan.launches[i];
    auto read = [&](BufferId b) {
      for (Run& run : memory.runs(b)) {
        add(run.writer, i, Hazard::raw);
        run.readers.push_back(i);
      }
    };
    auto write = [&](BufferId b) {
      for (Run& run : memory.runs(b)) {
        for (int reader : run.readers) add(reader, i, Hazard::war);
        add(run.writer, i, Hazard::waw);
        run.readers.clear();
        run.writer = i;
      }
    };
    for (BufferId b : launch.reads) read(b);
    if (launch.guard != kNoBuffer) read(launch.guard);
    for (BufferId b : launch.writes) write(b);
    if (launch.workspace != kNoBuffer) write(launch.workspace);
  }
  auto key = [](const Edge& e) { return std::tuple(e.from, e.to, e.hazard); };
  std::sort(plan.edges.begin(), plan.edges.end(), [&](const Edge& a, const Edge& b) { return key(a) < key(b); });
  plan.edges.erase(
      std::unique(plan.edges.begin(), plan.edges.end(), [&](const Edge& a, const Edge& b) { return key(a) == key(b); }),
      plan.edges.end());
}

}  // namespace aicf::plan
