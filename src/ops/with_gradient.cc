// with_gradient: the value y of f(x1…xn) with a gradient of the user's own. Operands are y, x1…xn; the region is the
// gradient: inputs x1…xn, y, dy; outputs named dx1…dxn, where a missing one means that no gradient flows to that
// operand.
#include <fmt/format.h>

#include "aicf/error.h"
#include "ops/defs.h"
#include "ops/inline_region.h"
#include "ops/samples.h"
#include "ops/structural.h"

namespace aicf {
namespace ops {
namespace {

std::string gradient_name(size_t operand) { return "dx" + std::to_string(operand); }

// The operand whose gradient an output of the region is; 0 when its name says nothing of the kind.
size_t operand_of(const std::string& output, size_t operands) {
  for (size_t i = 1; i < operands; ++i) {
    if (output == gradient_name(i)) return i;
  }
  return 0;
}

// x1…xn, y, dy.
std::vector<TensorType> region_inputs(std::span<const TensorType> in) {
  std::vector<TensorType> types(in.begin() + 1, in.end());
  types.push_back(in[0]);
  types.push_back(in[0]);
  return types;
}

std::vector<TensorType> infer(const ir::InferCtx& ctx) {
  if (ctx.region == nullptr) throw mismatch(ctx, "a region, the gradient", "none");
  const std::vector<TensorType> wanted = region_inputs(ctx.in);
  size_t found = 0;
  for (const ir::ValueInfo& v : ctx.region->values()) {
    if (v.role == ir::Role::tmp || v.role == ir::Role::constant) continue;
    if (v.role != ir::Role::input) throw mismatch(ctx, "a region of inputs alone", "%" + v.name);
    if (found < wanted.size() && v.type != wanted[found]) {
      throw mismatch(ctx, fmt::format("a region whose input {} is {}", found + 1, to_string(wanted[found])),
                     to_string(v.type));
    }
    ++found;
  }
  if (found != wanted.size()) {
    throw mismatch(ctx, fmt::format("a region of {} inputs", wanted.size()), std::to_string(found));
  }
  for (const ir::Output& o : ctx.region->outputs()) {
    const size_t operand = operand_of(o.name, ctx.in.size());
    if (operand == 0) throw mismatch(ctx, fmt::format("outputs dx1…dx{}", ctx.in.size() - 1), o.name);
    if (ctx.region->type(o.value) != ctx.in[operand]) {
      throw mismatch(ctx, fmt::format("{} of type {}", o.name, to_string(ctx.in[operand])),
                     to_string(ctx.region->type(o.value)), "a gradient has the type of its operand");
    }
  }
  return {ctx.in[0]};
}

std::vector<Value> expand(const ir::ExpandCtx& ctx) { return {ctx.in[0]}; }

ir::GradResult grad(const ir::GradCtx& ctx) {
  std::vector<Value> inputs(ctx.in.begin() + 1, ctx.in.end());
  inputs.push_back(ctx.in[0]);
  inputs.push_back(*ctx.cotangents[0]);
  const std::vector<Value> results = inline_region(*ctx.op.region, ctx.graph, inputs);
  ir::GradResult grads(ctx.in.size());
  for (size_t i = 0; i < results.size(); ++i) {
    grads[operand_of(ctx.op.region->outputs()[i].name, ctx.in.size())] = results[i];
  }
  return grads;
}

// A graph with the inputs a gradient sees, and their handles.
struct Region {
  std::shared_ptr<ir::Graph> graph = std::make_shared<ir::Graph>();
  std::vector<Value> x;
  Value y, dy;

  explicit Region(std::span<const TensorType> operands) {
    const auto input = [&](const std::string& name, const TensorType& type) {
      return graph->handle(graph->add_external(ir::Role::input, name, type));
    };
    for (size_t i = 1; i < operands.size(); ++i) x.push_back(input("x" + std::to_string(i), operands[i]));
    y = input("y", operands[0]);
    dy = input("dy", operands[0]);
  }
};

ir::Sample sample(const char* name, Shape shape) {
  ir::Sample s;
  s.name = std::string(name) + "_own_gradient_is_no_difference";
  s.inputs = floats({shape, shape});
  s.check_grad = false;
  return s;
}

std::vector<ir::Sample> samples();

}  // namespace

const ir::OpDef with_gradient_def = {
    .name = "with_gradient",
    .num_inputs = ir::kVariadic,
    .operand_names = {"values"},
    .infer = infer,
    .grad = grad,
    .expand = expand,
    .flags = ir::kComposite,
    .dtypes = {f32, f64, bf16, f16},
    .samples = samples,
    .precision = ir::PrecisionClass::follow,
};

namespace {

// The gradient of each is twice the cotangent times the operand.
std::vector<ir::Sample> samples() {
  std::vector<ir::Sample> all = {sample("scalar", {}), sample("vector", {7}), sample("rank4", {2, 1, 3, 2}),
                                 sample("one", {1}), sample("empty", {0, 3})};
  ir::Sample same = sample("same", {5});
  same.same_as = {-1, 0};
  all.push_back(std::move(same));
  all.push_back(by_hand("by_hand", {values({2}, {1, -2}), values({2}, {3, 4})}, {{1, -2}}));
  for (ir::Sample& s : all) {
    Region region(s.inputs);
    region.graph->add_output("dx1", (region.dy * 2 * region.x[0]).id());
    s.region = region.graph;
  }
  return all;
}

}  // namespace
}  // namespace ops

Value with_gradient(const std::vector<Value>& inputs, const std::function<Value(const std::vector<Value>&)>& f,
                    const std::function<std::vector<Value>(const std::vector<Value>&, Value, Value)>& df) {
  if (inputs.empty()) throw Error("with_gradient: no inputs");
  const Value y = f(inputs);
  if (!y.valid()) throw Error("with_gradient: f returned an empty Value");
  std::vector<Value> operands = {y};
  operands.insert(operands.end(), inputs.begin(), inputs.end());
  std::vector<TensorType> types;
  for (const Value& v : operands) types.push_back(v.type());

  const ops::Region region(types);
  const std::vector<Value> dx = df(region.x, region.y, region.dy);
  const std::string call = ir::call_text(ops::with_gradient_def, types);
  if (dx.size() != inputs.size()) {
    throw Error(fmt::format("{}: expected {} gradients from df, one an input, got {}", call, inputs.size(), dx.size()),
                "an empty Value means that no gradient flows to that input");
  }
  for (size_t i = 0; i < dx.size(); ++i) {
    if (!dx[i].valid()) continue;
    if (dx[i].graph() != region.graph.get()) {
      throw Error(
          fmt::format("{}: expected df to return values computed from its arguments, got one of another graph "
                      "for input {}",
                      call, i + 1));
    }
    region.graph->add_output(ops::gradient_name(i + 1), dx[i].id());
  }
  return ir::emit(ops::with_gradient_def, operands, {}, region.graph);
}

}  // namespace aicf
