// What Clusters keeps up to date from merge to merge, against the same worked out anew from its definition.
#include "passes/clusters.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <random>
#include <set>

#include "aicf/ops.h"
#include "ir/op.h"

namespace aicf::passes {
namespace {

using ir::OpId;
using ir::ValueId;

ir::Graph random_graph(std::mt19937& random, int ops) {
  ir::Graph graph;
  std::vector<Value> values = {graph.handle(graph.add_external(ir::Role::input, "x", {f32, {4}}))};
  const auto pick = [&] { return values[values.size() - 1 - random() % std::min<size_t>(values.size(), 9)]; };
  for (int i = 0; i < ops; ++i) values.push_back(random() % 3 == 0 ? neg(pick()) : pick() + pick());
  for (int i = 0; i < 3; ++i) graph.add_output(std::to_string(i), values[values.size() - 1 - random() % 6].id());
  return graph;
}

struct Anew {
  const Clusters& clusters;
  const ir::Graph& graph = clusters.graph();
  std::set<std::pair<int, OpId>> live;  // an op as this cluster has it
  std::set<std::pair<int, int>> reads;  // the first from the memory of the second
  std::set<ValueId> in_memory;

  explicit Anew(const Clusters& c) : clusters(c) {
    for (const ir::Output& o : graph.outputs()) {
      in_memory.insert(o.value);
      const OpId producer = graph.value(o.value).producer;
      need(clusters.home(producer), producer);
    }
  }
  void need(int cluster, OpId op) {
    if (!live.emplace(cluster, op).second) return;
    for (ValueId v : graph.op(op).inputs) {
      const OpId producer = graph.value(v).producer;
      if (producer == ir::kNoOp) continue;
      if (clusters.holds(cluster, producer)) {
        need(cluster, producer);
      } else {
        in_memory.insert(v);
        reads.emplace(cluster, clusters.home(producer));
        need(clusters.home(producer), producer);
      }
    }
  }
  std::set<int> sources(int cluster) const {
    std::set<int> all;
    std::vector<int> open = {cluster};
    while (!open.empty()) {
      const int at = open.back();
      open.pop_back();
      for (const auto& [reader, source] : reads) {
        if (reader == at && all.insert(source).second) open.push_back(source);
      }
    }
    return all;
  }
  std::set<int> between(int a, int b) const {
    const std::set<int> of_a = sources(a), of_b = sources(b);
    std::set<int> all = {a, b};
    for (int c : of_b) {
      if (sources(c).contains(a)) all.insert(c);
    }
    for (int c : of_a) {
      if (sources(c).contains(b)) all.insert(c);
    }
    return all;
  }
};

void expect_up_to_date(const Clusters& clusters) {
  const Anew anew(clusters);
  const ir::Graph& graph = clusters.graph();
  for (OpId op = 0; op < graph.num_ops(); ++op) {
    ASSERT_EQ(clusters.is_live(op), anew.live.contains({clusters.home(op), op})) << "op " << op;
    const ValueId v = graph.op(op).outputs[0];
    ASSERT_EQ(clusters.is_in_memory(v), anew.in_memory.contains(v)) << "the result of op " << op;
  }
}

TEST(Clusters, AreUpToDateAfterEveryMerge) {
  for (unsigned seed = 0; seed < 40; ++seed) {
    std::mt19937 random(seed);
    const ir::Graph graph = random_graph(random, 40);
    Clusters clusters(graph);
    // Some hold copies of what their ops read, and of what those read, as fuse gives them to all readers of a view.
    std::vector<char> view(static_cast<size_t>(graph.num_ops()));
    for (char& v : view) v = random() % 4 == 0;
    for (OpId id = 0; id < graph.num_ops(); ++id) {
      std::set<OpId> held = {id};
      for (OpId op = id; op >= 0; --op) {
        for (ValueId v : held.contains(op) ? graph.op(op).inputs : std::vector<ValueId>()) {
          const OpId producer = graph.value(v).producer;
          if (producer != ir::kNoOp && view[static_cast<size_t>(producer)] != 0) held.insert(producer);
        }
      }
      clusters.set_members_quietly(id, {held.begin(), held.end()});
    }
    clusters.refresh();
    expect_up_to_date(clusters);
    for (int merge = 0; merge < 25; ++merge) {
      const auto any = [&] { return clusters.home(static_cast<OpId>(random() % 40)); };
      const int a = any(), b = any();
      if (a == b) continue;
      const std::vector<int> all = clusters.between(a, b);
      const std::set<int> want = Anew(clusters).between(a, b);
      ASSERT_EQ(std::set<int>(all.begin(), all.end()), want) << "seed " << seed << ", merge " << merge;
      ASSERT_EQ(all.size(), want.size());
      if (all.size() > 8) continue;
      clusters.merge(all);
      expect_up_to_date(clusters);
    }
    for (int cluster = 0; cluster < clusters.count(); ++cluster) {
      if (clusters.ops(cluster).empty()) continue;
      std::set<OpId> more(clusters.ops(cluster).begin(), clusters.ops(cluster).end());
      for (ValueId v : graph.op(clusters.ops(cluster).front()).inputs) {
        if (graph.value(v).producer != ir::kNoOp) more.insert(graph.value(v).producer);
      }
      clusters.set_members(cluster, {more.begin(), more.end()});
      expect_up_to_date(clusters);
    }
  }
}

}  // namespace
}  // namespace aicf::passes
