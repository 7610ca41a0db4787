#include "passes/clusters.h"

#include <algorithm>
#include <iterator>
#include <map>
#include <set>

#include "aicf/error.h"
#include "ir/op.h"
#include "ir/rewriter.h"

namespace aicf::passes {

Clusters::Clusters(const ir::Graph& graph)
    : graph_(graph), readers_(graph.readers()), root_(static_cast<size_t>(graph.num_values()), 0) {
  for (ir::OpId id = 0; id < graph.num_ops(); ++id) {
    home_.push_back(id);
    members_.push_back({id});
  }
  const auto root = [&](ir::ValueId v) {
    if (v != ir::kNoValue) root_[static_cast<size_t>(v)] = 1;
  };
  for (const ir::Output& o : graph.outputs()) root(o.value);
  for (const ir::Update& u : graph.updates()) root(u.value), root(u.guard);
  refresh();
}

bool Clusters::holds(int cluster, ir::OpId op) const {
  return std::binary_search(ops(cluster).begin(), ops(cluster).end(), op);
}

bool Clusters::is_live(ir::OpId op) const { return is_needed(home(op), op); }

bool Clusters::is_needed(int cluster, ir::OpId op) const {
  const std::vector<Need>& needs = needs_[static_cast<size_t>(op)];
  return std::any_of(needs.begin(), needs.end(), [&](const Need& n) { return n.cluster == cluster && n.live; });
}

template <class F>
void Clusters::each_reader(ir::ValueId value, F fn) const {
  const ir::OpId producer = graph_.value(value).producer;
  for (ir::OpId reader : readers_[static_cast<size_t>(value)]) {
    for (const Need& need : needs_[static_cast<size_t>(reader)]) {
      if (need.live && !holds(need.cluster, producer)) fn(need.cluster);
    }
  }
}

bool Clusters::is_in_memory(ir::ValueId value) const {
  bool read = is_root(value);
  each_reader(value, [&](int) { read = true; });
  return read;
}

// fn(cluster, op) for every op that this one reads as this cluster has it: from the cluster itself where it holds the
// producer, else from the producer's home.
template <class F>
void Clusters::each_source(int cluster, ir::OpId op, F fn) const {
  for (ir::ValueId v : graph_.op(op).inputs) {
    const ir::OpId producer = graph_.value(v).producer;
    if (producer != ir::kNoOp) fn(holds(cluster, producer) ? cluster : home(producer), producer);
  }
}

void Clusters::count(int cluster, ir::OpId op, int by) {
  std::vector<Need>& needs = needs_[static_cast<size_t>(op)];
  auto it = std::find_if(needs.begin(), needs.end(), [&](const Need& n) { return n.cluster == cluster; });
  if (it == needs.end()) it = needs.insert(it, Need{cluster, 0, false});
  it->refs += by;
  if ((it->refs > 0) != it->live) unsettled_.emplace_back(cluster, op);
}

// Ops have an order, so what is needed follows from the counts, in whatever order they are settled.
void Clusters::settle() {
  while (!unsettled_.empty()) {
    const auto [cluster, op] = unsettled_.back();
    unsettled_.pop_back();
    std::vector<Need>& needs = needs_[static_cast<size_t>(op)];
    const auto it = std::find_if(needs.begin(), needs.end(), [c = cluster](const Need& n) { return n.cluster == c; });
    if (it == needs.end() || (it->refs > 0) == it->live) continue;
    it->live = !it->live;
    const int by = it->live ? 1 : -1;
    each_source(cluster, op, [&](int c, ir::OpId source) { count(c, source, by); });
  }
}

// Nothing in the cluster needs anything until settle().
void Clusters::lift(int cluster) {
  for (ir::OpId op : ops(cluster)) {
    for (Need& need : needs_[static_cast<size_t>(op)]) {
      if (need.cluster != cluster || !need.live) continue;
      need.live = false;
      each_source(cluster, op, [&](int c, ir::OpId source) { count(c, source, -1); });
      break;
    }
  }
}

void Clusters::merge(const std::vector<int>& clusters) {
  if (!order_.empty()) reorder(clusters);
  const int into = clusters.front();
  std::vector<ir::OpId> all;
  for (int c : clusters) {
    lift(c);
    all.insert(all.end(), ops(c).begin(), ops(c).end());
  }
  std::sort(all.begin(), all.end());
  all.erase(std::unique(all.begin(), all.end()), all.end());
  // What needs them from elsewhere needs the one.
  const auto inside = [&](int c) { return std::find(clusters.begin(), clusters.end(), c) != clusters.end(); };
  for (ir::OpId op : all) {
    int refs = 0;
    std::erase_if(needs_[static_cast<size_t>(op)], [&](const Need& n) {
      refs += inside(n.cluster) ? n.refs : 0;
      return inside(n.cluster);
    });
    count(into, op, refs);
    if (inside(home(op))) home_[static_cast<size_t>(op)] = into;
  }
  for (int c : clusters) members_[static_cast<size_t>(c)].clear();
  members_[static_cast<size_t>(into)] = std::move(all);
  settle();
}

void Clusters::set_members(int cluster, std::vector<ir::OpId> ops) {
  lift(cluster);
  members_[static_cast<size_t>(cluster)] = std::move(ops);
  for (ir::OpId op : members_[static_cast<size_t>(cluster)]) count(cluster, op, 0);
  settle();
}

// From the roots back.
void Clusters::refresh() {
  needs_.assign(static_cast<size_t>(graph_.num_ops()), {});
  order_.clear();
  for (ir::ValueId v = 0; v < graph_.num_values(); ++v) {
    const ir::OpId producer = graph_.value(v).producer;
    if (is_root(v) && producer != ir::kNoOp) count(home(producer), producer, 1);
  }
  settle();
}

template <class F>
void Clusters::each_read(int cluster, F fn) const {
  for (ir::OpId op : ops(cluster)) {
    if (!is_needed(cluster, op)) continue;
    each_source(cluster, op, [&](int c, ir::OpId) {
      if (c != cluster) fn(c);
    });
  }
}

// By depth first from the clusters of the first ops.
std::vector<int> Clusters::sorted() const {
  std::vector<int> order;
  std::vector<char> seen(members_.size(), 0);
  std::vector<std::pair<int, bool>> stack;
  for (int start = 0; start < count(); ++start) {
    stack.emplace_back(start, false);
    while (!stack.empty()) {
      const auto [cluster, done] = stack.back();
      stack.pop_back();
      if (done) {
        order.push_back(cluster);
        continue;
      }
      if (seen[static_cast<size_t>(cluster)] != 0) continue;
      seen[static_cast<size_t>(cluster)] = 1;
      stack.emplace_back(cluster, true);
      each_read(cluster, [&](int c) {
        if (seen[static_cast<size_t>(c)] == 0) stack.emplace_back(c, false);
      });
    }
  }
  return order;
}

// Before a merge. Of the clusters that stand from the first to the last of those merged, what these are computed from
// goes before the one they become, all others after it.
void Clusters::reorder(const std::vector<int>& merged) {
  const auto place = [&](int c) -> int& { return place_[static_cast<size_t>(c)]; };
  int first = place(merged.front()), last = first;
  for (int c : merged) first = std::min(first, place(c)), last = std::max(last, place(c));
  std::vector<char> leads(static_cast<size_t>(last - first + 1), 0);  // by place
  std::vector<int> open = merged;
  while (!open.empty()) {
    const int cluster = open.back();
    open.pop_back();
    each_read(cluster, [&](int c) {
      if (place(c) < first || leads[static_cast<size_t>(place(c) - first)] != 0) return;
      leads[static_cast<size_t>(place(c) - first)] = 1;
      open.push_back(c);
    });
  }
  std::vector<int> before, after;
  for (int p = first; p <= last; ++p) {
    const int c = order_[static_cast<size_t>(p)];
    if (c < 0 || std::find(merged.begin(), merged.end(), c) != merged.end()) continue;
    (leads[static_cast<size_t>(p - first)] != 0 ? before : after).push_back(c);
  }
  before.push_back(merged.front());
  before.insert(before.end(), after.begin(), after.end());
  for (int p = first; p <= last; ++p) {
    const size_t i = static_cast<size_t>(p - first);
    order_[static_cast<size_t>(p)] = i < before.size() ? before[i] : -1;
    if (i < before.size()) place(before[i]) = p;
  }
}

std::vector<int> Clusters::between(int a, int b) {
  if (order_.empty()) {
    order_ = sorted();
    place_.resize(order_.size());
    for (size_t p = 0; p < order_.size(); ++p) place_[static_cast<size_t>(order_[p])] = static_cast<int>(p);
  }
  const auto place = [&](int c) { return place_[static_cast<size_t>(c)]; };
  const int from = place(a) < place(b) ? a : b, to = from == a ? b : a, first = place(from);
  // What the later is computed from, and of that, in order, what is computed from the earlier.
  std::vector<char> leads(static_cast<size_t>(place(to) - first + 1), 0), reached = leads;
  const auto at = [&](std::vector<char>& marks, int c) -> char& {
    return marks[static_cast<size_t>(place(c) - first)];
  };
  std::vector<int> open = {to};
  while (!open.empty()) {
    const int cluster = open.back();
    open.pop_back();
    each_read(cluster, [&](int c) {
      if (place(c) <= first || at(leads, c) != 0) return;
      at(leads, c) = 1;
      open.push_back(c);
    });
  }
  std::vector<int> found = {a, b};
  at(reached, from) = 1;
  for (int p = first + 1; p < place(to); ++p) {
    if (leads[static_cast<size_t>(p - first)] == 0) continue;
    const int cluster = order_[static_cast<size_t>(p)];
    char& mark = at(reached, cluster);
    each_read(cluster, [&](int c) { mark |= place(c) >= first && at(reached, c) != 0; });
    if (mark != 0) found.push_back(cluster);
  }
  return found;
}

namespace {

// Copies ops of a graph into a body, on demand.
class BodyBuilder {
 public:
  BodyBuilder(const ir::Graph& graph, const std::vector<ir::OpId>& members, Clusters::Form form)
      : graph_(graph), members_(members), form_(form) {}

