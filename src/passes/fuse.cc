// fuse: makes fused regions of ops whose loops are one, so that what only they read is never in memory. Whatever would
// save the most bytes is merged first. Exact: a region is its ops run one by one.
#include <algorithm>
#include <map>
#include <set>

#include "ir/op.h"
#include "ops/loops.h"
#include "passes/clusters.h"
#include "passes/ends.h"
#include "passes/pass.h"

namespace aicf::passes {
namespace {

using ir::OpId;
using ir::ValueId;
using ops::Loops;

// What a region may have at most: a kernel's registers and parameters are not without end.
constexpr size_t kMaxOps = 400, kMaxOperands = 48, kMaxResults = 24;
// Regions merged at a time.
constexpr size_t kMaxMerged = 16;
// Of arithmetic done again for elements that have it in common, or again in another region instead of read: about that
// of one exponential.
constexpr int kCheap = 8, kRepeated = 80;

int cost_of(const ir::OpDef& def) {
  static const std::map<std::string_view, int> kCosts = {{"exp", 20},   {"log", 20}, {"tanh", 20}, {"erf", 20},
                                                         {"sin", 20},   {"cos", 20}, {"pow", 40},  {"expm1", 20},
                                                         {"log1p", 20}, {"div", 4},  {"sqrt", 4},  {"sigmoid", 20}};
  const auto it = kCosts.find(def.name);
  return it != kCosts.end() ? it->second : def.is(ir::kPointwise) ? 1 : 0;
}

class Fuser {
 public:
  explicit Fuser(const ir::Graph& graph)
      : graph_(graph), clusters_(graph), readers_(graph.readers()), ends_(ends_of(graph)) {
    find_updaters();
  }

  bool run(ir::Graph& result) {
    hold_views();
    std::vector<Merge> merges = candidates();
    for (bool again = true; again;) {
      again = false;
      for (const Merge& m : merges) again |= try_merge(m);
    }
    recompute();
    bool fused = false;
    result = clusters_.emitted([&](int cluster) {
      Clusters::Choice choice;
      choice.body = clusters_.body({cluster});
      if (is_worth_it(choice.body)) choice.def = ir::find_op("fused"), fused = true;
      return choice;
    });
    return fused;
  }

 private:
  // --- what may be merged -----------------------------------------------------------------------------------------

  bool is_fusible(OpId op) const {
    const ir::Op& o = graph_.op(op);
    if (!ops::is_fusible(*o.def)) return false;
    const auto empty = [&](ValueId v) { return graph_.type(v).shape.elements() == 0; };
    return std::none_of(o.inputs.begin(), o.inputs.end(), empty) && !empty(o.outputs[0]);
  }

  // Its result is no smaller than its operand and is as easily had from that: every region that reads it holds it.
  bool is_view(OpId op) const {
    const ir::Op& o = graph_.op(op);
    const std::string_view name = o.def->name;
    if (name == "broadcast" || name == "iota" || name == "reshape") return true;
    return name == "cast" && size_of(graph_.type(o.inputs[0]).dtype) <= size_of(graph_.type(o.outputs[0]).dtype);
  }

  // The parameter whose new value each value is computed from, element by element; kNoValue: none, or several.
  std::vector<ValueId> found_from(const std::map<ValueId, const ir::Update*>& update_of) const {
    std::vector<ValueId> from(static_cast<size_t>(graph_.num_values()), ir::kNoValue);
    for (OpId id = 0; id < graph_.num_ops(); ++id) {
      const ir::Op& op = graph_.op(id);
      if (!op.def->is(ir::kPointwise)) continue;
      std::set<ValueId> params;
      for (ValueId v : op.inputs) {
        const auto it = update_of.find(v);
        const bool is_new = it != update_of.end() && graph_.value(it->second->target).role == ir::Role::param;
        const ValueId param = is_new ? it->second->target : from[static_cast<size_t>(v)];
        if (param != ir::kNoValue) params.insert(param);
      }
      if (params.size() == 1) from[static_cast<size_t>(op.outputs[0])] = *params.begin();
    }
    return from;
  }

  // The optimizer's ops of each parameter: pointwise, of the parameter's shape, and read by each other and by updates
  // alone, what is computed from its new value (a copy to compute with, an average) too. They become one region a
  // parameter, so that all of them can be one launch.
  void find_updaters() {
    updater_of_.assign(static_cast<size_t>(graph_.num_ops()), ir::kNoValue);
    std::map<ValueId, const ir::Update*> update_of;
    std::map<ValueId, ValueId> guard_of;  // by parameter
    for (const ir::Update& u : graph_.updates()) {
      update_of[u.value] = &u;
      if (graph_.value(u.target).role == ir::Role::param) guard_of[u.target] = u.guard;
    }
    const std::vector<ValueId> from = found_from(update_of);
    for (OpId id = graph_.num_ops() - 1; id >= 0; --id) {
      const ir::Op& op = graph_.op(id);
      if (!op.def->is(ir::kPointwise)) continue;
      const ValueId v = op.outputs[0];
      std::set<ValueId> targets;
      if (const auto it = update_of.find(v); it != update_of.end()) {
        const bool is_param = graph_.value(it->second->target).role == ir::Role::param;
        const ValueId param = is_param ? it->second->target : from[static_cast<size_t>(v)];
        if (param != ir::kNoValue && guard_of.at(param) == it->second->guard) targets.insert(param);
      }
      for (OpId reader : readers_[static_cast<size_t>(v)]) targets.insert(updater_of_[static_cast<size_t>(reader)]);
      if (targets.size() != 1 || targets.contains(ir::kNoValue)) continue;
      const ValueId target = *targets.begin();
      if (graph_.type(v).shape == graph_.type(target).shape) updater_of_[static_cast<size_t>(id)] = target;
    }
  }

