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

bool Clusters::is_live(ir::OpId op) const {
  const std::vector<int>& in = live_in_[static_cast<size_t>(op)];
  return std::find(in.begin(), in.end(), home(op)) != in.end();
}

template <class F>
void Clusters::each_reader(ir::ValueId value, F fn) const {
  const ir::OpId producer = graph_.value(value).producer;
  for (ir::OpId reader : readers_[static_cast<size_t>(value)]) {
    for (int cluster : live_in_[static_cast<size_t>(reader)]) {
      if (!holds(cluster, producer)) fn(cluster);
    }
  }
}

bool Clusters::is_in_memory(ir::ValueId value) const {
  bool read = is_root(value);
  each_reader(value, [&](int) { read = true; });
  return read;
}

void Clusters::merge(int a, int b) {
  for (ir::OpId op : ops(b)) {
    if (home(op) == b) home_[static_cast<size_t>(op)] = a;
  }
  std::vector<ir::OpId> all;
  std::set_union(ops(a).begin(), ops(a).end(), ops(b).begin(), ops(b).end(), std::back_inserter(all));
  members_[static_cast<size_t>(a)] = std::move(all);
  members_[static_cast<size_t>(b)].clear();
  refresh();
}

void Clusters::set_members(int cluster, std::vector<ir::OpId> ops) {
  members_[static_cast<size_t>(cluster)] = std::move(ops);
  refresh();
}

// From the roots back: an op's operand is had from the cluster itself where it holds the producer, else from the
// producer's home.
void Clusters::refresh() {
  live_in_.assign(static_cast<size_t>(graph_.num_ops()), {});
  std::vector<std::pair<int, ir::OpId>> open;
  const auto need = [&](int cluster, ir::OpId op) {
    std::vector<int>& in = live_in_[static_cast<size_t>(op)];
    if (std::find(in.begin(), in.end(), cluster) != in.end()) return;
    in.push_back(cluster);
    open.emplace_back(cluster, op);
  };
  for (ir::ValueId v = 0; v < graph_.num_values(); ++v) {
    const ir::OpId producer = graph_.value(v).producer;
    if (is_root(v) && producer != ir::kNoOp) need(home(producer), producer);
  }
  while (!open.empty()) {
    const auto [cluster, op] = open.back();
    open.pop_back();
    for (ir::ValueId v : graph_.op(op).inputs) {
      const ir::OpId producer = graph_.value(v).producer;
      if (producer != ir::kNoOp) need(holds(cluster, producer) ? cluster : home(producer), producer);
    }
  }
  rank();
}

// By depth first from the clusters of the last ops.
void Clusters::rank() {
  rank_.assign(members_.size(), -1);
  std::vector<char> seen(members_.size(), 0);
  int next = 0;
  std::vector<std::pair<int, bool>> stack;
  for (int start = 0; start < count(); ++start) {
    stack.emplace_back(start, false);
    while (!stack.empty()) {
      const auto [cluster, done] = stack.back();
      stack.pop_back();
      if (done) {
        rank_[static_cast<size_t>(cluster)] = next++;
        continue;
      }
      if (seen[static_cast<size_t>(cluster)] != 0) continue;
      seen[static_cast<size_t>(cluster)] = 1;
      stack.emplace_back(cluster, true);
      for (ir::OpId op : ops(cluster)) {
        const std::vector<int>& in = live_in_[static_cast<size_t>(op)];
        if (std::find(in.begin(), in.end(), cluster) == in.end()) continue;
        for (ir::ValueId v : graph_.op(op).inputs) {
          const ir::OpId producer = graph_.value(v).producer;
          if (producer == ir::kNoOp || holds(cluster, producer)) continue;
          if (seen[static_cast<size_t>(home(producer))] == 0) stack.emplace_back(home(producer), false);
        }
      }
    }
  }
}

// A cluster leads to `to` when one that reads it does; ranks bound the search.
void Clusters::add_between(int from, int to, std::vector<int>& found) const {
  enum : char { kUnknown, kOpen, kLeads, kDoes_not };
  std::map<int, char> state;
  std::vector<int> stack = {from};
  const auto readers_of = [&](int cluster) {
    std::vector<int> readers;
    for (ir::OpId op : ops(cluster)) {
      if (home(op) != cluster) continue;
      for (ir::ValueId v : graph_.op(op).outputs) each_reader(v, [&](int reader) { readers.push_back(reader); });
    }
    return readers;
  };
  while (!stack.empty()) {
    const int cluster = stack.back();
    if (cluster == to || rank_[static_cast<size_t>(cluster)] >= rank_[static_cast<size_t>(to)]) {
      state[cluster] = cluster == to ? kLeads : kDoes_not;
      stack.pop_back();
      continue;
    }
    const bool first = state[cluster] == kUnknown;
    state[cluster] = first ? static_cast<char>(kOpen) : state[cluster];
    bool leads = false;
    for (int reader : readers_of(cluster)) {
      const char s = state[reader];
      if (s == kUnknown && first) stack.push_back(reader);
      leads = leads || s == kLeads;
    }
    if (first && stack.back() != cluster) continue;
    stack.pop_back();
    if (state[cluster] == kOpen) state[cluster] = leads ? kLeads : kDoes_not;
  }
  for (const auto& [cluster, s] : state) {
    if (s == kLeads && cluster != from && cluster != to) found.push_back(cluster);
  }
}

std::vector<int> Clusters::between(int a, int b) const {
  std::vector<int> found = {a, b};
  add_between(a, b, found);
  add_between(b, a, found);
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
  std::vector<int> order;
  for (int c = 0; c < count(); ++c) {
    if (!ops(c).empty()) order.push_back(c);
  }
  std::sort(order.begin(), order.end(),
            [&](int a, int b) { return rank_[static_cast<size_t>(a)] < rank_[static_cast<size_t>(b)]; });
  ir::Rewriter rewriter(graph_);
  const ir::OpDef* reshape = ir::find_op("reshape");
  for (int cluster : order) {
    const Choice choice = choose(cluster);
    if (choice.def != nullptr) {
      std::vector<ir::ValueId> operands;
      for (ir::ValueId v : choice.body.operands) operands.push_back(rewriter.map(v));
      const ir::OpId op = rewriter.target().add_op(*choice.def, std::move(operands), choice.attrs, choice.body.graph);
      const std::vector<ir::ValueId> outputs = rewriter.target().op(op).outputs;
      for (size_t i = 0; i < outputs.size(); ++i) rewriter.replace(choice.body.results[i], outputs[i]);
    }
    for (ir::OpId op : ops(cluster)) {
      const std::vector<int>& in = live_in_[static_cast<size_t>(op)];
      if (std::find(in.begin(), in.end(), cluster) == in.end()) continue;
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
