// Sets of ops that are to be one launch: what the fusion passes merge, and what they emit in the end.
#pragma once

#include <functional>
#include <memory>
#include <utility>
#include <vector>

#include "ir/graph.h"

namespace aicf::passes {

// Ops that become one: a body of theirs, and the values of the graph that are its operands and its results.
struct ClusterBody {
  std::shared_ptr<ir::Graph> graph;
  std::vector<ir::ValueId> operands;
  std::vector<ir::ValueId> results;
};

// Every op is at home in one cluster, which gives its results to all others. A cluster may also hold copies of ops at
// home elsewhere, for itself.
class Clusters {
 public:
  explicit Clusters(const ir::Graph& graph);

  const ir::Graph& graph() const { return graph_; }
  int count() const { return static_cast<int>(members_.size()); }
  int home(ir::OpId op) const { return home_[static_cast<size_t>(op)]; }
  // In order; empty when it was merged into another.
  const std::vector<ir::OpId>& ops(int cluster) const { return members_[static_cast<size_t>(cluster)]; }
  bool holds(int cluster, ir::OpId op) const;
  // The op is needed at home, not by the holders of copies alone.
  bool is_live(ir::OpId op) const;
  // Something outside its home reads the value.
  bool is_in_memory(ir::ValueId value) const;

  // All go into the first. REQUIRES: with two clusters, what is between them is among them.
  void merge(const std::vector<int>& clusters);
  // Those it has, and copies of more.
  void set_members(int cluster, std::vector<ir::OpId> ops);
  // Several in a row: refresh() afterwards.
  void set_members_quietly(int cluster, std::vector<ir::OpId> ops) {
    members_[static_cast<size_t>(cluster)] = std::move(ops);
  }
  void refresh();

  // The two and all that must run after the one and before the other: what becomes one launch if they do.
  std::vector<int> between(int a, int b);
  // Of these clusters as one, with copies of some more ops. A result that is a reshape is given as what is reshaped.
  // region: its results are those that are read outside, and constants whose elements are all equal are part of it.
  // side_by_side: every result is one, every constant an operand.
  enum class Form : uint8_t { region, side_by_side };
  ClusterBody body(const std::vector<int>& clusters, const std::vector<ir::OpId>& copies = {},
                   Form form = Form::region) const;

  // What becomes of a cluster: an op of this record with this body, or nothing, which leaves its ops as they are.
  struct Choice {
    const ir::OpDef* def = nullptr;
    ir::Attrs attrs = {};
    ClusterBody body = {};
  };
  ir::Graph emitted(const std::function<Choice(int cluster)>& choose) const;

 private:
  bool is_root(ir::ValueId v) const { return root_[static_cast<size_t>(v)] != 0; }
  // fn(cluster) for every cluster that reads the value from memory.
  template <class F>
  void each_reader(ir::ValueId value, F fn) const;
  // fn(cluster) for everything that a cluster reads from memory.
  template <class F>
  void each_read(int cluster, F fn) const;
  template <class F>
  void each_source(int cluster, ir::OpId op, F fn) const;
  bool is_needed(int cluster, ir::OpId op) const;
  void count(int cluster, ir::OpId op, int by);
  void lift(int cluster);
  void settle();
  std::vector<int> sorted() const;
  void reorder(const std::vector<int>& merged);

  // A cluster that needs an op of itself: for itself or, if it is the op's home, for others too.
  struct Need {
    int cluster = 0;
    int refs = 0;  // operands of needed ops that it is, and roots
    bool live = false;
  };

  const ir::Graph& graph_;
  std::vector<int> home_;
  std::vector<std::vector<ir::OpId>> members_;
  std::vector<std::vector<ir::OpId>> readers_;       // by value
  std::vector<char> root_;                           // by value: needed whoever reads it
  std::vector<std::vector<Need>> needs_;             // by op
  std::vector<std::pair<int, ir::OpId>> unsettled_;  // whose `live` may not be what `refs` says
  // Once asked for: the clusters, those that one reads before it (-1: merged away), and the place of each.
  std::vector<int> order_, place_;
};

}  // namespace aicf::passes