  void hold_views() {
    for (OpId id = 0; id < graph_.num_ops(); ++id) {
      if (!is_fusible(id)) continue;
      std::set<OpId> held = {id};
      std::vector<OpId> open = {id};
      while (!open.empty()) {
        const OpId op = open.back();
        open.pop_back();
        for (ValueId v : graph_.op(op).inputs) {
          const OpId producer = graph_.value(v).producer;
          if (producer == ir::kNoOp || !is_fusible(producer) || !is_view(producer)) continue;
          if (held.insert(producer).second) open.push_back(producer);
        }
      }
      clusters_.set_members_quietly(id, {held.begin(), held.end()});
    }
    clusters_.refresh();
  }

  // --- merging ----------------------------------------------------------------------------------------------------

  struct Merge {
    OpId a = ir::kNoOp, b = ir::kNoOp;
    double bytes = 0;
  };

  // The operands that an op has from outside its views.
  std::vector<ValueId> sources(OpId op) const {
    std::vector<ValueId> found;
    for (OpId held : clusters_.ops(op)) {
      for (ValueId v : graph_.op(held).inputs) {
        const OpId producer = graph_.value(v).producer;
        const bool inside = producer != ir::kNoOp && clusters_.holds(op, producer);
        if (!inside && std::find(found.begin(), found.end(), v) == found.end()) found.push_back(v);
      }
    }
    return found;
  }

  // Producer and reader save a write and a read of what is between them, readers of one value a read.
  std::vector<Merge> candidates() const {
    std::vector<Merge> merges;
    std::vector<std::vector<OpId>> readers(static_cast<size_t>(graph_.num_values()));
    for (OpId id = 0; id < graph_.num_ops(); ++id) {
      if (!is_fusible(id) || !clusters_.is_live(id)) continue;
      for (ValueId v : sources(id)) {
        readers[static_cast<size_t>(v)].push_back(id);
        const OpId producer = graph_.value(v).producer;
        if (producer == ir::kNoOp || !is_fusible(producer)) continue;
        merges.push_back({producer, id, 2.0 * static_cast<double>(graph_.type(v).bytes())});
      }
    }
    for (ValueId v = 0; v < graph_.num_values(); ++v) {
      const std::vector<OpId>& list = readers[static_cast<size_t>(v)];
      for (size_t i = 1; i < list.size(); ++i) {
        merges.push_back({list[i - 1], list[i], static_cast<double>(graph_.type(v).bytes())});
      }
    }
    std::stable_sort(merges.begin(), merges.end(), [](const Merge& x, const Merge& y) { return x.bytes > y.bytes; });
    return merges;
  }

  bool try_merge(const Merge& m) {
    const int a = clusters_.home(m.a), b = clusters_.home(m.b);
    if (a == b || refused_.contains({a, b})) return false;
    // Whatever must run between the two must be part of them.
    std::vector<int> all = clusters_.between(a, b);
    const bool fits =
        all.size() <= kMaxMerged && std::all_of(all.begin(), all.end(), [&](int c) {
          const OpId op = clusters_.ops(c).back();
          return is_fusible(op) && updater_of_[static_cast<size_t>(op)] == updater_of_[static_cast<size_t>(m.a)];
        });
    if (!fits || !is_good(clusters_.body(all))) {
      refused_.insert({a, b});
      return false;
    }
    clusters_.merge(all);
    // What was refused may fit now.
    const auto touched = [&](int c) { return std::find(all.begin(), all.end(), c) != all.end(); };
    std::erase_if(refused_, [&](const auto& pair) { return touched(pair.first) || touched(pair.second); });
    return true;
  }

  // --- what is a good region --------------------------------------------------------------------------------------

  bool is_good(const ClusterBody& body) const {
    const ir::Graph& g = *body.graph;
    if (body.results.empty() || body.operands.empty() || static_cast<size_t>(g.num_ops()) > kMaxOps ||
        body.operands.size() > kMaxOperands || body.results.size() > kMaxResults) {
      return false;
    }
    if (!keeps_updates_in_place(graph_, ends_, body.results)) return false;
    const std::optional<Loops> loops = ops::loops_of(g);
    return loops && repeated_work(g, *loops) <= kCheap && has_room(*loops);
  }