  // The value and what it is computed from.
  void need(ir::ValueId v) {
    const ir::OpId producer = graph_.value(v).producer;
    if (producer == ir::kNoOp || !std::binary_search(members_.begin(), members_.end(), producer)) return;
    if (!wanted_.insert(producer).second) return;
    for (ir::ValueId operand : graph_.op(producer).inputs) need(operand);
  }

  ClusterBody build(const std::vector<ir::ValueId>& results) {
    body_.graph = std::make_shared<ir::Graph>();
    for (ir::OpId id : wanted_) {
      for (ir::ValueId v : graph_.op(id).inputs) declare(v);
    }
    for (ir::OpId id : wanted_) {
      const ir::Op& op = graph_.op(id);
      std::vector<ir::ValueId> inputs;
      for (ir::ValueId v : op.inputs) inputs.push_back(map_.at(v));
      const ir::OpId copy = body_.graph->add_op(*op.def, std::move(inputs), op.attrs, op.region);
      for (size_t i = 0; i < op.outputs.size(); ++i) map_[op.outputs[i]] = body_.graph->op(copy).outputs[i];
    }
    for (ir::ValueId v : results)
      body_.graph->add_output(std::to_string(body_.results.size()), map_.at(v)), body_.results.push_back(v);
    return std::move(body_);
  }

