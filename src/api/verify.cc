// verify(): one row per variant against the default program.
#include "aicf/verify.h"

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

Trace run(Program& program, const FeedFn& feeds, int steps) {
  const std::optional<double> lr = learning_rate(program);
  Trace trace;
  for (int step = 0; step < steps; ++step) {
    set_learning_rate(program, lr, step);
    const StepResult result = program.step(feeds(step));
    NamedTensors seen;
    for (const std::string& name : result.names()) seen.emplace_back(name, result[name]);
    for (auto& entry : program.snapshot()) seen.push_back(std::move(entry));
    trace.push_back(std::move(seen));
  }
  return trace;
}

// "" when equal, else the first difference; `step` is set to its step.
std::string compare(const Trace& want, const Trace& got, int& step) {
  for (step = 0; step < static_cast<int>(want.size()); ++step) {
    const NamedTensors& a = want[static_cast<size_t>(step)];
    const NamedTensors& b = got[static_cast<size_t>(step)];
    if (a.size() != b.size()) return "another number of tensors";
    for (size_t i = 0; i < a.size(); ++i) {
      if (a[i].first != b[i].first || a[i].second.type() != b[i].second.type()) {
        return "'" + a[i].first + "' against '" + b[i].first + "'";
      }
      const Tensor& x = a[i].second;
      const Tensor& y = b[i].second;
      if (x == y) continue;
      const size_t size = size_of(x.dtype());
      int64_t at = 0;
      const auto differs = [&](int64_t e) {
        return std::memcmp(static_cast<const char*>(x.data()) + static_cast<size_t>(e) * size,
                           static_cast<const char*>(y.data()) + static_cast<size_t>(e) * size, size) != 0;
      };
      while (!differs(at)) ++at;
      char text[160];
      std::snprintf(text, sizeof text, "step %d: '%s' element %lld: %.9g, expected %.9g", step + 1, a[i].first.c_str(),
                    static_cast<long long>(at), y.at(at), x.at(at));
      return text;
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

std::vector<Variant> variants(const CompileOptions& base, const VerifyOptions& verify_options) {
  std::vector<Variant> list;
  const auto add = [&](std::string name, auto change) {
    Variant v{std::move(name), base, {}};
    change(v.options);
    list.push_back(std::move(v));
  };
  add("replay again", [](CompileOptions&) {});
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
  add("1 thread", [](CompileOptions& o) { o.threads = 1; });
  add("2 threads", [](CompileOptions& o) { o.threads = 2; });
  return list;
}

Program make(Model& model, const Variant& variant) {
  Program program = compile(model, variant.options);
  if (variant.order_seed) {
    program.impl()->set_eager_order(runtime::random_order(program.impl()->compiled().plan, *variant.order_seed));
  }
  return program;
}

}  // namespace

std::vector<VerifyRow> verify(Model& model, const CompileOptions& options, const FeedFn& feeds,
                              const VerifyOptions& verify_options) {
  if (options.share.valid()) throw Error("verify: `share` must be empty: each variant needs a store of its own");
  Program program = compile(model, options);
  const Trace want = run(program, feeds, verify_options.steps);
  std::vector<VerifyRow> rows;
  for (const Variant& variant : variants(options, verify_options)) {
    Program other = make(model, variant);
    int step = 0;
    VerifyRow row{variant.name, false, compare(want, run(other, feeds, verify_options.steps), step)};
    row.equal = row.detail.empty();
    if (!row.equal) row.detail += "; " + first_op(compile(model, options), make(model, variant), feeds, step);
    rows.push_back(std::move(row));
  }
  return rows;
}

}  // namespace aicf
