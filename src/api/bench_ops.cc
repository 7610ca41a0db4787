// bench_ops(): programs whose operands are states and whose results are updates of others, so that nothing leaves the
// device.
#include <fmt/format.h>

#include <algorithm>
#include <set>

#include "aicf/bench.h"
#include "aicf/error.h"
#include "aicf/ops.h"
#include "autodiff/differentiate.h"
#include "optim/optimizer.h"
#include "passes/pass.h"

namespace aicf {
namespace {

using Values = std::vector<Value>;

// A layer: its operands, the first of which is the large one, and its result.
struct Layer {
  std::string name;
  std::vector<TensorType> operands;
  std::function<Value(const Values&)> result;
  std::vector<int> wrt;  // operands that the backward has gradients of
  bool forward = true, backward = true;
};

constexpr const char* kResult = "result";

std::string operand_name(size_t i) { return fmt::format("x{}", i); }

Values declare(Model& model, const Layer& layer) {
  Values operands;
  for (size_t i = 0; i < layer.operands.size(); ++i) {
    const TensorType& type = layer.operands[i];
    const Init init = is_float(type.dtype) ? Init::uniform(-1, 1) : Init::zeros();
    operands.push_back(model.state(operand_name(i), type, init));
  }
  return operands;
}

void store(Model& model, const std::string& name, Value value) {
  model.update(model.state(name, {value.dtype(), value.shape()}), value);
}

void forward(Model& model, const Layer& layer) { store(model, "y", layer.result(declare(model, layer))); }

// From the operands and the cotangent of the result to the operands' gradients.
void backward(Model& model, const Layer& layer) {
  const Value y = layer.result(declare(model, layer)).named(kResult);
  const TensorType type = {y.dtype(), y.shape()};
  model.state("dy", type, Init::uniform(-1, 1));
  ir::Graph& graph = model.graph();
  passes::expand_undifferentiable(graph);
  std::vector<ir::ValueId> wrt;
  for (int i : layer.wrt) wrt.push_back(graph.find(operand_name(static_cast<size_t>(i))));
  const auto gradients = autodiff::differentiate(graph, graph.find(kResult), graph.find("dy"), wrt);
  for (size_t i = 0; i < wrt.size(); ++i) {
    const ir::ValueId to = graph.add_external(ir::Role::state, fmt::format("dx{}", i), graph.type(wrt[i]),
                                              {{"init", std::string("zeros")}});
    graph.add_update(to, gradients[i].value());
  }
}

// 148 tensors, of the proportions of GPT-2's smallest, and gradients of all.
void adamw(Model& model, int64_t width) {
  Values params;
  const auto param = [&](const std::string& name, Shape shape) {
    params.push_back(model.param(name, {f32, shape}, Init::uniform(-1, 1)));
  };
  param("wte", {50304, width});
  param("wpe", {1024, width});
  const auto norm = [&](const std::string& name) {
    param(name + ".weight", {width});
    param(name + ".bias", {width});
  };
  const auto linear = [&](const std::string& name, int64_t out, int64_t in) {
    param(name + ".weight", {out * width, in * width});
    param(name + ".bias", {out * width});
  };
  for (int layer = 0; layer < 12; ++layer) {
    const std::string h = fmt::format("h{}.", layer);
    norm(h + "ln1");
    linear(h + "qkv", 3, 1);
    linear(h + "out", 1, 1);
    norm(h + "ln2");
    linear(h + "up", 4, 1);
    linear(h + "down", 1, 4);
  }
  norm("ln");
  std::vector<optim::Trained> trained;
  for (size_t i = 0; i < params.size(); ++i) {
    trained.push_back({params[i], model.state(fmt::format("g{}", i), {f32, params[i].shape()}, Init::uniform(-1, 1))});
  }
  optim::Optimizer(optim::AdamW{}).impl()->emit(model.graph(), trained);
}

std::vector<Layer> layers(DType dtype, size_t bytes) {
  const auto rows = [&](int64_t n) { return std::max<int64_t>(1, static_cast<int64_t>(bytes / size_of(dtype)) / n); };
  constexpr int64_t kWidth = 1024, kClasses = 50304;
  const TensorType x = {dtype, {rows(kWidth), kWidth}}, scale = {dtype, {kWidth}};
  const TensorType logits = {dtype, {rows(kClasses), kClasses}}, labels = {i32, {rows(kClasses)}};
  return {
      {"layer_norm", {x, scale, scale}, [](const Values& v) { return layer_norm(v[0], v[1], v[2]); }, {0, 1, 2}},
      {"rms_norm", {x, scale}, [](const Values& v) { return rms_norm(v[0], v[1]); }, {0, 1}},
      {"softmax", {x}, [](const Values& v) { return softmax(v[0]); }, {0}},
      {"cross_entropy", {logits, labels}, [](const Values& v) { return cross_entropy(v[0], v[1]); }, {0}},
      {"gelu_residual", {x, x}, [](const Values& v) { return v[1] + gelu(v[0]); }, {}, true, false},
      {"gelu", {x}, [](const Values& v) { return gelu(v[0]); }, {0}, false, true},
  };
}

// The externals that are read and those that are written.
size_t bytes_moved(const ir::Graph& graph) {
  size_t bytes = 0;
  const auto readers = graph.readers();
  std::set<ir::ValueId> read;
  for (const ir::Update& u : graph.updates()) {
    bytes += graph.type(u.target).bytes();
    if (graph.is_external(u.value)) read.insert(u.value);
  }
  for (ir::ValueId v = 0; v < graph.num_values(); ++v) {
    if (graph.is_external(v) && !readers[static_cast<size_t>(v)].empty()) read.insert(v);
  }
  for (ir::ValueId v : read) bytes += graph.type(v).bytes();
  return bytes;
}

class Runner {
 public:
  Runner(const OpsBenchOptions& options, const std::function<void(const OpsBenchRow&)>& seen)
      : options_(options), seen_(seen) {}

