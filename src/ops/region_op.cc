#include "ops/region_op.h"

#include <fmt/format.h>

#include <utility>

#include "ops/structural.h"

namespace aicf::ops {

std::vector<TensorType> infer_body(const ir::InferCtx& ctx) {
  if (ctx.region == nullptr) throw mismatch(ctx, "a body", "none");
  size_t found = 0;
  for (const ir::ValueInfo& v : ctx.region->values()) {
    if (v.role == ir::Role::tmp || v.role == ir::Role::constant) continue;
    if (v.role != ir::Role::input) throw mismatch(ctx, "a body of inputs alone", "%" + v.name);
    if (found < ctx.in.size() && v.type != ctx.in[found]) {
      throw mismatch(ctx, fmt::format("a body whose input {} is {}", found, to_string(ctx.in[found])),
                     to_string(v.type));
    }
    ++found;
  }
  if (found != ctx.in.size()) {
    throw mismatch(ctx, fmt::format("a body of {} inputs", ctx.in.size()), std::to_string(found));
  }
  std::vector<TensorType> types;
  for (const ir::Output& o : ctx.region->outputs()) types.push_back(ctx.region->type(o.value));
  return types;
}

std::shared_ptr<const ir::Graph> body_of(const std::vector<TensorType>& inputs,
                                         const std::function<std::vector<Value>(std::vector<Value>)>& f) {
  auto graph = std::make_shared<ir::Graph>();
  std::vector<Value> operands;
  for (size_t i = 0; i < inputs.size(); ++i) {
    operands.push_back(graph->handle(graph->add_external(ir::Role::input, std::to_string(i), inputs[i])));
  }
  const std::vector<Value> results = f(operands);
  for (size_t i = 0; i < results.size(); ++i) graph->add_output(std::to_string(i), results[i].id());
  return graph;
}

ir::Sample region_sample(const char* name, std::vector<TensorType> inputs,
                         const std::function<std::vector<Value>(std::vector<Value>)>& f) {
  ir::Sample s;
  s.name = name;
  s.region = body_of(inputs, f);
  s.inputs = std::move(inputs);
  s.check_grad = false;
  return s;
}

}  // namespace aicf::ops
