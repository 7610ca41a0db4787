// A small world to test plans in: ops on integers whose results depend on every bit and place they read, a direct
// evaluation of a graph, and a machine that runs a plan on real bytes.
#pragma once

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <map>
#include <random>
#include <string>
#include <vector>

#include "aicf/error.h"
#include "ir/graph.h"
#include "ir/op.h"
#include "plan/plan.h"

namespace aicf::toy {

using ir::ValueId;
using plan::BufferId;

inline const TensorType kVec{i32, {96}};     // 384 bytes: two aligned blocks, the second half empty
inline const TensorType kMat{i32, {8, 12}};  // a vector seen as a matrix
inline const TensorType kScalar{i32, {}};
inline const TensorType kFlag{boolean, {}};
inline const TensorType kEmpty{i32, {0}};

inline uint32_t mix(uint32_t a, uint32_t b) {
  uint32_t h = a * 0x9E3779B1u ^ (b + 0x7F4A7C15u + (a << 6) + (a >> 2));
  h ^= h >> 15;
  h *= 0x85EBCA77u;
  return h ^ (h >> 13);
}

// buffers: operands, results, workspace; n: elements of the first result; m: of the first operand.
struct Call {
  std::vector<void*> in;
  std::vector<void*> out;
  void* workspace = nullptr;
  std::vector<TensorType> in_types;
  std::vector<TensorType> out_types;
  uint32_t read(size_t i, int64_t at) const {  // scalars broadcast
    const int64_t n = in_types[i].shape.elements();
    if (in_types[i].dtype == boolean) return static_cast<uint8_t*>(in[i])[n == 1 ? 0 : at];
    return static_cast<uint32_t*>(in[i])[n == 1 ? 0 : at];
  }
  uint32_t* result(size_t i) const { return static_cast<uint32_t*>(out[i]); }
  int64_t elements(size_t result) const { return out_types[result].shape.elements(); }
};

using Run = void (*)(const Call&);

struct ToyOp {
  ir::OpDef def;
  Run run = nullptr;
};

inline std::vector<TensorType> like_first(const ir::InferCtx& c) { return {c.in[0]}; }
inline std::vector<TensorType> like_largest(const ir::InferCtx& c) {
  return {c.in[0].shape.rank() == 0 ? c.in[1] : c.in[0]};
}

inline ToyOp make(const char* name, int inputs, ir::InferFn infer, std::vector<ir::AliasRule> alias, Run run,
                  uint32_t flags = 0) {
  ToyOp op;
  op.def.name = name;
  op.def.num_inputs = inputs;
  op.def.infer = infer;
  op.def.alias = std::move(alias);
  op.def.flags = flags;
  op.run = run;
  return op;
}

// Pointwise.
inline const ToyOp kBump = make("bump", 1, like_first, {{0, 0}}, [](const Call& c) {
  for (int64_t i = 0; i < c.elements(0); ++i) c.result(0)[i] = mix(c.read(0, i), 11);
});
inline const ToyOp kBlend = make("blend", 2, like_largest, {{0, 0}, {0, 1}}, [](const Call& c) {
  for (int64_t i = 0; i < c.elements(0); ++i) c.result(0)[i] = mix(c.read(0, i), c.read(1, i));
});
// Reads the whole operand for each element: never in place.
inline const ToyOp kFlip = make("flip", 1, like_first, {}, [](const Call& c) {
  const int64_t n = c.elements(0);
  for (int64_t i = 0; i < n; ++i) c.result(0)[i] = mix(c.read(0, n - 1 - i), 13);
});
inline const ToyOp kTotal = make(
    "total", 1, [](const ir::InferCtx&) { return std::vector<TensorType>{kScalar}; }, {},
    [](const Call& c) {
      uint32_t h = 17;
      for (int64_t i = 0; i < c.in_types[0].shape.elements(); ++i) h = mix(h, c.read(0, i));
      *c.result(0) = h;
    });
inline const ToyOp kTest = make(
    "test", 1, [](const ir::InferCtx&) { return std::vector<TensorType>{kFlag}; }, {},
    [](const Call& c) {
      uint32_t h = 19;
      for (int64_t i = 0; i < c.in_types[0].shape.elements(); ++i) h = mix(h, c.read(0, i));
      *static_cast<uint8_t*>(c.out[0]) = (h >> 7) & 1;
    });
inline const ToyOp kNot = make("not", 1, like_first, {{0, 0}}, [](const Call& c) {
  *static_cast<uint8_t*>(c.out[0]) = *static_cast<uint8_t*>(c.in[0]) == 0;
});
inline const ToyOp kBoth = make("both", 2, like_first, {{0, 0}, {0, 1}}, [](const Call& c) {
  *static_cast<uint8_t*>(c.out[0]) = (c.read(0, 0) & c.read(1, 0)) != 0;
});
// The other of (vector, matrix), by its bytes.
inline const ToyOp kView = make(
    "view", 1, [](const ir::InferCtx& c) { return std::vector<TensorType>{c.in[0] == kVec ? kMat : kVec}; }, {},
    [](const Call& c) { std::memcpy(c.out[0], c.in[0], c.in_types[0].bytes()); }, ir::kView);
// Two results: operand 1 is read in place by both, operand 0 is not.
inline const ToyOp kPair = make(
    "pair", 2,
    [](const ir::InferCtx& c) {
      return std::vector<TensorType>{c.in[1], c.in[1]};
    },
    {{0, 1}, {1, 1}},
    [](const Call& c) {
      const int64_t n = c.elements(0);
      for (int64_t i = 0; i < n; ++i) {
        const uint32_t a = c.read(0, n - 1 - i), b = c.read(1, i);
        c.result(0)[i] = mix(a, b);
        c.result(1)[i] = mix(b, a);
      }
    });
// (param, grad, m, v) -> (param, m, v), each over its own.
inline const ToyOp kAdam = make(
    "adam", 4,
    [](const ir::InferCtx& c) {
      return std::vector<TensorType>{c.in[0], c.in[2], c.in[3]};
    },
    {{0, 0}, {1, 2}, {2, 3}},
    [](const Call& c) {
      for (int64_t i = 0; i < c.elements(0); ++i) {
        const uint32_t p = c.read(0, i), g = c.read(1, i), m = c.read(2, i), v = c.read(3, i);
        c.result(1)[i] = mix(m, g);
        c.result(2)[i] = mix(g, v);
        c.result(0)[i] = mix(p, mix(mix(m, g), v));
      }
    });
// Must work over operand 0, at places that depend on operand 1.
inline const ToyOp kScatter = make("scatter", 2, like_first, {{0, 0, true}}, [](const Call& c) {
  const int64_t n = c.elements(0);
  if (c.out[0] != c.in[0]) std::memcpy(c.out[0], c.in[0], c.in_types[0].bytes());
  for (int64_t i = 0; i < n; ++i) {
    uint32_t& at = c.result(0)[c.read(1, i) % static_cast<uint32_t>(n)];
    at = mix(at, 23);
  }
});
// Flips by way of a workspace, so it may write over its operand.
inline const ToyOp kSpill = make("spill", 1, like_first, {{0, 0}}, [](const Call& c) {
  auto* w = static_cast<uint32_t*>(c.workspace);
  const int64_t n = c.elements(0);
  for (int64_t i = 0; i < n; ++i) w[i] = c.read(0, i);
  for (int64_t i = 0; i < n; ++i) c.result(0)[i] = mix(w[n - 1 - i], 29);
});

inline Run run_of(const ir::Op& op) {
  for (const ToyOp* t :
       {&kBump, &kBlend, &kFlip, &kTotal, &kTest, &kNot, &kBoth, &kView, &kPair, &kAdam, &kScatter, &kSpill}) {
    if (op.def == &t->def) return t->run;
  }
  throw InternalError("no toy op");
}

struct World {
  ir::Graph graph;

