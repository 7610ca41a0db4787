// Shared parts of cross_entropy and mse.
#include "ops/loss.h"

#include <fmt/format.h>

#include "ops/structural.h"

namespace aicf::ops {
namespace {

constexpr const char* kNames[] = {"none", "sum", "mean"};

int find(const std::string& name) {
  for (int i = 0; i < 3; ++i) {
    if (name == kNames[i]) return i;
  }
  return -1;
}

}  // namespace

std::string reduction_name(Reduction reduction) { return kNames[static_cast<int>(reduction)]; }

Reduction reduction_of(const ir::InferCtx& ctx) {
  const std::string name = ctx.attrs.get_string("reduction");
  const int found = find(name);
  if (found < 0) throw mismatch(ctx, "`reduction` none, sum or mean", fmt::format("\"{}\"", name));
  return static_cast<Reduction>(found);
}

Reduction reduction_of(const ir::Op& op) { return static_cast<Reduction>(find(op.attrs.get_string("reduction"))); }

}  // namespace aicf::ops
