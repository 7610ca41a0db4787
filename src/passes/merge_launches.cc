// group_updates: the updates of all parameters under one guard are one launch. merge_launches: so are small launches
// that do not need each other, where that makes the longest path no longer, and small products that can run at once.
// Exact: every op does what it did.
#include <algorithm>
#include <map>

#include "ir/op.h"
#include "passes/clusters.h"
#include "passes/ends.h"
#include "passes/pass.h"

namespace aicf::passes {
namespace {

using ir::OpId;
using ir::ValueId;

// A launch that moves more takes longer than what merging saves, and what it reads would be kept for longer.
constexpr double kSmallBytes = 4 << 20;
// Multiplications of a product: half a dozen microseconds on a GPU's tensor cores.
constexpr double kSmallProduct = 1 << 27;
// A launch's table of addresses is of limited size.
constexpr size_t kMaxMembers = 512;

bool is_product(const ir::Op& op) { return op.def == ir::find_op("matmul"); }

bool holds_a_product(const ir::Op& op) {
  if (is_product(op)) return true;
  if (op.region == nullptr) return false;
  return std::any_of(op.region->ops().begin(), op.region->ops().end(), holds_a_product);
}

// Products are merged that take about as long: none more than kAlike times as long as another. A small one takes as
// many steps as its inner axis is long, and as long as kStart of them to start.
constexpr double kAlike = 2, kStart = 256;

struct Product {
  double multiplications = 0, inner = 0;
};

// The matmul that the op is, or is the epilogue of; nothing: neither.
Product product_of(const ir::Graph& graph, const ir::Op& op) {
  if (is_product(op)) {
    const Shape &a = graph.type(op.inputs[0]).shape, &out = graph.type(op.outputs[0]).shape;
    const auto inner = static_cast<double>(a[a.rank() - (op.attrs.get_bool("ta") ? 2 : 1)]);
    return {static_cast<double>(out.elements()) * inner, inner};
  }
  if (op.def != ir::find_op("fused")) return {};
  const std::span<const ir::Op> body = op.region->ops();
  const auto product = std::find_if(body.begin(), body.end(), is_product);
  return product == body.end() ? Product() : product_of(*op.region, *product);
}

// A kernel of the backend's own, not a view, a library call or already several.
bool is_own_launch(const ir::Graph& graph, const ir::Op& op) {
  if (op.def->is(ir::kView) || op.def->is(ir::kComposite)) return false;
  if (op.def == ir::find_op("parallel") || holds_a_product(op)) return false;
  const auto empty = [&](ValueId v) { return graph.type(v).shape.elements() == 0; };
  return !op.inputs.empty() && std::none_of(op.outputs.begin(), op.outputs.end(), empty);
}

bool emit_groups(ir::Graph& graph, const std::vector<std::vector<OpId>>& groups) {
  Clusters clusters(graph);
  bool any = false;
  for (const std::vector<OpId>& group : groups) {
    if (group.size() < 2) continue;
    clusters.merge({group.begin(), group.end()});
    any = true;
  }
  if (!any) return false;
  graph = clusters.emitted([&](int cluster) {
    Clusters::Choice choice;
    if (clusters.ops(cluster).size() < 2) return choice;
    choice.def = ir::find_op("parallel");
    choice.body = clusters.body({cluster}, {}, Clusters::Form::side_by_side);
    return choice;
  });
  return true;
}

class Levels {
 public:
  explicit Levels(const ir::Graph& graph) : graph_(graph), ends_(ends_of(graph)) {
    fixed_.assign(static_cast<size_t>(graph.num_ops()), -1);
    find_earliest();
    group_products();
    find_latest();
  }

