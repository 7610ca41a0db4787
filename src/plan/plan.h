// ExecPlan: the step as plain, printable data: launches in order, buffers, dependency edges.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "backend/api.h"
#include "ir/graph.h"

namespace aicf::plan {

using BufferId = int32_t;
inline constexpr BufferId kNoBuffer = -1;

// External and constant buffers have a fixed home in the store; arena buffers an offset; fetched buffers (the graph's
// outputs) live outside the arena, so that nothing overwrites them.
enum class Home : uint8_t { external, constant, arena, fetched };

struct Buffer {
  Home home = Home::arena;
  ir::ValueId owner = ir::kNoValue;  // the external, the constant, or a value placed here; none: workspace
  size_t bytes = 0;
  size_t offset = 0;  // arena only, 256-byte aligned
};

enum class Hazard : uint8_t { raw, war, waw };

struct Edge {
  int from = 0;  // launch indices, from < to
  int to = 0;
  Hazard hazard = Hazard::raw;
};

enum class LaunchKind : uint8_t {
  kernel,  // an op
  copy,    // buffers[0] → buffers[1]: an update that could not be aliased, or an output equal to an old value
};

struct Launch {
  LaunchKind kind = LaunchKind::kernel;
  ir::OpId op = ir::kNoOp;  // of a kernel
  std::string name;         // op name and its first result, for dumps and messages
  backend::PreparedKernel kernel;
  std::vector<BufferId> reads;     // operands in order
  std::vector<BufferId> writes;    // results in order
  BufferId workspace = kNoBuffer;  // arena
  BufferId guard = kNoBuffer;      // exit guard: with it false the launch does nothing
};

// Why a value does or does not share storage.
struct AliasDecision {
  ir::ValueId value = ir::kNoValue;   // the result
  ir::ValueId target = ir::kNoValue;  // the operand or external whose storage was wanted
  bool granted = false;
  std::string reason;  // of a refusal
};

struct Options {
  bool alias = true;  // false: every result has storage of its own, every update is a copy
  bool reuse = true;  // false: no two arena buffers overlap
  // Launches without a path between them may run side by side: storage is shared only where an order exists anyway,
  // unless the arena would then exceed both `ample_bytes` and 1.10 times the live peak.
  bool concurrent = false;
  size_t ample_bytes = size_t{64} << 20;
};

// A buffer takes bytes that another had, and only for that must one launch wait for the other.
struct MemoryOrder {
  BufferId earlier = kNoBuffer, later = kNoBuffer;
  size_t bytes = 0;  // of `later`
};

struct ExecPlan {
  std::vector<Buffer> buffers;
  std::vector<BufferId> buffer_of;  // by value id; kNoBuffer for values that are not live
  std::vector<BufferId> outputs;    // by graph output: the fetched buffer that holds it when the step is done
  std::vector<Launch> launches;
  std::vector<Edge> edges;  // sorted by (from, to, hazard), no duplicates
  std::vector<AliasDecision> aliases;
  std::vector<MemoryOrder> memory_orders;
  size_t arena_bytes = 0;
  size_t external_bytes = 0;
  size_t constant_bytes = 0;
  size_t fetched_bytes = 0;
  size_t live_peak_bytes = 0;  // of the arena in launch order, sizes rounded up to 256: the lower bound of arena_bytes

  size_t total_bytes() const { return arena_bytes + external_bytes + constant_bytes + fetched_bytes; }
};

// Plans an expanded graph (primitives only, every op live). `kernels`, by op id, come from lowering. The graph's
// outputs are what can be fetched.
ExecPlan make_plan(const ir::Graph& graph, std::vector<backend::PreparedKernel> kernels, const Options& options);

// Proves the plan from the graph alone, sharing no code with the planner. Throws InternalError naming the first fault:
// the value, the launches, and what overlaps or is missing. docs/design.md lists what is proved.
void check_plan(const ir::Graph& graph, const ExecPlan& plan);

// Proves a captured graph, read back from the driver, against the plan of `graph`: every launch's nodes are there,
// every plan edge is a path from each node of the one launch to each of the other, by full edges between launches; the
// staging of feeds, if any, precedes whatever reads an input; everything leads to the delivery of results; no node
// allocates or calls the host, and no copy reads host memory that the program does not own. In a graph of several steps
// that holds of each, and each begins when the one before it has delivered. Throws InternalError naming the first
// fault.
void check_captured(const ir::Graph& graph, const ExecPlan& plan, const backend::CapturedGraph& captured);
// Nodes on the longest path.
int critical_path(const backend::CapturedGraph& graph);
// The graph that a plan run without capture stands for: one node a launch, the plan's edges.
backend::CapturedGraph graph_of(const ExecPlan& plan);

std::string print(const ir::Graph& graph, const ExecPlan& plan);         // launches, buffers, edges, aliases
std::string print_memory(const ir::Graph& graph, const ExecPlan& plan);  // totals, and the arena by offset
std::string to_dot(const ir::Graph& graph, const ExecPlan& plan);        // launches and edges, for Graphviz
std::string to_json(const ir::Graph& graph, const ExecPlan& plan);       // all of the plan but the kernels' code
std::string print(const backend::CapturedGraph& graph);                  // nodes, and whom each follows
std::string to_dot(const backend::CapturedGraph& graph);

}  // namespace aicf::plan
