#include "ops/compute.h"

#include <fmt/format.h>

#include <vector>

#include "aicf/suggest.h"
#include "ops/numeric.h"
#include "ops/structural.h"

namespace aicf::ops {
namespace {

DType default_out(DType a, DType b) { return a == b ? a : f32; }

// Checks the operands' dtypes and returns the one multiplied in.
DType factor_dtype(const ir::InferCtx& ctx) {
  const DType a = ctx.in[0].dtype, b = ctx.in[1].dtype;
  const std::string got = fmt::format("{} and {}", name_of(a), name_of(b));
  if (!ctx.attrs.has(kCompute)) {
    if (is_float(a) && a == b) return a;
    throw mismatch(ctx, "two operands of one float type", got, "cast one to the dtype of the other");
  }
  const std::string compute = ctx.attrs.get_string(kCompute);
  if (compute == "tf32") {
    if (a == f32 && b == f32) return f32;
    throw mismatch(ctx, "two f32 operands for compute=\"tf32\"", got);
  }
  const DType factor = compute == "bf16" ? bf16 : f16;
  if (compute != name_of(factor)) {
    const std::vector<std::string> known = {"tf32", "bf16", "f16"};
    throw mismatch(ctx, "compute to be tf32, bf16 or f16", fmt::format("\"{}\"", compute),
                   base::did_you_mean(compute, known));
  }
  for (const DType dtype : {a, b}) {
    if (dtype == f32 || dtype == factor) continue;
    throw mismatch(ctx, fmt::format("operands f32 or {0} for compute=\"{0}\"", compute), got);
  }
  return factor;
}

}  // namespace

DType result_dtype(const ir::InferCtx& ctx) {
  const DType factor = factor_dtype(ctx), sums = wide(factor);
  const DType out = ctx.attrs.get_dtype(kOut, default_out(ctx.in[0].dtype, ctx.in[1].dtype));
  if (out == sums || out == factor) return out;
  throw mismatch(ctx,
                 sums == factor ? fmt::format("out to be {}", name_of(sums))
                                : fmt::format("out to be {} or {}", name_of(sums), name_of(factor)),
                 std::string(name_of(out)), "cast the result");
}

std::string compute_of(const ir::Attrs& attrs, DType a, DType b) {
  if (attrs.has(kCompute)) return attrs.get_string(kCompute);
  return a == b && wide(a) != a ? std::string(name_of(a)) : std::string();
}

void set_compute(ir::Attrs& attrs, DType a, DType b, const std::string& compute, DType out) {
  attrs.erase(kCompute);
  attrs.erase(kOut);
  if (!compute.empty() && !(name_of(a) == compute && a == b)) attrs.set(kCompute, compute);
  if (out != default_out(a, b)) attrs.set(kOut, out);
}

}  // namespace aicf::ops