  std::vector<std::vector<OpId>> groups() {
    std::vector<OpId> open;
    const std::vector<char> live = live_ops(graph_);
    for (OpId id = 0; id < graph_.num_ops(); ++id) {
      const bool wanted = live[static_cast<size_t>(id)] && is_own_launch(graph_, graph_.op(id));
      if (wanted && bytes_of(id) <= kSmallBytes) open.push_back(id);
    }
    std::vector<std::vector<OpId>> all = products_;
    while (!open.empty()) {
      find_earliest();
      // A guard at the end of the longest path makes it longer: what it guards can run after it, but nothing sooner.
      const auto due = [&](OpId id) { return std::max(at(latest_, id), at(earliest_, id)); };
      int level = due(open[0]);
      for (OpId id : open) level = std::min(level, due(id));
      place(level, open, all);
    }
    return all;
  }

 private:
  static int at(const std::vector<int>& list, OpId op) { return list[static_cast<size_t>(op)]; }
  int weight(OpId op) const { return graph_.op(op).def->is(ir::kView) ? 0 : 1; }

  double bytes_of(OpId op) const {
    double bytes = 0;
    for (ValueId v : graph_.op(op).inputs) bytes += static_cast<double>(graph_.type(v).bytes());
    for (ValueId v : graph_.op(op).outputs) bytes += static_cast<double>(graph_.type(v).bytes());
    return bytes;
  }

  // Those that can run at one level at the earliest do: a gradient of weights beside that of the activations, whose
  // operands need not be kept for it any longer then.
  void group_products() {
    const std::vector<char> live = live_ops(graph_);
    std::map<int, std::vector<std::pair<double, OpId>>> by_level;  // by time, the least first
    for (OpId id = 0; id < graph_.num_ops(); ++id) {
      if (!live[static_cast<size_t>(id)]) continue;
      const Product p = product_of(graph_, graph_.op(id));
      if (p.multiplications > 0 && p.multiplications <= kSmallProduct)
        by_level[at(earliest_, id)].emplace_back(kStart + p.inner, id);
    }
    for (auto& [level, list] : by_level) {
      std::sort(list.begin(), list.end());
      for (size_t first = 0; first < list.size();) {
        std::vector<std::vector<OpId>> groups;
        size_t next = first;
        for (; next < list.size() && list[next].first <= kAlike * list[first].first; ++next)
          join(groups, list[next].second);
        first = next;
        for (const std::vector<OpId>& group : groups) {
          if (group.size() < 2) continue;
          for (OpId id : group) fixed_[static_cast<size_t>(id)] = level;
          products_.push_back(group);
        }
      }
    }
  }

  // The level at which an op can run at the earliest, given those that are placed.
  void find_earliest() {
    earliest_.assign(static_cast<size_t>(graph_.num_ops()), 0);
    for (OpId id = 0; id < graph_.num_ops(); ++id) {
      int level = 0;
      for (ValueId v : graph_.op(id).inputs) {
        const OpId producer = graph_.value(v).producer;
        if (producer != ir::kNoOp) level = std::max(level, at(earliest_, producer));
      }
      level += weight(id);
      earliest_[static_cast<size_t>(id)] = std::max(level, at(fixed_, id));
    }
  }

  // And at the latest, for the longest path to stay as long as it is. A guard comes before the launches it guards.
  void find_latest() {
    find_earliest();
    const int last = graph_.num_ops() == 0 ? 0 : *std::max_element(earliest_.begin(), earliest_.end());
    latest_.assign(static_cast<size_t>(graph_.num_ops()), last);
    for (const std::vector<OpId>& group : products_) {
      for (OpId id : group) latest_[static_cast<size_t>(id)] = at(fixed_, id);
    }
    const auto before = [&](ValueId v, int level) {
      const OpId producer = graph_.value(v).producer;
      if (producer == ir::kNoOp) return;
      int& latest = latest_[static_cast<size_t>(producer)];
      latest = std::min(latest, level);
    };
    std::map<ValueId, ValueId> guard_of;
    for (const ir::Update& u : graph_.updates()) {
      if (u.guard != ir::kNoValue) guard_of[u.value] = u.guard;
    }
    for (OpId id = graph_.num_ops() - 1; id >= 0; --id) {
      const int own = at(latest_, id) - weight(id);
      for (ValueId v : graph_.op(id).inputs) before(v, own);
      for (ValueId v : graph_.op(id).outputs) {
        if (const auto it = guard_of.find(v); it != guard_of.end()) before(it->second, own);
      }
    }
    // Guards may be computed after what they guard in the order of ops.
    for (OpId id = graph_.num_ops() - 1; id >= 0; --id) {
      for (ValueId v : graph_.op(id).inputs) before(v, at(latest_, id) - weight(id));
    }
  }

