// check_captured: a graph that keeps the plan's order passes, and planted faults are caught by name.
#include <gtest/gtest.h>

#include <functional>

#include "aicf/error.h"
#include "plan/plan.h"

namespace aicf::plan {
namespace {

using backend::CapturedGraph;
using backend::GraphNode;

// Of what the diamond is a plan: %x is read by c.
const ir::Graph& source() {
  static const ir::Graph graph = [] {
    ir::Graph g;
    g.add_external(ir::Role::input, "x", {f32, {}});
    return g;
  }();
  return graph;
}

// a → b, a → c, b → d, c → d; b has nothing to launch when `hole`.
ExecPlan diamond(bool hole = false) {
  ExecPlan plan;
  for (const char* name : {"a", "b", "c", "d"}) {
    Launch launch;
    launch.name = name;
    if (!(hole && launch.name == "b")) launch.kernel.phases.push_back({});
    plan.launches.push_back(std::move(launch));
  }
  plan.buffers.push_back({Home::external, 0, 4, 0});
  plan.launches[2].reads = {0};
  plan.edges = {
      {0, 1, Hazard::raw}, {0, 2, Hazard::raw}, {0, 2, Hazard::war}, {1, 3, Hazard::waw}, {2, 3, Hazard::raw}};
  return plan;
}

GraphNode node(int launch, const char* name) {
  GraphNode n;
  n.launch = launch;
  n.name = name;
  return n;
}

// Feeds, the launches ("c" as two nodes, one after the other), and the delivery.
CapturedGraph good() {
  CapturedGraph graph;
  graph.nodes = {node(-1, backend::kStaging), node(0, "a"), node(1, "b"), node(2, "c"), node(2, "c"), node(3, "d"),
                 node(-1, backend::kDelivery)};
  graph.edges = {{0, 1}, {1, 2}, {1, 3}, {3, 4}, {2, 5}, {4, 5}, {5, 6}};
  return graph;
}

// `n` of those, one after another.
CapturedGraph several(int n) {
  CapturedGraph graph;
  for (int step = 0; step < n; ++step) {
    const int first = static_cast<int>(graph.nodes.size());
    if (step > 0) graph.edges.push_back({first - 1, first});
    for (GraphNode one : good().nodes) {
      one.step = step;
      graph.nodes.push_back(one);
    }
    for (const backend::GraphEdge& edge : good().edges) graph.edges.push_back({edge.from + first, edge.to + first});
  }
  return graph;
}

std::string fault_of(const ExecPlan& plan, const CapturedGraph& graph) {
  try {
    check_captured(source(), plan, graph);
  } catch (const InternalError& e) {
    return e.what();
  }
  return "";
}

TEST(CapturedGraph, OneThatKeepsTheOrderPasses) {
  EXPECT_EQ(fault_of(diamond(), good()), "");
  EXPECT_EQ(critical_path(good()), 6);
}

TEST(CapturedGraph, ThePlansOwnGraph) {
  const CapturedGraph graph = graph_of(diamond());
  EXPECT_EQ(graph.edges.size(), 4u);
  EXPECT_EQ(critical_path(graph), 3);
  EXPECT_NE(fault_of(diamond(), graph).find("nothing delivers"), std::string::npos) << "what is run must deliver";
}

TEST(CapturedGraph, ALaunchWithoutNodesPassesItsOrderOn) {
  CapturedGraph graph = good();
  graph.nodes[2] = node(-1, "other");
  EXPECT_EQ(fault_of(diamond(true), graph), "");
  graph.edges = {{0, 1}, {1, 3}, {3, 4}, {2, 5}, {5, 6}};  // c no longer before d, a only through c
  EXPECT_NE(fault_of(diamond(true), graph), "");
}

TEST(CapturedGraph, AMissingEdgeIsCaughtByName) {
  const std::vector<backend::GraphEdge> all = good().edges;
  for (size_t drop = 1; drop + 1 < all.size(); ++drop) {  // all but those of feeds and delivery
    CapturedGraph graph = good();
    graph.edges.erase(graph.edges.begin() + static_cast<std::ptrdiff_t>(drop));
    EXPECT_NE(fault_of(diamond(), graph), "") << drop;
  }
  CapturedGraph graph = good();
  graph.edges.erase(graph.edges.begin() + 4);
  const std::string message = fault_of(diamond(), graph);
  EXPECT_NE(message.find("launch 3 (\"d\") must follow launch 1 (\"b\")"), std::string::npos) << message;
}

TEST(CapturedGraph, PlantedNodesAreCaught) {
  const auto with = [](const std::function<void(CapturedGraph&)>& change) {
    CapturedGraph graph = good();
    change(graph);
    return fault_of(diamond(), graph);
  };
  int host = 0;
  EXPECT_NE(with([](auto& g) { g.nodes[2].kind = GraphNode::Kind::allocation; }).find("\"b\") allocates"),
            std::string::npos);
  EXPECT_NE(with([](auto& g) { g.nodes[2].kind = GraphNode::Kind::host; }).find("host"), std::string::npos);
  EXPECT_NE(with([&](auto& g) { g.nodes[3].host_source = &host; }).find("does not own"), std::string::npos);
  EXPECT_EQ(with([&](auto& g) {
              g.nodes[3].host_source = &host;
              g.nodes[3].host_source_owned = true;
            }),
            "");
  EXPECT_NE(with([](auto& g) { g.nodes[2].launch = 4; }).find("belongs to no launch"), std::string::npos);
  EXPECT_NE(with([](auto& g) { g.nodes[2].launch = -1; }).find("launch 1 (\"b\") has no node"), std::string::npos);
  EXPECT_NE(with([](auto& g) { g.edges.push_back({5, 1}); }).find("cycle"), std::string::npos);
  EXPECT_NE(with([](auto& g) { g.edges.push_back({5, 9}); }).find("nowhere"), std::string::npos);
  EXPECT_NE(with([](auto& g) { g.edges.pop_back(); }).find("delivery"), std::string::npos);
  EXPECT_NE(with([](auto& g) { g.edges[4].programmatic = true; }).find("need not wait for node 2 (\"b\")"),
            std::string::npos);
  EXPECT_EQ(with([](auto& g) { g.edges[3].programmatic = true; }), "") << "within one launch";
  EXPECT_NE(with([](auto& g) { g.edges[0].to = 2; }).find("launch 2 (\"c\") reads an input"), std::string::npos);
}

TEST(CapturedGraph, OfSeveralStepsIsEachOfThemInOrder) {
  EXPECT_EQ(fault_of(diamond(), several(4)), "");
  const int size = static_cast<int>(good().nodes.size());
  CapturedGraph early = several(3);
  std::erase_if(early.edges, [&](const backend::GraphEdge& e) { return e.from == size - 1 && e.to == size; });
  EXPECT_NE(fault_of(diamond(), early).find("of step 1 does not wait for the delivery of the step before"),
            std::string::npos);
  CapturedGraph inside = several(3);  // within the last step: d no longer follows b
  std::erase_if(inside.edges,
                [&](const backend::GraphEdge& e) { return e.from == 2 * size + 2 && e.to == 2 * size + 5; });
  EXPECT_NE(fault_of(diamond(), inside), "");
  CapturedGraph back = several(2);
  back.edges.push_back({size, 1});
  EXPECT_NE(fault_of(diamond(), back).find("waits for a later step"), std::string::npos);
  CapturedGraph gap = several(3);
  for (GraphNode& node : gap.nodes) node.step *= 2;
  EXPECT_NE(fault_of(diamond(), gap), "");
}

}  // namespace
}  // namespace aicf::plan
