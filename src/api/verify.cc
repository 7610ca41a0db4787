// verify(): one row per variant against the default program.
#include "aicf/verify.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <optional>

#include "aicf/error.h"
#include "base/hash.h"
#include "ir/op.h"
#include "ir/text.h"
#include "passes/pass.h"
#include "runtime/program.h"

namespace aicf {
namespace {

using FeedFn = std::function<std::vector<Feed>(int)>;

// Everything a user can see after each step.
using Trace = std::vector<NamedTensors>;

// Writes the learning rate of this step: the declared one, less a sixteenth each step.
void set_learning_rate(Program& program, const std::optional<double>& base, int step) {
  if (base) program.write("optimizer.lr", *base * (1.0 - step / 16.0));
}

std::optional<double> learning_rate(const Program& program) {
  for (const std::string& name : program.states()) {
    if (name == "optimizer.lr") return program.read(name).item();
  }
  return {};
}

NamedTensors seen_after_step(Program& program, const FeedFn& feeds, const std::optional<double>& lr, int step) {
  set_learning_rate(program, lr, step);
  const StepResult result = program.step(feeds(step));
  NamedTensors seen;
  for (const std::string& name : result.names()) seen.emplace_back(name, result[name]);
  for (auto& entry : program.snapshot()) seen.push_back(std::move(entry));
  return seen;
}

Trace run(Program& program, const FeedFn& feeds, int steps) {
  const std::optional<double> lr = learning_rate(program);
  Trace trace;
  for (int step = 0; step < steps; ++step) trace.push_back(seen_after_step(program, feeds, lr, step));
  return trace;
}

std::string difference(const Tensor& x, const Tensor& y, const std::string& name, int step) {
  const size_t size = size_of(x.dtype());
  int64_t at = 0;
  const auto differs = [&](int64_t e) {
    return std::memcmp(static_cast<const char*>(x.data()) + static_cast<size_t>(e) * size,
                       static_cast<const char*>(y.data()) + static_cast<size_t>(e) * size, size) != 0;
  };
  while (!differs(at)) ++at;
  return fmt::format("step {}: '{}' element {}: {:.9g}, expected {:.9g}", step + 1, name, at, y.at(at), x.at(at));
}

// Runs the program beside the trace: "" when equal, else the first difference; `step` is set to its step.
std::string compare(const Trace& want, Program& program, const FeedFn& feeds, int& step) {
  const std::optional<double> lr = learning_rate(program);
  for (step = 0; step < static_cast<int>(want.size()); ++step) {
    const NamedTensors& a = want[static_cast<size_t>(step)];
    const NamedTensors b = seen_after_step(program, feeds, lr, step);
    if (a.size() != b.size()) return "another number of tensors";
    for (size_t i = 0; i < a.size(); ++i) {
      if (a[i].first != b[i].first || a[i].second.type() != b[i].second.type()) {
        return "'" + a[i].first + "' against '" + b[i].first + "'";
      }
      if (!(a[i].second == b[i].second)) return difference(a[i].second, b[i].second, a[i].first, step);
    }
  }
  return "";
}

// Hashes of every op result of one step, by value id.
std::vector<std::optional<uint64_t>> step_hashes(Program& program, const FeedFn& feeds, int last_step) {
  Program::Impl& impl = *program.impl();
  const ir::Graph& graph = impl.compiled().graph;
  std::vector<std::optional<uint64_t>> hashes(static_cast<size_t>(graph.num_values()));
  const std::optional<double> lr = learning_rate(program);
  for (int step = 0; step <= last_step; ++step) {
    set_learning_rate(program, lr, step);
    if (step == last_step) {
      program.set_mode(Mode::eager);
      impl.set_observer([&](int index) {
        const plan::Launch& launch = impl.compiled().plan.launches[static_cast<size_t>(index)];
        if (launch.op == ir::kNoOp) return;
        const ir::Op& op = graph.op(launch.op);
        for (size_t i = 0; i < op.outputs.size(); ++i) {
          const size_t bytes = graph.type(op.outputs[i]).bytes();
          std::vector<char> copy(bytes);
          impl.store()->queue().download(copy.data(), impl.executable().address(launch.writes[i]), bytes);
          hashes[static_cast<size_t>(op.outputs[i])] = base::hash_bytes(copy.data(), copy.size());
        }
      });
    }
    program.step(feeds(step));
  }
  impl.set_observer(nullptr);
  return hashes;
}

// The first op, in graph order, whose result differs in that step when both programs run launch by launch.
std::string first_op(Program want, Program got, const FeedFn& feeds, int step) {
  const ir::Graph& graph = want.impl()->compiled().graph;
  if (ir::print(graph) != ir::print(got.impl()->compiled().graph)) return "the passes gave another graph";
  const auto a = step_hashes(want, feeds, step);
  const auto b = step_hashes(got, feeds, step);
  for (const ir::Op& op : graph.ops()) {
    for (ir::ValueId v : op.outputs) {
      const auto i = static_cast<size_t>(v);
      if (a[i] && b[i] && *a[i] != *b[i]) {
        return std::string("first op that differs: ") + ir::value_name(graph, v) + " = " + op.def->name;
      }
    }
  }
  return "run launch by launch, all ops agree";
}

struct Variant {
  std::string name;
  CompileOptions options;
  std::optional<uint64_t> order_seed;
};

std::vector<Variant> variants(const CompileOptions& base, const VerifyOptions& verify_options, bool on_cpu) {
  std::vector<Variant> list;
  const auto add = [&](std::string name, auto change) {
    Variant v{std::move(name), base, {}};
    change(v.options);
    list.push_back(std::move(v));
  };
  add("again", [](CompileOptions&) {});
  add("replay", [](CompileOptions& o) { o.mode = Mode::replay; });
  add("eager, plan order", [](CompileOptions& o) { o.mode = Mode::eager; });
  for (int i = 0; i < verify_options.orders; ++i) {
    const uint64_t seed = verify_options.seed + static_cast<uint64_t>(i);
    add("eager, random order (seed " + std::to_string(seed) + ")", [](CompileOptions& o) { o.mode = Mode::eager; });
    list.back().order_seed = seed;
  }
  add("no alias", [](CompileOptions& o) { o.alias = false; });
  add("no reuse", [](CompileOptions& o) { o.reuse = false; });
  add("no alias, no reuse", [](CompileOptions& o) { o.alias = o.reuse = false; });
  for (const passes::Pass& pass : passes::pipeline()) {
    if (pass.effect != passes::Effect::exact) continue;
    add("pass " + std::string(pass.name) + " off", [&](CompileOptions& o) { o.disable_passes.push_back(pass.name); });
  }
  if (on_cpu) {
    add("1 thread", [](CompileOptions& o) { o.threads = 1; });
    add("2 threads", [](CompileOptions& o) { o.threads = 2; });
  }
  return list;
}

Program make(Model& model, const Variant& variant) {
  Program program = compile(model, variant.options);
  if (variant.order_seed) {
    program.impl()->set_eager_order(runtime::random_order(program.impl()->compiled().plan, *variant.order_seed));
  }
  return program;
}

// --- another backend --------------------------------------------------------------------------------------------

// How far two backends may be apart. Ops other than matmul agree bit for bit, so what differs is the order of the sums
// of matmuls: with f32 operands a relative L2 of a few eps √K, K the longest inner axis. Operands rounded to a narrower
// format (alike on both sides) flip to the neighbouring value where the f32 sums straddle a tie, and relu masks flip
// where a sum straddles 0: then the bound is in units of the narrow format's eps.
struct Bounds {
  double gradient = 0, loss = 0;
};

Bounds bounds_of(const ir::Graph& graph) {
  int64_t inner = 1;
  constexpr double kF32 = 0x1p-24;
  double eps = kF32;
  for (const ir::Op& op : graph.ops()) {
    if (std::string_view(op.def->name) != "matmul") continue;
    const TensorType& a = graph.type(op.inputs[0]);
    inner = std::max(inner, a.shape[a.shape.rank() - (op.attrs.get_bool("ta") ? 2 : 1)]);
    if (a.dtype == bf16) eps = std::max(eps, 0x1p-9);
    if (a.dtype == f16 || op.attrs.get_string("compute") == "tf32") eps = std::max(eps, 0x1p-12);
  }
  if (eps > kF32) return {16 * eps, 4 * eps};
  const double each = 8 * eps * std::sqrt(static_cast<double>(inner));
  return {each, each};
}

double relative_l2(const Tensor& want, const Tensor& got) {
  double difference = 0, norm = 0;
  for (int64_t i = 0; i < want.elements(); ++i) {
    difference += (got.at(i) - want.at(i)) * (got.at(i) - want.at(i));
    norm += want.at(i) * want.at(i);
  }
  return norm > 0 ? std::sqrt(difference / norm) : std::sqrt(difference);
}

// Loss and every gradient of the first step, and the loss of the later ones, on `options` and on the CPU.
std::vector<VerifyRow> against_cpu(Model& model, const CompileOptions& options, const FeedFn& feeds, int steps) {
  CompileOptions with_gradients = options;
  const std::vector<std::string> untrained = compile(model, options).untrained();
  for (const ir::ValueInfo& v : model.graph().values()) {
    if (v.role == ir::Role::param && std::find(untrained.begin(), untrained.end(), v.name) == untrained.end()) {
      with_gradients.fetch.push_back(v.name + ".grad");
    }
  }
  CompileOptions on_cpu = with_gradients;
  on_cpu.backend = "cpu";
  Program got = compile(model, with_gradients), want = compile(model, on_cpu);
  const Bounds bounds = bounds_of(got.impl()->compiled().graph);
  VerifyRow gradients{"against cpu: gradients of step 1", true, ""};
  VerifyRow first{"against cpu: loss of step 1", true, ""};
  double worst = 0;
  for (int step = 0; step < steps; ++step) {
    const StepResult a = want.step(feeds(step)), b = got.step(feeds(step));
    const double apart = relative_l2(a["loss"], b["loss"]);
    if (step > 0) {
      if (!(apart <= worst)) worst = apart;  // a NaN stays
      continue;
    }
    first.equal = apart <= bounds.loss;
    first.detail = fmt::format("{:.2g} apart, at most {:.2g}", apart, bounds.loss);
    double largest = -1;
    for (const std::string& name : with_gradients.fetch) {
      if (!name.ends_with(".grad")) continue;
      const double distance = relative_l2(a[name], b[name]);
      if (!(distance <= bounds.gradient)) gradients.equal = false;
      if (distance <= largest) continue;
      largest = distance;
      gradients.detail =
          fmt::format("'{}' is {:.2g} apart (relative L2), at most {:.2g}", name, distance, bounds.gradient);
    }
  }
  // relu flips and Adam, which divides by the gradient's size, amplify.
  const double margin = 4 * bounds.loss;
  VerifyRow later{"against cpu: loss of later steps", worst <= margin,
                  fmt::format("{:.2g} apart at most, margin {:.2g}", worst, margin)};
  return {first, gradients, later};
}

}  // namespace

std::vector<VerifyRow> verify(Model& model, const CompileOptions& options, const FeedFn& feeds,
                              const VerifyOptions& verify_options) {
  if (options.share.valid()) throw Error("verify: `share` must be empty: each variant needs a store of its own");
  Program program = compile(model, options);
  const Trace want = run(program, feeds, verify_options.steps);
  std::vector<VerifyRow> rows;
  const bool on_cpu = program.backend() == "cpu";
  for (const Variant& variant : variants(options, verify_options, on_cpu)) {
    Program other = make(model, variant);
    int step = 0;
    VerifyRow row{variant.name, false, compare(want, other, feeds, step)};
    row.equal = row.detail.empty();
    if (!row.equal) row.detail += "; " + first_op(compile(model, options), make(model, variant), feeds, step);
    rows.push_back(std::move(row));
  }
  if (!on_cpu && options.loss.valid()) {
    for (VerifyRow& row : against_cpu(model, options, feeds, verify_options.steps)) rows.push_back(std::move(row));
  }
  return rows;
}

}  // namespace aicf
