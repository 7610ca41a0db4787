// Shared parts of layer_norm and rms_norm.
#include "ops/norm.h"

#include <fmt/format.h>

#include "ops/defs.h"
#include "ops/numeric.h"
#include "ops/structural.h"

namespace aicf::ops {

std::vector<TensorType> infer_norm(const ir::InferCtx& ctx) {
  const TensorType& x = ctx.in[0];
  if (!is_float(x.dtype)) throw mismatch(ctx, "floats", std::string(name_of(x.dtype)));
  if (x.shape.rank() == 0) throw mismatch(ctx, "x of rank 1 or more", "a scalar");
  const TensorType param{x.dtype, {x.shape[x.shape.rank() - 1]}};
  if (param.shape[0] == 0) throw mismatch(ctx, "a last axis that is not empty", to_string(x.shape));
  for (size_t i = 1; i < ctx.in.size(); ++i) {
    if (ctx.in[i] == param) continue;
    throw mismatch(ctx, fmt::format("{} of type {}", ctx.def.operand_names[i], to_string(param)), to_string(ctx.in[i]));
  }
  const double eps = ctx.attrs.get_float("eps");
  if (!(eps >= 0)) throw mismatch(ctx, "a non-negative eps", fmt::format("{}", eps));
  return {x};
}

Value row_mean(Value rows) {
  const Value total = sum(rows, {1}, true);
  return total / static_cast<double>(rows.shape()[1]);
}

Value inverse_rms(Value rows, double eps) { return rsqrt(row_mean(rows * rows) + eps); }

Value sum_of_rows(Value rows, const TensorType& type) { return cast(sum(rows, {0}), type.dtype); }

Value from_rows(Value rows, const TensorType& type) { return reshaped(cast(rows, type.dtype), type.shape); }

std::vector<ir::Sample> samples_norm(int params, double eps) {
  const std::pair<const char*, Shape> shapes[] = {
      {"vector", {5}},         {"matrix", {6, 4}}, {"rank3", {2, 3, 4}}, {"rank4", {2, 1, 3, 4}},
      {"rows_of_one", {3, 1}}, {"one", {1}},       {"no_rows", {0, 3}},  {"long_row", {2, 67}}};
  std::vector<ir::Sample> all;
  for (const auto& [name, shape] : shapes) {
    ir::Sample s;
    s.name = name;
    s.inputs = {{f32, shape}};
    for (int i = 0; i < params; ++i) s.inputs.push_back({f32, {shape[shape.rank() - 1]}});
    s.attrs = {{"eps", eps}};
    all.push_back(std::move(s));
  }
  return all;
}

}  // namespace aicf::ops
