// Shared parts of the structural ops' shape rules.
#include "ops/structural.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "aicf/error.h"

namespace aicf::ops {

Error mismatch(const ir::InferCtx& ctx, const std::string& expected, const std::string& got, const std::string& hint) {
  return Error(fmt::format("{}: expected {}, got {}", ir::call_text(ctx.def, ctx.in), expected, got), hint);
}

std::string list_text(const std::vector<int64_t>& values) { return fmt::format("[{}]", fmt::join(values, ",")); }

Shape shape_attr(const ir::InferCtx& ctx, const char* name) {
  const std::vector<int64_t> dims = ctx.attrs.get_ints(name);
  try {
    return to_shape(dims);
  } catch (const Error& error) {
    throw mismatch(ctx, fmt::format("a shape as `{}` ({})", name, error.what()), list_text(dims));
  }
}

std::vector<int64_t> extents_attr(const ir::InferCtx& ctx, const char* name, int rank) {
  std::vector<int64_t> values = ctx.attrs.get_ints(name);
  if (static_cast<int>(values.size()) != rank) {
    throw mismatch(ctx, fmt::format("{} numbers in `{}`, one per axis", rank, name), list_text(values));
  }
  for (int64_t v : values) {
    if (v < 0) throw mismatch(ctx, fmt::format("no negative number in `{}`", name), list_text(values));
  }
  return values;
}

int axis_attr(const ir::InferCtx& ctx, int rank) {
  const int64_t axis = ctx.attrs.get_int("axis");
  if (axis < 0 || axis >= rank) {
    throw mismatch(ctx, fmt::format("an axis below the rank, {}", rank), fmt::format("axis {}", axis));
  }
  return static_cast<int>(axis);
}

std::vector<int64_t> to_vector(const Shape& shape) { return {shape.begin(), shape.end()}; }

Shape to_shape(const std::vector<int64_t>& dims) { return Shape(std::span<const int64_t>(dims)); }

Shape with_dim(const Shape& shape, int axis, int64_t extent) {
  std::vector<int64_t> dims = to_vector(shape);
  dims[axis] = extent;
  return to_shape(dims);
}

int64_t product(const Shape& shape, int begin, int end) {
  int64_t n = 1;
  for (int i = begin; i < end; ++i) n *= shape[i];
  return n;
}

const std::vector<DType>& all_dtypes() {
  static const std::vector<DType> dtypes = {f32, f64, bf16, f16, i64, i32, u8, boolean};
  return dtypes;
}

}  // namespace aicf::ops
