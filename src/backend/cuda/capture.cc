#include "backend/cuda/capture.h"

#include <algorithm>
#include <map>
#include <memory>

#include "aicf/error.h"
#include "backend/cuda/error.h"
#include "backend/cuda/queue.h"

namespace aicf::backend::cuda {
namespace {

using Nodes = std::vector<cudaGraphNode_t>;

struct GraphDeleter {
  void operator()(CUgraph_st* graph) const { cudaGraphDestroy(graph); }
};
using Graph = std::unique_ptr<CUgraph_st, GraphDeleter>;

// Ends the capture on every path; the stream is as it was before.
class Capture {
 public:
  explicit Capture(cudaStream_t stream) : stream_(stream) {
    check(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal), "beginning a capture");
  }
  Capture(const Capture&) = delete;
  Capture& operator=(const Capture&) = delete;
  ~Capture() {
    if (ended_) return;
    cudaGraph_t graph = nullptr;
    cudaStreamEndCapture(stream_, &graph);
    cudaGetLastError();
    if (graph != nullptr) cudaGraphDestroy(graph);
  }

  void set_dependencies(Nodes nodes) const {
    check(cudaStreamUpdateCaptureDependencies(stream_, nodes.data(), nullptr, nodes.size(),
                                              cudaStreamSetCaptureDependencies),
          "setting capture dependencies");
  }
  // What work enqueued now would depend on.
  Nodes dependencies() const {
    cudaStreamCaptureStatus status = cudaStreamCaptureStatusNone;
    const cudaGraphNode_t* nodes = nullptr;
    const cudaGraphEdgeData* edges = nullptr;
    size_t count = 0;
    unsigned long long id = 0;
    check(cudaStreamGetCaptureInfo(stream_, &status, &id, nullptr, &nodes, &edges, &count), "reading the capture");
    if (status != cudaStreamCaptureStatusActive) {
      throw Error("CUDA: the capture was invalidated: the work waits for the device, or allocates");
    }
    return Nodes(nodes, nodes + count);
  }
  Graph end() {
    ended_ = true;
    cudaGraph_t graph = nullptr;
    check(cudaStreamEndCapture(stream_, &graph), "ending a capture");
    return Graph(graph);
  }

  Nodes all_nodes() const {
    cudaStreamCaptureStatus status = cudaStreamCaptureStatusNone;
    cudaGraph_t graph = nullptr;
    unsigned long long id = 0;
    check(cudaStreamGetCaptureInfo(stream_, &status, &id, &graph, nullptr, nullptr, nullptr), "reading the capture");
    size_t count = 0;
    check(cudaGraphGetNodes(graph, nullptr, &count), "reading the capture");
    Nodes nodes(count);
    if (count > 0) check(cudaGraphGetNodes(graph, nodes.data(), &count), "reading the capture");
    return nodes;
  }

 private:
  const cudaStream_t stream_;
  bool ended_ = false;
};

GraphNode describe(cudaGraphNode_t node, const CaptureUnit& unit) {
  GraphNode d;
  d.launch = unit.launch;
  d.step = unit.step;
  d.name = unit.name;
  cudaGraphNodeType type{};
  check(cudaGraphNodeGetType(node, &type), "reading a graph node");
  switch (type) {
    case cudaGraphNodeTypeKernel:
      d.kind = GraphNode::Kind::kernel;
      break;
    case cudaGraphNodeTypeMemset:
      d.kind = GraphNode::Kind::fill;
      break;
    case cudaGraphNodeTypeHost:
      d.kind = GraphNode::Kind::host;
      break;
    case cudaGraphNodeTypeMemAlloc:
    case cudaGraphNodeTypeMemFree:
      d.kind = GraphNode::Kind::allocation;
      break;
    case cudaGraphNodeTypeMemcpy: {
      d.kind = GraphNode::Kind::copy;
      cudaMemcpy3DParms copy{};
      check(cudaGraphMemcpyNodeGetParams(node, &copy), "reading a graph node");
      cudaPointerAttributes attributes{};
      const void* source = copy.srcPtr.ptr;
      const bool known = source != nullptr && cudaPointerGetAttributes(&attributes, source) == cudaSuccess;
      cudaGetLastError();
      if (source != nullptr &&
          (!known || attributes.type == cudaMemoryTypeHost || attributes.type == cudaMemoryTypeUnregistered)) {
        d.host_source = source;
      }
      break;
    }
    default:
      d.kind = GraphNode::Kind::other;
  }
  return d;
}

void read_edges(cudaGraph_t graph, const std::map<cudaGraphNode_t, int>& index, CapturedGraph& description) {
  size_t count = 0;
  check(cudaGraphGetEdges(graph, nullptr, nullptr, nullptr, &count), "reading the graph");
  Nodes from(count), to(count);
  std::vector<cudaGraphEdgeData> data(count);
  if (count > 0) check(cudaGraphGetEdges(graph, from.data(), to.data(), data.data(), &count), "reading the graph");
  for (size_t i = 0; i < count; ++i) {
    description.edges.push_back({index.at(from[i]), index.at(to[i]), data[i].type != cudaGraphDependencyTypeDefault});
  }
}

}  // namespace

GraphExec::GraphExec(const std::vector<CaptureUnit>& units) {
  const Stream stream;
  std::map<cudaGraphNode_t, const CaptureUnit*> owner;
  Graph graph;
  {
    Capture capture(stream);
    std::vector<Nodes> exits;
    size_t known = 0;
    for (const CaptureUnit& unit : units) {
      try {
        Nodes entry;
        for (int p : unit.predecessors) {
          const Nodes& e = exits[static_cast<size_t>(p)];
          entry.insert(entry.end(), e.begin(), e.end());
        }
        std::sort(entry.begin(), entry.end());
        entry.erase(std::unique(entry.begin(), entry.end()), entry.end());
        capture.set_dependencies(entry);
        unit.enqueue(stream);
        Nodes exit = capture.dependencies();
        // A unit that adds no node passes its entry on.
        const Nodes all = capture.all_nodes();
        if (all.size() > known) {
          for (cudaGraphNode_t node : all) owner.emplace(node, &unit);
          known = all.size();
        }
        exits.push_back(std::move(exit));
      } catch (const Error& e) {
        throw Error(unit.name + ": cannot be captured into a graph: " + e.what(), "run it in replay mode");
      }
    }
    graph = capture.end();
  }
  size_t count = 0;
  check(cudaGraphGetNodes(graph.get(), nullptr, &count), "reading the graph");
  Nodes nodes(count);
  if (count > 0) check(cudaGraphGetNodes(graph.get(), nodes.data(), &count), "reading the graph");
  std::map<cudaGraphNode_t, int> index;
  for (cudaGraphNode_t node : nodes) {
    const auto unit = owner.find(node);
    if (unit == owner.end()) throw InternalError("the captured graph has a node that no launch added");
    index[node] = static_cast<int>(description_.nodes.size());
    description_.nodes.push_back(describe(node, *unit->second));
  }
  read_edges(graph.get(), index, description_);
  const cudaError_t status = cudaGraphInstantiate(&exec_, graph.get(), 0);
  if (status == cudaErrorMemoryAllocation) {
    cudaGetLastError();
    throw Error("out of memory on the GPU for the captured graph", "use a smaller batch or a smaller model");
  }
  check(status, "instantiating the graph");
}

GraphExec::~GraphExec() {
  if (exec_ != nullptr) cudaGraphExecDestroy(exec_);
}

void GraphExec::launch(cudaStream_t stream) const { check(cudaGraphLaunch(exec_, stream), "launching the graph"); }

}  // namespace aicf::backend::cuda