 private:
  // Operands, and constants whose elements are all equal, which need no memory.
  void declare(ir::ValueId v) {
    const ir::ValueInfo& info = graph_.value(v);
    if (map_.contains(v) || (info.producer != ir::kNoOp && wanted_.contains(info.producer))) return;
    if (form_ == Clusters::Form::region && info.role == ir::Role::constant && is_uniform(*info.data)) {
      map_[v] = body_.graph->add_constant(info.data);
      return;
    }
    map_[v] = body_.graph->add_external(ir::Role::input, std::to_string(body_.operands.size()), info.type);
    body_.operands.push_back(v);
  }

  static bool is_uniform(const Tensor& data) {
    const size_t size = size_of(data.dtype());
    const char* first = static_cast<const char*>(data.data());
    for (int64_t i = 1; i < data.elements(); ++i) {
      if (!std::equal(first, first + size, first + static_cast<size_t>(i) * size)) return false;
    }
    return data.elements() > 0;
  }

  const ir::Graph& graph_;
  const std::vector<ir::OpId>& members_;
  const Clusters::Form form_;
  std::set<ir::OpId> wanted_;
  std::map<ir::ValueId, ir::ValueId> map_;
  ClusterBody body_;
};

// The value that a chain of reshapes within the members starts from.
ir::ValueId reshaped_from(const ir::Graph& graph, const std::vector<ir::OpId>& members, ir::ValueId v) {
  const ir::OpDef* reshape = ir::find_op("reshape");
  for (;;) {
    const ir::OpId producer = graph.value(v).producer;
    if (producer == ir::kNoOp || graph.op(producer).def != reshape) return v;
    if (!std::binary_search(members.begin(), members.end(), producer)) return v;
    v = graph.op(producer).inputs[0];
  }
}

}  // namespace

ClusterBody Clusters::body(const std::vector<int>& clusters, const std::vector<ir::OpId>& copies, Form form) const {
  const auto inside = [&](int cluster) {
    return std::find(clusters.begin(), clusters.end(), cluster) != clusters.end();
  };
  std::vector<ir::OpId> members = copies;
  for (int cluster : clusters) members.insert(members.end(), ops(cluster).begin(), ops(cluster).end());
  std::sort(members.begin(), members.end());
  members.erase(std::unique(members.begin(), members.end()), members.end());
  std::vector<ir::ValueId> results;
  for (ir::OpId op : members) {
    if (!inside(home(op))) continue;
    for (ir::ValueId v : graph_.op(op).outputs) {
      bool read = is_root(v) || form == Form::side_by_side;
      each_reader(v, [&](int cluster) { read = read || !inside(cluster); });
      if (!read) continue;
      const ir::ValueId base = reshaped_from(graph_, members, v);
      const ir::OpId producer = graph_.value(base).producer;
      // A reshape of an operand needs no launch.
      if (producer == ir::kNoOp || !std::binary_search(members.begin(), members.end(), producer)) continue;
      if (std::find(results.begin(), results.end(), base) == results.end()) results.push_back(base);
    }
  }
  std::sort(results.begin(), results.end());
  BodyBuilder builder(graph_, members, form);
  for (ir::ValueId v : results) builder.need(v);
  return builder.build(results);
}

ir::Graph Clusters::emitted(const std::function<Choice(int cluster)>& choose) const {
  ir::Rewriter rewriter(graph_);
  const ir::OpDef* reshape = ir::find_op("reshape");
  for (int cluster : sorted()) {
    if (ops(cluster).empty()) continue;
    const Choice choice = choose(cluster);
    if (choice.def != nullptr) {
      std::vector<ir::ValueId> operands;
      for (ir::ValueId v : choice.body.operands) operands.push_back(rewriter.map(v));
      const ir::OpId op = rewriter.target().add_op(*choice.def, std::move(operands), choice.attrs, choice.body.graph);
      const std::vector<ir::ValueId> outputs = rewriter.target().op(op).outputs;
      for (size_t i = 0; i < outputs.size(); ++i) rewriter.replace(choice.body.results[i], outputs[i]);
    }
    for (ir::OpId op : ops(cluster)) {
      if (!is_needed(cluster, op)) continue;
      const ir::ValueId v = graph_.op(op).outputs[0];
      if (choice.def == nullptr) {
        // Once, whoever holds copies.
        if (!rewriter.has(v)) rewriter.copy(op);
      } else if (home(op) == cluster && graph_.op(op).def == reshape && is_in_memory(v)) {
        // Reshapes of results and operands stay outside.
        const ir::ValueId base = rewriter.map(reshaped_from(graph_, ops(cluster), v));
        const ir::OpId view = rewriter.target().add_op(*reshape, {base}, graph_.op(op).attrs);
        rewriter.replace(v, rewriter.target().op(view).outputs[0]);
      }
    }
  }
  // The updates carry the derived states by now; an op that reads one may be part of the one that computes it.
  return rewriter.finish({.derivations = false});
}

}  // namespace aicf::passes