  ValueId input(const char* name, TensorType type = kVec) { return graph.add_external(ir::Role::input, name, type); }
  ValueId param(const char* name, TensorType type = kVec) { return graph.add_external(ir::Role::param, name, type); }
  ValueId state(const char* name, TensorType type = kVec) { return graph.add_external(ir::Role::state, name, type); }
  ValueId constant(const char* name, TensorType type = kVec) {
    Tensor data(type);
    for (size_t i = 0; i < data.bytes(); ++i) static_cast<uint8_t*>(data.data())[i] = type.dtype == boolean || i % 7;
    return graph.add_constant(std::move(data), name);
  }
  // Appends the op, labels its results NAME, NAME.1, …, and returns them.
  std::vector<ValueId> ops(const ToyOp& op, std::vector<ValueId> in, const std::string& name) {
    const ir::OpId id = graph.add_op(op.def, std::move(in));
    const std::vector<ValueId> out = graph.op(id).outputs;
    for (size_t i = 0; i < out.size(); ++i) graph.set_label(out[i], i == 0 ? name : name + "." + std::to_string(i));
    return out;
  }
  ValueId op(const ToyOp& op, std::vector<ValueId> in, const std::string& name) {
    return ops(op, std::move(in), name)[0];
  }

  std::vector<backend::PreparedKernel> kernels() const {
    std::vector<backend::PreparedKernel> result(graph.num_ops());
    for (int i = 0; i < graph.num_ops(); ++i) {
      result[i].variant = "toy";
      if (graph.op(i).def == &kSpill.def) result[i].workspace_bytes = graph.type(graph.op(i).inputs[0]).bytes();
    }
    return result;
  }