  // Of values that many elements have in common, and of values that are asked for at several places.
  static int repeated_work(const ir::Graph& body, const Loops& loops) {
    int work = 0;
    std::map<std::string_view, int> once;
    for (const ir::Op& op : body.ops()) ++once[op.def->name];
    const uint64_t all = Loops::mask(0, static_cast<int>(loops.dims.size()));
    for (const Loops::Node& node : loops.nodes) {
      if (node.kind != Loops::Node::Kind::op) continue;
      if (--once[node.def->name] < 0) work += cost_of(*node.def);
      const bool per_row = loops.kind != Loops::Kind::pointwise && (node.axes & loops.reduced_mask()) == 0 &&
                           (node.axes | loops.reduced_mask()) == all;
      if (node.axes != all && !per_row && node.stage == 0) work += cost_of(*node.def);
    }
    return work;
  }

  // A row is the work of one block of threads: a few very long ones would leave a device idle. So would sums over the
  // rows, which are taken in order, 64 by 64, where there are not a thousand times as many.
  static bool has_room(const Loops& loops) {
    constexpr int64_t kManyRows = 1 << 16;
    const bool columns = std::any_of(loops.nodes.begin(), loops.nodes.end(),
                                     [](const Loops::Node& node) { return node.kind == Loops::Node::Kind::column; });
    if (columns && loops.outer() < kManyRows) return false;
    return loops.kind != Loops::Kind::row || loops.n() <= 8192 || (loops.outer() >= 64 && loops.n() <= (1 << 18));
  }

  // More than one op that would have a launch.
  bool is_worth_it(const ClusterBody& body) const {
    int launches = 0;
    for (const ir::Op& op : body.graph->ops()) launches += !op.def->is(ir::kView);
    return launches > 1 && is_good(body);
  }

  // --- what is cheaper computed again ----------------------------------------------------------------------------

  // The pointwise ops that lead to a value from values that are in memory anyway.
  bool chain_to(ValueId v, std::set<OpId>& chain, std::set<ValueId>& leaves, int& cost) const {
    const OpId producer = graph_.value(v).producer;
    if (producer == ir::kNoOp) return leaves.insert(v), true;
    const ir::Op& op = graph_.op(producer);
    const bool again =
        is_fusible(producer) && !op.def->is(ir::kReduction) && op.def->name != std::string_view("gather");
    if (!again) return leaves.insert(v), true;
    if (!chain.empty() && clusters_.is_in_memory(v) && !is_view(producer)) return leaves.insert(v), true;
    if (!chain.insert(producer).second) return true;
    cost += cost_of(*op.def);
    if (cost > kRepeated) return false;
    return std::all_of(op.inputs.begin(), op.inputs.end(), [&](ValueId x) { return chain_to(x, chain, leaves, cost); });
  }

  bool recompute_in(int cluster, ValueId v, const std::vector<ValueId>& operands) {
    std::set<OpId> chain;
    std::set<ValueId> leaves;
    int cost = 0;
    if (!chain_to(v, chain, leaves, cost) || chain.empty()) return false;
    double more = 0;
    for (ValueId leaf : leaves) {
      const bool read = std::find(operands.begin(), operands.end(), leaf) != operands.end();
      const OpId producer = graph_.value(leaf).producer;
      if (producer != ir::kNoOp && !clusters_.is_in_memory(leaf)) return false;
      if (!read && graph_.value(leaf).role != ir::Role::constant)
        more += static_cast<double>(graph_.type(leaf).bytes());
    }
    if (more > static_cast<double>(graph_.type(v).bytes())) return false;
    std::vector<OpId> all;
    std::set_union(clusters_.ops(cluster).begin(), clusters_.ops(cluster).end(), chain.begin(), chain.end(),
                   std::back_inserter(all));
    if (!is_good(clusters_.body({cluster}, all))) return false;
    clusters_.set_members(cluster, std::move(all));
    return true;
  }

  // A value between regions is read by the later one, unless that can have it from what it reads, or from no more
  // bytes.
  void recompute() {
    for (int cluster = 0; cluster < clusters_.count(); ++cluster) {
      if (clusters_.ops(cluster).empty() || !is_fusible(clusters_.ops(cluster).back())) continue;
      for (bool again = true; again;) {
        again = false;
        const ClusterBody body = clusters_.body({cluster});
        if (!is_worth_it(body)) break;
        for (ValueId v : body.operands) {
          const OpId producer = graph_.value(v).producer;
          if (producer == ir::kNoOp || clusters_.home(producer) == cluster || graph_.type(v).shape.elements() < 256)
            continue;
          if (recompute_in(cluster, v, body.operands)) {
            again = true;
            break;
          }
        }
      }
    }
  }

  const ir::Graph& graph_;
  Clusters clusters_;
  std::vector<std::vector<OpId>> readers_;
  std::vector<Ends> ends_;
  std::vector<ValueId> updater_of_;  // by op: the parameter whose update it computes
  std::set<std::pair<int, int>> refused_;
};

}  // namespace

bool fuse(ir::Graph& graph) {
  ir::Graph result;
  if (!Fuser(graph).run(result)) return false;
  graph = std::move(result);
  return true;
}

}  // namespace aicf::passes