  void run(const std::string& name, const std::function<void(Model&)>& build) {
    if (name.find(options_.only) == std::string::npos) return;
    Model model;
    build(model);
    OpsBenchRow row;
    row.name = name;
    row.bytes = bytes_moved(model.graph());
    const double copy = copy_rate(row.bytes);
    measure(model, row);
    row.share = row.bytes_per_second / copy;
    rows_.push_back(row);
    if (seen_) seen_(row);
  }

  std::vector<OpsBenchRow> rows() && { return std::move(rows_); }

 private:
  void measure(Model& model, OpsBenchRow& row) const {
    CompileOptions compile_with;
    compile_with.backend = options_.backend;
    compile_with.mode = options_.mode;
    compile_with.disable_passes = options_.disable_passes;
    Program program = compile(model, compile_with);
    const BenchResult result = bench(
        program, [](int64_t) { return std::span<const Feed>(); }, options_.timing);
    row.time = result.resident;
    row.launches = result.graph.launches;
    row.nodes = result.graph.nodes;
    row.bytes_per_second = static_cast<double>(row.bytes) / (row.time.median * 1e-3);
  }

  // Bytes read and written in a second by a copy that moves as many.
  double copy_rate(size_t bytes) const {
    Model model;
    const Value from = model.state("from", {f32, {static_cast<int64_t>(bytes / 8)}}, Init::ones());
    model.update(model.state("to", {f32, from.shape()}), from);
    OpsBenchRow copy;
    copy.bytes = bytes_moved(model.graph());
    measure(model, copy);
    return copy.bytes_per_second;
  }

  const OpsBenchOptions& options_;
  const std::function<void(const OpsBenchRow&)>& seen_;
  std::vector<OpsBenchRow> rows_;
};

// What "auto" comes to.
bool is_on_cpu(const OpsBenchOptions& options) {
  Model model;
  model.update(model.state("s", {f32, {}}), model.state("t", {f32, {}}));
  CompileOptions compile_with;
  compile_with.backend = options.backend;
  return compile(model, compile_with).backend() == "cpu";
}

}  // namespace

std::vector<OpsBenchRow> bench_ops(const OpsBenchOptions& options,
                                   const std::function<void(const OpsBenchRow&)>& seen) {
  const bool on_cpu = is_on_cpu(options);
  const size_t bytes = options.bytes > 0 ? options.bytes : size_t{on_cpu ? 64u : 256u} << 20;
  Runner runner(options, seen);
  // The largest of its tensors is the table of 50304 rows; the others are about two thirds of the whole.
  const auto width = std::max<int64_t>(8, static_cast<int64_t>(bytes / 4 / 50304) / 8 * 8);
  runner.run("adamw f32", [&](Model& model) { adamw(model, std::min<int64_t>(width, 768)); });
  for (DType dtype : {f32, bf16}) {
    for (const Layer& layer : layers(dtype, bytes)) {
      const std::string of(name_of(dtype));
      if (layer.forward) {
        runner.run(fmt::format("{}.forward {}", layer.name, of), [&](Model& model) { forward(model, layer); });
      }
      if (layer.backward) {
        runner.run(fmt::format("{}.backward {}", layer.name, of), [&](Model& model) { backward(model, layer); });
      }
    }
  }
  std::vector<OpsBenchRow> rows = std::move(runner).rows();
  if (rows.empty()) throw Error("bench_ops: nothing is named '" + options.only + "'");
  return rows;
}

}  // namespace aicf