  // A checked plan.
  plan::ExecPlan plan(plan::Options options = {}) const {
    plan::ExecPlan p = plan::make_plan(graph, kernels(), options);
    plan::check_plan(graph, p);
    return p;
  }
};

using Bytes = std::vector<uint8_t>;

// What a step leaves: externals by value id, outputs by index.
struct Result {
  std::map<ValueId, Bytes> externals;
  std::vector<Bytes> outputs;
  bool operator==(const Result&) const = default;
};

inline Call call_of(const ir::Graph& graph, const ir::Op& op) {
  Call call;
  for (ValueId v : op.inputs) call.in_types.push_back(graph.type(v));
  for (ValueId v : op.outputs) call.out_types.push_back(graph.type(v));
  return call;
}

inline std::map<ValueId, Bytes> random_externals(const ir::Graph& graph, uint32_t seed) {
  std::mt19937 rng(seed);
  std::map<ValueId, Bytes> result;
  for (ValueId v = 0; v < graph.num_values(); ++v) {
    if (!graph.is_external(v)) continue;
    Bytes bytes(graph.type(v).bytes());
    for (uint8_t& b : bytes) b = static_cast<uint8_t>(graph.type(v).dtype == boolean ? rng() & 1 : rng());
    result[v] = bytes;
  }
  return result;
}

// The graph's meaning: every value in memory of its own, updates from old values.
inline Result evaluate(const ir::Graph& graph, const std::map<ValueId, Bytes>& externals) {
  std::vector<Bytes> values(graph.num_values());
  for (ValueId v = 0; v < graph.num_values(); ++v) {
    values[v].resize(graph.type(v).bytes());
    if (graph.is_external(v)) values[v] = externals.at(v);
    if (graph.value(v).role == ir::Role::constant) {
      const auto* data = static_cast<const uint8_t*>(graph.value(v).data->data());
      values[v].assign(data, data + values[v].size());
    }
  }
  for (const ir::Op& op : graph.ops()) {
    Call call = call_of(graph, op);
    Bytes workspace(call.in_types[0].bytes());
    for (ValueId v : op.inputs) call.in.push_back(values[v].data());
    for (ValueId v : op.outputs) call.out.push_back(values[v].data());
    call.workspace = workspace.data();
    run_of(op)(call);
  }
  Result result{externals, {}};
  for (const ir::Update& u : graph.updates()) {
    if (u.guard == ir::kNoValue || values[u.guard][0] != 0) result.externals[u.target] = values[u.value];
  }
  for (const ir::Output& o : graph.outputs()) result.outputs.push_back(values[o.value]);
  return result;
}

// Memory laid out as a plan says, and its launches run in any order.
class Machine {
 public:
  Machine(const ir::Graph& graph, const plan::ExecPlan& plan)
      : graph_(graph), plan_(plan), arena_(plan.arena_bytes, 0xCD) {
    for (const plan::Buffer& b : plan.buffers) {
      own_.emplace_back(b.home == plan::Home::arena ? 0 : b.bytes, 0xCD);
      if (b.home == plan::Home::constant) {
        std::memcpy(own_.back().data(), graph.value(b.owner).data->data(), b.bytes);
      }
    }
  }

