// check_captured: the graph as the driver holds it, against the plan. Knows nothing of how it was captured.
#include <fmt/format.h>

#include <algorithm>

#include "aicf/error.h"
#include "plan/plan.h"

namespace aicf::plan {
namespace {

using backend::CapturedGraph;
using backend::GraphNode;
using backend::kDelivery;

[[noreturn]] void fault(const std::string& message) { throw InternalError("captured graph: " + message); }

std::string text(const CapturedGraph& graph, int node) {
  return fmt::format("node {} (\"{}\")", node, graph.nodes[static_cast<size_t>(node)].name);
}

// Nodes so that every edge leads forward.
std::vector<int> topological(const CapturedGraph& graph, const std::vector<std::vector<int>>& next) {
  std::vector<int> waiting(graph.nodes.size(), 0), order;
  for (const auto& edge : graph.edges) ++waiting[static_cast<size_t>(edge.to)];
  for (size_t i = 0; i < graph.nodes.size(); ++i) {
    if (waiting[i] == 0) order.push_back(static_cast<int>(i));
  }
  for (size_t at = 0; at < order.size(); ++at) {
    for (int to : next[static_cast<size_t>(order[at])]) {
      if (--waiting[static_cast<size_t>(to)] == 0) order.push_back(to);
    }
  }
  if (order.size() != graph.nodes.size()) fault("its edges have a cycle");
  return order;
}

std::vector<std::vector<int>> successors(const CapturedGraph& graph) {
  std::vector<std::vector<int>> next(graph.nodes.size());
  const int count = static_cast<int>(graph.nodes.size());
  for (const auto& edge : graph.edges) {
    if (edge.from < 0 || edge.from >= count || edge.to < 0 || edge.to >= count) fault("an edge leads nowhere");
    // A programmatic edge lets its successor begin early: within a library call that is the library's affair.
    const bool apart =
        graph.nodes[static_cast<size_t>(edge.from)].launch != graph.nodes[static_cast<size_t>(edge.to)].launch;
    if (edge.programmatic && apart) fault(text(graph, edge.to) + " need not wait for " + text(graph, edge.from));
    next[static_cast<size_t>(edge.from)].push_back(edge.to);
  }
  return next;
}

// reachable[n] holds bit t of `targets` when a path leads from n to targets[t]; in blocks of 64 targets.
std::vector<uint64_t> reaching(const std::vector<int>& order, const std::vector<std::vector<int>>& next,
                               std::span<const int> targets) {
  std::vector<uint64_t> mask(order.size(), 0);
  for (size_t t = 0; t < targets.size(); ++t) mask[static_cast<size_t>(targets[t])] |= uint64_t{1} << t;
  for (size_t i = order.size(); i-- > 0;) {
    const auto from = static_cast<size_t>(order[i]);
    for (int to : next[from]) mask[from] |= mask[static_cast<size_t>(to)];
  }
  return mask;
}

// The node that stages the feeds, or -1.
int staging_node(const CapturedGraph& graph) {
  for (size_t i = 0; i < graph.nodes.size(); ++i) {
    if (graph.nodes[i].launch < 0 && graph.nodes[i].name == backend::kStaging) return static_cast<int>(i);
  }
  return -1;
}

bool reads_input(const ir::Graph& source, const ExecPlan& plan, const Launch& launch) {
  const auto is_input = [&](BufferId b) {
    const Buffer& buffer = plan.buffers[static_cast<size_t>(b)];
    return buffer.home == Home::external && source.value(buffer.owner).role == ir::Role::input;
  };
  return std::any_of(launch.reads.begin(), launch.reads.end(), is_input) ||
         (launch.guard != kNoBuffer && is_input(launch.guard));
}

void check_nodes(const ExecPlan& plan, const CapturedGraph& graph) {
  for (size_t i = 0; i < graph.nodes.size(); ++i) {
    const GraphNode& node = graph.nodes[i];
    if (node.launch < -1 || node.launch >= static_cast<int>(plan.launches.size())) {
      fault(text(graph, static_cast<int>(i)) + " belongs to no launch");
    }
    if (node.kind == GraphNode::Kind::allocation) fault(text(graph, static_cast<int>(i)) + " allocates memory");
    if (node.kind == GraphNode::Kind::host) fault(text(graph, static_cast<int>(i)) + " calls the host");
    if (node.host_source != nullptr && !node.host_source_owned) {
      fault(text(graph, static_cast<int>(i)) + " copies from host memory that the program does not own");
    }
  }
}

bool delivers(const GraphNode& n) { return n.launch < 0 && n.name == kDelivery; }

void check_step(const ir::Graph& source, const ExecPlan& plan, const CapturedGraph& graph) {
  check_nodes(plan, graph);
  const std::vector<std::vector<int>> next = successors(graph);
  const std::vector<int> order = topological(graph, next);
  std::vector<std::vector<int>> nodes_of(plan.launches.size());
  for (size_t i = 0; i < graph.nodes.size(); ++i) {
    if (graph.nodes[i].launch >= 0) nodes_of[static_cast<size_t>(graph.nodes[i].launch)].push_back(static_cast<int>(i));
  }
  for (size_t i = 0; i < plan.launches.size(); ++i) {
    const bool launches = plan.launches[i].kind == LaunchKind::copy || !plan.launches[i].kernel.empty();
    if (launches && nodes_of[i].empty()) fault(fmt::format("launch {} (\"{}\") has no node", i, plan.launches[i].name));
  }
  // A launch without nodes passes its order on: its successors follow its predecessors.
  std::vector<std::vector<int>> before(plan.launches.size());
  for (const Edge& edge : plan.edges) {
    std::vector<int>& b = before[static_cast<size_t>(edge.to)];
    if (!nodes_of[static_cast<size_t>(edge.from)].empty()) {
      b.push_back(edge.from);
    } else {
      const std::vector<int>& through = before[static_cast<size_t>(edge.from)];
      b.insert(b.end(), through.begin(), through.end());
    }
  }
  const int feeds = staging_node(graph);
  std::vector<int> targets;
  for (size_t to = 0; to < plan.launches.size(); ++to) {
    const bool fed = feeds >= 0 && reads_input(source, plan, plan.launches[to]);
    if (!before[to].empty() || fed) targets.insert(targets.end(), nodes_of[to].begin(), nodes_of[to].end());
  }
  for (size_t base = 0; base < targets.size(); base += 64) {
    const std::span<const int> block = std::span(targets).subspan(base, std::min<size_t>(64, targets.size() - base));
    const std::vector<uint64_t> mask = reaching(order, next, block);
    for (size_t t = 0; t < block.size(); ++t) {
      const auto to = static_cast<size_t>(graph.nodes[static_cast<size_t>(block[t])].launch);
      const bool fed = feeds >= 0 && reads_input(source, plan, plan.launches[to]);
      if (fed && (mask[static_cast<size_t>(feeds)] >> t & 1) == 0) {
        fault(fmt::format("launch {} (\"{}\") reads an input, and no path leads to it from the staging of feeds", to,
                          plan.launches[to].name));
      }
      for (int from : before[to]) {
        for (int node : nodes_of[static_cast<size_t>(from)]) {
          if ((mask[static_cast<size_t>(node)] >> t & 1) == 0) {
            fault(fmt::format("launch {} (\"{}\") must follow launch {} (\"{}\"), and no path leads from {} to {}", to,
                              plan.launches[to].name, from, plan.launches[static_cast<size_t>(from)].name,
                              text(graph, node), text(graph, block[t])));
          }
        }
      }
    }
  }
  // Delivery comes last: only it has no successor.
  if (std::none_of(graph.nodes.begin(), graph.nodes.end(), delivers)) fault("nothing delivers the results");
  for (size_t i = 0; i < graph.nodes.size(); ++i) {
    if (next[i].empty() && !delivers(graph.nodes[i])) {
      fault(text(graph, static_cast<int>(i)) + " is not followed by the delivery of results");
    }
  }
}

// The nodes of each step and the edges among them, and the nodes' numbers in the whole.
struct Step {
  CapturedGraph graph;
  std::vector<int> whole;
};

std::vector<Step> steps_of(const CapturedGraph& graph) {
  std::vector<Step> steps;
  std::vector<int> place;
  for (const GraphNode& node : graph.nodes) {
    if (node.step < 0) fault("a node of no step");
    if (steps.size() <= static_cast<size_t>(node.step)) steps.resize(static_cast<size_t>(node.step) + 1);
    Step& step = steps[static_cast<size_t>(node.step)];
    step.whole.push_back(static_cast<int>(place.size()));
    place.push_back(static_cast<int>(step.graph.nodes.size()));
    step.graph.nodes.push_back(node);
  }
  for (const backend::GraphEdge& edge : graph.edges) {
    const int step = graph.nodes[static_cast<size_t>(edge.from)].step;
    if (step != graph.nodes[static_cast<size_t>(edge.to)].step) continue;
    steps[static_cast<size_t>(step)].graph.edges.push_back(
        {place[static_cast<size_t>(edge.from)], place[static_cast<size_t>(edge.to)], edge.programmatic});
  }
  return steps;
}

// What begins a step waits for the delivery of the one before.
void check_sequence(const CapturedGraph& graph, const std::vector<Step>& steps) {
  std::vector<char> waits(graph.nodes.size(), 0), begins(graph.nodes.size(), 1);
  for (const backend::GraphEdge& edge : graph.edges) {
    const GraphNode &from = graph.nodes[static_cast<size_t>(edge.from)],
                    &to = graph.nodes[static_cast<size_t>(edge.to)];
    if (from.step == to.step) begins[static_cast<size_t>(edge.to)] = 0;
    if (from.step > to.step) fault(text(graph, edge.to) + " waits for a later step");
    if (delivers(from) && from.step + 1 == to.step && !edge.programmatic) waits[static_cast<size_t>(edge.to)] = 1;
  }
  for (const Step& step : steps) {
    for (int node : step.whole) {
      const auto n = static_cast<size_t>(node);
      if (graph.nodes[n].step > 0 && begins[n] && !waits[n]) {
        fault(fmt::format("{} of step {} does not wait for the delivery of the step before", text(graph, node),
                          graph.nodes[n].step));
      }
    }
  }
}

}  // namespace

void check_captured(const ir::Graph& source, const ExecPlan& plan, const CapturedGraph& graph) {
  (void)successors(graph);  // its edges lead somewhere
  const std::vector<Step> steps = steps_of(graph);
  for (const Step& step : steps) check_step(source, plan, step.graph);
  if (steps.empty()) check_step(source, plan, graph);
  check_sequence(graph, steps);
}

int critical_path(const CapturedGraph& graph) {
  const std::vector<std::vector<int>> next = successors(graph);
  std::vector<int> length(graph.nodes.size(), 1);
  int longest = 0;
  for (int node : topological(graph, next)) {
    longest = std::max(longest, length[static_cast<size_t>(node)]);
    for (int to : next[static_cast<size_t>(node)]) {
      length[static_cast<size_t>(to)] =
          std::max(length[static_cast<size_t>(to)], length[static_cast<size_t>(node)] + 1);
    }
  }
  return longest;
}

CapturedGraph graph_of(const ExecPlan& plan) {
  CapturedGraph graph;
  for (size_t i = 0; i < plan.launches.size(); ++i) {
    GraphNode node;
    node.launch = static_cast<int>(i);
    node.name = plan.launches[i].name;
    graph.nodes.push_back(std::move(node));
  }
  for (const Edge& edge : plan.edges) {
    const bool known = !graph.edges.empty() && graph.edges.back().from == edge.from && graph.edges.back().to == edge.to;
    if (!known) graph.edges.push_back({edge.from, edge.to, false});
  }
  return graph;
}

}  // namespace aicf::plan