  bool depends_on(OpId op, const std::vector<char>& marked) const {
    for (ValueId v : graph_.op(op).inputs) {
      const OpId producer = graph_.value(v).producer;
      if (producer != ir::kNoOp && marked[static_cast<size_t>(producer)] != 0) return true;
    }
    return false;
  }

  // At this level run all that can, and that does not need another of them.
  void place(int level, std::vector<OpId>& open, std::vector<std::vector<OpId>>& all) {
    std::vector<char> marked(static_cast<size_t>(graph_.num_ops()), 0);
    std::vector<std::vector<OpId>> here;
    std::vector<OpId> rest;
    size_t next = 0;
    for (OpId id = 0; id < graph_.num_ops(); ++id) {
      const bool is_open = next < open.size() && open[next] == id;
      next += is_open;
      const bool waits = depends_on(id, marked);
      if (is_open && at(earliest_, id) <= level && !waits) {
        join(here, id);
        fixed_[static_cast<size_t>(id)] = level;
        marked[static_cast<size_t>(id)] = 1;
      } else {
        marked[static_cast<size_t>(id)] = waits;
        if (is_open) rest.push_back(id);
      }
    }
    open = std::move(rest);
    all.insert(all.end(), here.begin(), here.end());
  }

  // Into the first launch that still can be skipped where it must be.
  void join(std::vector<std::vector<OpId>>& groups, OpId op) const {
    for (std::vector<OpId>& group : groups) {
      std::vector<ValueId> results = graph_.op(op).outputs;
      for (OpId other : group) {
        results.insert(results.end(), graph_.op(other).outputs.begin(), graph_.op(other).outputs.end());
      }
      if (group.size() == kMaxMembers || !keeps_updates_in_place(graph_, ends_, results)) continue;
      group.push_back(op);
      return;
    }
    groups.push_back({op});
  }

  const ir::Graph& graph_;
  std::vector<Ends> ends_;
  std::vector<int> earliest_, latest_, fixed_;  // by op; levels count launches from 1
  std::vector<std::vector<OpId>> products_;
};

}  // namespace

bool group_updates(ir::Graph& graph) {
  const auto readers = graph.readers();
  const std::vector<Ends> ends = ends_of(graph);
  std::map<ValueId, const ir::Update*> update_of;
  for (const ir::Update& u : graph.updates()) update_of[u.value] = &u;
  std::map<ValueId, std::vector<std::vector<OpId>>> by_guard;
  for (OpId id = 0; id < graph.num_ops(); ++id) {
    const ir::Op& op = graph.op(id);
    if (!is_own_launch(graph, op)) continue;
    const ir::Update* first = nullptr;
    const bool updates_alone = std::all_of(op.outputs.begin(), op.outputs.end(), [&](ValueId v) {
      const auto it = update_of.find(v);
      if (it == update_of.end() || !readers[static_cast<size_t>(v)].empty()) return false;
      if (first == nullptr) first = it->second;
      return it->second->guard == first->guard && graph.type(v).shape.elements() > 1;
    });
    // An output needs the launch even when the guard is false.
    if (!updates_alone || !keeps_updates_in_place(graph, ends, op.outputs)) continue;
    std::vector<std::vector<OpId>>& groups = by_guard[first->guard];
    if (groups.empty() || groups.back().size() == kMaxMembers) groups.emplace_back();
    groups.back().push_back(id);
  }
  std::vector<std::vector<OpId>> all;
  for (auto& [guard, groups] : by_guard) all.insert(all.end(), groups.begin(), groups.end());
  return emit_groups(graph, all);
}

bool merge_launches(ir::Graph& graph) { return emit_groups(graph, Levels(graph).groups()); }

}  // namespace aicf::passes
