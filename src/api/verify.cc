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

// Each once, however often it stands in the pipeline.
std::vector<passes::Pass> passes_of(passes::Effect effect) {
  std::vector<passes::Pass> found;
  for (const passes::Pass& pass : passes::pipeline()) {
    const auto same = [&](const passes::Pass& known) { return std::string_view(known.name) == pass.name; };
    if (pass.effect == effect && std::none_of(found.begin(), found.end(), same)) found.push_back(pass);
  }
  return found;
}

std::string off(const passes::Pass& pass) { return "pass " + std::string(pass.name) + " off"; }

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
  for (const passes::Pass& pass : passes_of(passes::Effect::exact)) {
    add(off(pass), [&](CompileOptions& o) { o.disable_passes.push_back(pass.name); });
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

// --- equal within a bound ---------------------------------------------------------------------------------------

// How far two programs may be apart whose matmuls sum in another order (two backends, or a pass that reorders off), or
// that round a value once more or less. Other ops agree bit for bit. With f32 operands: a relative L2 of a few eps √K,
// K the longest inner axis. Values rounded to a narrower format flip to the neighbouring one where the f32 sums
// straddle a tie, and relu masks flip where a sum straddles 0: then the bound is in units of the narrow format's eps,
// which is half an ulp, what one rounding is.
struct Bounds {
  double gradient = 0, loss = 0;
};

// Of an op with a result or operand in this dtype.
double eps_of(DType dtype) { return dtype == bf16 ? 0x1p-9 : dtype == f16 ? 0x1p-12 : 0x1p-24; }

Bounds bounds_of(const ir::Graph& graph) {
  int64_t inner = 1;
  constexpr double kF32 = 0x1p-24;
  double eps = kF32;
  for (const ir::Op& op : graph.ops()) {
    const std::string_view name = op.def->name;
    const TensorType& a = graph.type(op.inputs.empty() ? op.outputs[0] : op.inputs[0]);
    if (name == "cast" && is_float(a.dtype)) eps = std::max(eps, eps_of(graph.type(op.outputs[0]).dtype));
    if (name != "matmul") continue;
    inner = std::max(inner, a.shape[a.shape.rank() - (op.attrs.get_bool("ta") ? 2 : 1)]);
    eps = std::max(eps, op.attrs.get_string("compute") == "tf32" ? 0x1p-12 : eps_of(a.dtype));
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

Bounds wider(const Bounds& a, const Bounds& b) { return {std::max(a.gradient, b.gradient), std::max(a.loss, b.loss)}; }

// The largest relative L2 of the outputs that `wanted` names, as a row.
VerifyRow within(const std::string& title, const StepResult& want, const StepResult& got, double bound,
                 bool (*wanted)(std::string_view)) {
  VerifyRow row{title, true, ""};
  double largest = -1;
  for (const std::string& name : want.names()) {
    if (!wanted(name)) continue;
    const double distance = relative_l2(want[name], got[name]);
    if (!(distance <= bound)) row.equal = false;
    if (distance <= largest) continue;
    largest = distance;
    row.detail = fmt::format("'{}' is {:.2g} apart (relative L2), at most {:.2g}", name, distance, bound);
  }
  return row;
}

bool is_loss(std::string_view name) { return name == "loss"; }
bool is_gradient(std::string_view name) { return name.ends_with(".grad"); }
bool is_any(std::string_view) { return true; }

// Loss and every gradient of the first step, and the loss of the later ones; without a loss, all outputs of the first.
std::vector<VerifyRow> apart(Model& model, CompileOptions want_options, CompileOptions got_options,
                             const std::string& title, const FeedFn& feeds, int steps) {
  const bool trains = got_options.loss.valid();
  const std::vector<std::string> untrained = compile(model, got_options).untrained();
  for (const ir::ValueInfo& v : model.graph().values()) {
    const bool frozen = std::find(untrained.begin(), untrained.end(), v.name) != untrained.end();
    if (!trains || v.role != ir::Role::param || frozen) continue;
    want_options.fetch.push_back(v.name + ".grad");
    got_options.fetch.push_back(v.name + ".grad");
  }
  Program want = compile(model, want_options), got = compile(model, got_options);
  const Bounds bounds = wider(bounds_of(want.impl()->compiled().graph), bounds_of(got.impl()->compiled().graph));
  std::vector<VerifyRow> rows;
  double worst = 0;
  for (int step = 0; step < (trains ? steps : 1); ++step) {
    const StepResult a = want.step(feeds(step)), b = got.step(feeds(step));
    if (!trains) return {within(title + ": outputs of step 1", a, b, bounds.loss, is_any)};
    if (step > 0) {
      const double distance = relative_l2(a["loss"], b["loss"]);
      if (!(distance <= worst)) worst = distance;  // a NaN stays
      continue;
    }
    rows.push_back(within(title + ": loss of step 1", a, b, bounds.loss, is_loss));
    rows.push_back(within(title + ": gradients of step 1", a, b, bounds.gradient, is_gradient));
  }
  // relu flips and Adam, which divides by the gradient's size, amplify.
  const double margin = 4 * bounds.loss;
  rows.push_back({title + ": loss of later steps", worst <= margin,
                  fmt::format("{:.2g} apart at most, margin {:.2g}", worst, margin)});
  return rows;
}

void append(std::vector<VerifyRow>& rows, std::vector<VerifyRow> more) {
  for (VerifyRow& row : more) rows.push_back(std::move(row));
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
  for (const passes::Pass& pass : passes_of(passes::Effect::reorders)) {
    CompileOptions without = options;
    without.disable_passes.push_back(pass.name);
    const Program other = compile(model, without);
    if (ir::print(other.impl()->compiled().graph) == ir::print(program.impl()->compiled().graph)) {
      rows.push_back({off(pass), true, ""});  // it does nothing here
      continue;
    }
    append(rows, apart(model, without, options, off(pass), feeds, verify_options.steps));
  }
  if (!on_cpu && options.loss.valid()) {
    CompileOptions on_the_cpu = options;
    on_the_cpu.backend = "cpu";
    append(rows, apart(model, on_the_cpu, options, "against cpu", feeds, verify_options.steps));
  }
  return rows;
}

}  // namespace aicf
