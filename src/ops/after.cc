// after: its first operand itself, which nothing reads before the others are known. It says when, not what: it is the
// last composite to expand (passes/pipeline.cc), so that no pass moves what reads it ahead of what it waits for.
#include "ops/defs.h"
#include "ops/samples.h"
#include "ops/structural.h"

namespace aicf::ops {
namespace {

std::vector<TensorType> infer(const ir::InferCtx& ctx) { return {ctx.in[0]}; }

std::vector<Value> expand(const ir::ExpandCtx& ctx) { return {ctx.in[0]}; }

ir::Sample sample(const char* name, std::vector<TensorType> inputs) {
  ir::Sample s;
  s.name = name;
  s.inputs = std::move(inputs);
  return s;
}

std::vector<ir::Sample> samples() {
  ir::Sample same = sample("itself", {{f32, {5}}, {f32, {5}}});
  same.same_as = {-1, 0};
  return {sample("scalar", {{f32, {}}, {f32, {}}}),
          sample("nothing", {{f32, {7}}}),
          sample("rank4", {{f32, {2, 1, 3, 2}}, {f32, {3}}, {f32, {2, 2}}}),
          sample("empty", {{f32, {0, 3}}, {f32, {0}}}),
          std::move(same),
          by_hand("by_hand", {values({2}, {1, -2}), values({3}, {5, 6, 7})}, {{1, -2}})};
}

}  // namespace

const ir::OpDef after_def = {
    .name = "after",
    .num_inputs = ir::kVariadic,
    .operand_names = {"values"},
    .infer = infer,
    .expand = expand,
    .flags = ir::kComposite | ir::kView,
    .dtypes = all_dtypes(),
    .samples = samples,
    .precision = ir::PrecisionClass::follow,
};

}  // namespace aicf::ops
