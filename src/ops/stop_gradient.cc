// stop_gradient: x itself, through which no gradient flows.
#include "ops/defs.h"
#include "ops/samples.h"
#include "ops/structural.h"

namespace aicf {
namespace ops {
namespace {

std::vector<TensorType> infer(const ir::InferCtx& ctx) { return {ctx.in[0]}; }

std::vector<Value> expand(const ir::ExpandCtx& ctx) { return {ctx.in[0]}; }

// The gradient is 0 whatever the differences are.
ir::Sample sample(const char* name, TensorType type) {
  ir::Sample s;
  s.name = std::string(name) + "_no_gradient_by_definition";
  s.inputs = {type};
  s.check_grad = false;
  return s;
}

std::vector<ir::Sample> samples() {
  return {sample("scalar", {f32, {}}),
          sample("vector", {f32, {7}}),
          sample("rank4", {f32, {2, 1, 3, 2}}),
          sample("empty", {f32, {0, 3}}),
          sample("i32", {i32, {3}}),
          by_hand("by_hand", {values({2}, {1, -2})}, {{1, -2}})};
}

}  // namespace

const ir::OpDef stop_gradient_def = {
    .name = "stop_gradient",
    .num_inputs = 1,
    .operand_names = {"x"},
    .infer = infer,
    .grad = ir::zero_gradient,
    .expand = expand,
    .flags = ir::kComposite,
    .dtypes = all_dtypes(),
    .samples = samples,
    .precision = ir::PrecisionClass::follow,
};

}  // namespace ops

Value stop_gradient(Value x) { return ir::emit(ops::stop_gradient_def, {x}); }

}  // namespace aicf
