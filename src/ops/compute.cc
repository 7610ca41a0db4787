#include "ops/compute.h"

#include <fmt/format.h>

#include <algorithm>
#include <vector>

#include "aicf/suggest.h"
#include "ops/numeric.h"
#include "ops/structural.h"

namespace aicf::ops {
namespace {

DType default_out(std::span<const DType> operands) {
  const bool agree = std::all_of(operands.begin(), operands.end(), [&](DType d) { return d == operands[0]; });
  return agree ? operands[0] : f32;
}

// Checks the operands' dtypes and returns the one multiplied in.
DType factor_dtype(const ir::InferCtx& ctx, std::span<const DType> operands) {
  const DType first = operands[0];
  const char* count = operands.size() == 2 ? "two " : "";
  std::string got;
  for (size_t i = 0; i < operands.size(); ++i) {
    got += (i == 0 ? "" : i + 1 == operands.size() ? " and " : ", ") + std::string(name_of(operands[i]));
  }
  const auto all = [&](auto fits) { return std::all_of(operands.begin(), operands.end(), fits); };
  if (!ctx.attrs.has(kCompute)) {
    if (is_float(first) && all([&](DType d) { return d == first; })) return first;
    throw mismatch(ctx, fmt::format("{}operands of one float type", count), got, "cast one to the dtype of the other");
  }
  const std::string compute = ctx.attrs.get_string(kCompute);
  if (compute == "tf32") {
    if (all([](DType d) { return d == f32; })) return f32;
    throw mismatch(ctx, fmt::format("{}f32 operands for compute=\"tf32\"", count), got);
  }
  const DType factor = compute == "bf16" ? bf16 : f16;
  if (compute != name_of(factor)) {
    const std::vector<std::string> known = {"tf32", "bf16", "f16"};
    throw mismatch(ctx, "compute to be tf32, bf16 or f16", fmt::format("\"{}\"", compute),
                   base::did_you_mean(compute, known));
  }
  if (!all([&](DType d) { return d == f32 || d == factor; })) {
    throw mismatch(ctx, fmt::format("operands f32 or {0} for compute=\"{0}\"", compute), got);
  }
  return factor;
}

}  // namespace

DType result_dtype(const ir::InferCtx& ctx, std::span<const TensorType> types) {
  std::vector<DType> operands;
  for (const TensorType& t : types) operands.push_back(t.dtype);
  const DType factor = factor_dtype(ctx, operands), sums = wide(factor);
  const DType out = ctx.attrs.get_dtype(kOut, default_out(operands));
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

void set_compute(ir::Attrs& attrs, std::span<const DType> operands, const std::string& compute, DType out) {
  attrs.erase(kCompute);
  attrs.erase(kOut);
  const auto rounded = [&](DType d) { return name_of(d) == compute; };
  if (!compute.empty() && !std::all_of(operands.begin(), operands.end(), rounded)) attrs.set(kCompute, compute);
  if (out != default_out(operands)) attrs.set(kOut, out);
}

}  // namespace aicf::ops
