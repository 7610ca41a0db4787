// A plan as text, as a Graphviz graph and as JSON.
#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "plan/plan.h"

namespace aicf::plan {
namespace {

constexpr const char* kHomes[] = {"external", "constant", "arena", "fetched"};
constexpr const char* kHazards[] = {"raw", "war", "waw"};

const char* text_of(Home home) { return kHomes[static_cast<int>(home)]; }
const char* text_of(Hazard hazard) { return kHazards[static_cast<int>(hazard)]; }

std::string owner_of(const ir::Graph& graph, const Buffer& buffer) {
  return buffer.owner == ir::kNoValue ? "workspace" : ir::value_name(graph, buffer.owner);
}

std::string list(const std::vector<BufferId>& buffers) {
  std::string text;
  for (BufferId b : buffers) text += fmt::format("{}b{}", text.empty() ? "" : " ", b);
  return text.empty() ? "-" : text;
}

std::string variant_of(const Launch& launch) {
  if (launch.kind == LaunchKind::copy) return "copy";
  return launch.kernel.variant.empty() ? "-" : launch.kernel.variant;
}

// First and last launch that touches each buffer; -1 when none does.
std::vector<std::pair<int, int>> lifetimes(const ExecPlan& plan) {
  std::vector<std::pair<int, int>> lives(plan.buffers.size(), {-1, -1});
  for (int i = 0; i < static_cast<int>(plan.launches.size()); ++i) {
    const Launch& launch = plan.launches[i];
    std::vector<BufferId> touched = launch.reads;
    touched.insert(touched.end(), launch.writes.begin(), launch.writes.end());
    touched.insert(touched.end(), {launch.workspace, launch.guard});
    for (BufferId b : touched) {
      if (b == kNoBuffer) continue;
      if (lives[b].first < 0) lives[b].first = i;
      lives[b].second = i;
    }
  }
  return lives;
}

std::string totals(const ExecPlan& plan) {
  std::string text;
  auto line = [&](const char* what, size_t bytes) { text += fmt::format("  {:<10} {:>14} bytes\n", what, bytes); };
  text += "memory\n";
  line("total", plan.total_bytes());
  line("external", plan.external_bytes);
  line("constant", plan.constant_bytes);
  line("fetched", plan.fetched_bytes);
  line("arena", plan.arena_bytes);
  line("live peak", plan.live_peak_bytes);
  return text;
}

std::string launches_text(const ir::Graph& graph, const ExecPlan& plan) {
  std::vector<std::string> waits(plan.launches.size());
  for (const Edge& e : plan.edges) waits[e.to] += fmt::format(" {}:{}", e.from, text_of(e.hazard));
  std::string text = fmt::format("launches ({})\n", plan.launches.size());
  for (size_t i = 0; i < plan.launches.size(); ++i) {
    const Launch& launch = plan.launches[i];
    text += fmt::format("  {:>4}  {}  [{}]  {} -> {}", i, launch.name, variant_of(launch), list(launch.reads),
                        list(launch.writes));
    if (launch.workspace != kNoBuffer) text += fmt::format("  workspace b{}", launch.workspace);
    if (launch.guard != kNoBuffer) {
      text += fmt::format("  when {} (b{})", owner_of(graph, plan.buffers[launch.guard]), launch.guard);
    }
    if (!waits[i].empty()) text += "  after" + waits[i];
    text += '\n';
  }
  return text;
}

std::string buffers_text(const ir::Graph& graph, const ExecPlan& plan) {
  std::string text = fmt::format("buffers ({})\n", plan.buffers.size());
  for (size_t b = 0; b < plan.buffers.size(); ++b) {
    const Buffer& buffer = plan.buffers[b];
    text += fmt::format("  b{:<4} {:<8} {:>12} bytes", b, text_of(buffer.home), buffer.bytes);
    if (buffer.home == Home::arena) text += fmt::format(" at {}", buffer.offset);
    text += "  " + owner_of(graph, buffer) + '\n';
  }
  for (size_t i = 0; i < plan.outputs.size(); ++i) {
    text += fmt::format("  output \"{}\" in b{}\n", graph.outputs()[i].name, plan.outputs[i]);
  }
  return text;
}

std::string aliases_text(const ir::Graph& graph, const ExecPlan& plan) {
  const auto granted = std::count_if(plan.aliases.begin(), plan.aliases.end(), [](const auto& d) { return d.granted; });
  std::string text = fmt::format("shared storage ({} granted, {} refused)\n", granted,
                                 plan.aliases.size() - static_cast<size_t>(granted));
  for (const AliasDecision& d : plan.aliases) {
    text += fmt::format("  {} {} {}", ir::value_name(graph, d.value), d.granted ? "in" : "not in",
                        ir::value_name(graph, d.target));
    text += d.granted ? "\n" : ": " + d.reason + '\n';
  }
  return text;
}

std::string memory_orders_text(const ir::Graph& graph, const ExecPlan& plan) {
  if (plan.memory_orders.empty()) return "";
  std::string text = fmt::format("waiting only to save memory ({})\n", plan.memory_orders.size());
  for (const MemoryOrder& m : plan.memory_orders) {
    text += fmt::format("  b{} {} takes bytes of b{} {}: {} bytes\n", m.later, owner_of(graph, plan.buffers[m.later]),
                        m.earlier, owner_of(graph, plan.buffers[m.earlier]), m.bytes);
  }
  return text;
}

nlohmann::json id_or_null(int32_t id) { return id < 0 ? nlohmann::json() : nlohmann::json(id); }

std::string dot_quoted(const std::string& text) {
  std::string result = "\"";
  for (char c : text) {
    if (c == '"' || c == '\\') result += '\\';
    result += c;
  }
  return result + '"';
}

}  // namespace

std::string print(const ir::Graph& graph, const ExecPlan& plan) {
  return fmt::format("plan: {} launches, {} buffers, {} edges\n", plan.launches.size(), plan.buffers.size(),
                     plan.edges.size()) +
         launches_text(graph, plan) + buffers_text(graph, plan) + memory_orders_text(graph, plan) +
         aliases_text(graph, plan) + totals(plan);
}

std::string print_memory(const ir::Graph& graph, const ExecPlan& plan) {
  const std::vector<std::pair<int, int>> lives = lifetimes(plan);
  std::vector<BufferId> arena;
  for (BufferId b = 0; b < static_cast<BufferId>(plan.buffers.size()); ++b) {
    if (plan.buffers[b].home == Home::arena) arena.push_back(b);
  }
  std::stable_sort(arena.begin(), arena.end(), [&](BufferId a, BufferId b) {
    return std::pair(plan.buffers[a].offset, lives[a].first) < std::pair(plan.buffers[b].offset, lives[b].first);
  });
  std::string text = totals(plan);
  text += fmt::format("arena ({} buffers)\n  {:>12} {:>12}  {:<13}\n", arena.size(), "offset", "bytes", "launches");
  for (BufferId b : arena) {
    text += fmt::format("  {:>12} {:>12}  {:<13} b{} {}\n", plan.buffers[b].offset, plan.buffers[b].bytes,
                        fmt::format("{}..{}", lives[b].first, lives[b].second), b, owner_of(graph, plan.buffers[b]));
  }
  return text;
}

// Box: launch, doubled under a guard. A RAW edge is solid, the others dashed.
std::string to_dot(const ir::Graph& graph, const ExecPlan& plan) {
  std::string text = "digraph plan {\n  node [shape=box];\n";
  for (size_t i = 0; i < plan.launches.size(); ++i) {
    const Launch& launch = plan.launches[i];
    std::string label = launch.name;
    if (launch.guard != kNoBuffer) label += " when " + owner_of(graph, plan.buffers[launch.guard]);
    text +=
        fmt::format("  n{} [label={}{}];\n", i, dot_quoted(label), launch.guard == kNoBuffer ? "" : ", peripheries=2");
  }
  for (const Edge& e : plan.edges) {
    text += fmt::format("  n{} -> n{} [label={}{}];\n", e.from, e.to, text_of(e.hazard),
                        e.hazard == Hazard::raw ? "" : ", style=dashed");
  }
  return text + "}\n";
}

std::string to_json(const ir::Graph& graph, const ExecPlan& plan) {
  using nlohmann::json;
  json launches = json::array(), buffers = json::array(), edges = json::array(), aliases = json::array();
  for (const Launch& l : plan.launches) {
    launches.push_back({{"name", l.name},
                        {"kind", l.kind == LaunchKind::copy ? "copy" : "kernel"},
                        {"variant", l.kernel.variant},
                        {"reads", l.reads},
                        {"writes", l.writes},
                        {"workspace", id_or_null(l.workspace)},
                        {"guard", id_or_null(l.guard)}});
  }
  for (const Buffer& b : plan.buffers) {
    json entry = {{"home", text_of(b.home)}, {"owner", owner_of(graph, b)}, {"bytes", b.bytes}};
    if (b.home == Home::arena) entry["offset"] = b.offset;
    buffers.push_back(std::move(entry));
  }
  for (const Edge& e : plan.edges) edges.push_back({{"from", e.from}, {"to", e.to}, {"hazard", text_of(e.hazard)}});
  for (const AliasDecision& d : plan.aliases) {
    aliases.push_back({{"value", ir::value_name(graph, d.value)},
                       {"target", ir::value_name(graph, d.target)},
                       {"granted", d.granted},
                       {"reason", d.reason}});
  }
  json outputs = json::object();
  for (size_t i = 0; i < plan.outputs.size(); ++i) outputs[graph.outputs()[i].name] = plan.outputs[i];
  const json bytes = {{"total", plan.total_bytes()},     {"external", plan.external_bytes},
                      {"constant", plan.constant_bytes}, {"fetched", plan.fetched_bytes},
                      {"arena", plan.arena_bytes},       {"live_peak", plan.live_peak_bytes}};
  return json{{"launches", launches}, {"buffers", buffers}, {"outputs", outputs},
              {"edges", edges},       {"aliases", aliases}, {"bytes", bytes}}
             .dump(2) +
         '\n';
}

std::string print(const backend::CapturedGraph& graph) {
  constexpr const char* kKinds[] = {"kernel", "copy", "fill", "host", "allocation", "other"};
  std::vector<std::string> after(graph.nodes.size());
  for (const backend::GraphEdge& edge : graph.edges) {
    std::string& list = after[static_cast<size_t>(edge.to)];
    list += fmt::format("{}{}{}", list.empty() ? "" : ", ", edge.from, edge.programmatic ? "p" : "");
  }
  std::string text = fmt::format("# {} nodes, {} edges, {} on the longest path\n", graph.nodes.size(),
                                 graph.edges.size(), critical_path(graph));
  for (size_t i = 0; i < graph.nodes.size(); ++i) {
    const backend::GraphNode& node = graph.nodes[i];
    text += fmt::format("{:4}  {:7} {}{}\n", i, kKinds[static_cast<int>(node.kind)], node.name,
                        after[i].empty() ? "" : "  after " + after[i]);
  }
  return text;
}

std::string to_dot(const backend::CapturedGraph& graph) {
  std::string dot = "digraph aicf {\n  node [fontname=\"monospace\", fontsize=10, shape=box];\n";
  for (size_t i = 0; i < graph.nodes.size(); ++i) {
    dot += fmt::format("  n{} [label=\"{}\"];\n", i, graph.nodes[i].name);
  }
  for (const backend::GraphEdge& edge : graph.edges) {
    dot += fmt::format("  n{} -> n{}{};\n", edge.from, edge.to, edge.programmatic ? " [style=dashed]" : "");
  }
  return dot + "}\n";
}

}  // namespace aicf::plan