  std::vector<int> launch_order() const {
    std::vector<int> order(plan_.launches.size());
    for (size_t i = 0; i < order.size(); ++i) order[i] = static_cast<int>(i);
    return order;
  }

  // A topological order of the plan's edges, drawn at random.
  std::vector<int> random_order(std::mt19937& rng) const {
    const size_t n = plan_.launches.size();
    std::vector<int> waiting(n, 0), ready, order;
    for (const plan::Edge& e : plan_.edges) ++waiting[e.to];
    for (size_t i = 0; i < n; ++i) {
      if (waiting[i] == 0) ready.push_back(static_cast<int>(i));
    }
    while (!ready.empty()) {
      std::swap(ready[rng() % ready.size()], ready.back());
      order.push_back(ready.back());
      ready.pop_back();
      for (const plan::Edge& e : plan_.edges) {
        if (e.from == order.back() && --waiting[e.to] == 0) ready.push_back(e.to);
      }
    }
    return order;
  }

  Result run(const std::map<ValueId, Bytes>& externals, const std::vector<int>& order) {
    for (const auto& [v, bytes] : externals) {
      if (!bytes.empty()) std::memcpy(at(plan_.buffer_of[v]), bytes.data(), bytes.size());
    }
    for (int i : order) launch(plan_.launches[i]);
    Result result;
    for (const auto& [v, bytes] : externals) result.externals[v] = copy(plan_.buffer_of[v]);
    for (BufferId b : plan_.outputs) result.outputs.push_back(copy(b));
    return result;
  }

 private:
  uint8_t* at(BufferId b) {
    const plan::Buffer& buffer = plan_.buffers[b];
    return buffer.home == plan::Home::arena ? arena_.data() + buffer.offset : own_[b].data();
  }
  Bytes copy(BufferId b) { return Bytes(at(b), at(b) + plan_.buffers[b].bytes); }

  void launch(const plan::Launch& l) {
    if (l.guard != plan::kNoBuffer && *at(l.guard) == 0) return;
    if (l.kind == plan::LaunchKind::copy) {
      if (const size_t n = plan_.buffers[l.writes[0]].bytes) std::memcpy(at(l.writes[0]), at(l.reads[0]), n);
      return;
    }
    Call call = call_of(graph_, graph_.op(l.op));
    for (BufferId b : l.reads) call.in.push_back(at(b));
    for (BufferId b : l.writes) call.out.push_back(at(b));
    if (l.workspace != plan::kNoBuffer) call.workspace = at(l.workspace);
    run_of(graph_.op(l.op))(call);
  }

  const ir::Graph& graph_;
  const plan::ExecPlan& plan_;
  Bytes arena_;
  std::vector<Bytes> own_;
};

// The last two plan for launches side by side, with memory to spare and without.
inline constexpr plan::Options kAllOptions[] = {{true, true},   {true, false},      {false, true},
                                                {false, false}, {true, true, true}, {true, true, true, 0}};

}  // namespace aicf::toy
