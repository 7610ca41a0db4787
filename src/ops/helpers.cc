// What records share: broadcasting and its inverse, constants, axes.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "aicf/error.h"
#include "ops/defs.h"
#include "ops/numeric.h"
#include "ops/structural.h"

namespace aicf {
namespace ops {

bool broadcast_shapes(const Shape& a, const Shape& b, Shape& out) {
  const int rank = std::max(a.rank(), b.rank());
  std::vector<int64_t> dims(static_cast<size_t>(rank));
  for (int i = 1; i <= rank; ++i) {
    const int64_t x = i <= a.rank() ? a[a.rank() - i] : 1;
    const int64_t y = i <= b.rank() ? b[b.rank() - i] : 1;
    if (x != y && x != 1 && y != 1) return false;
    dims[static_cast<size_t>(rank - i)] = x == 1 ? y : x;
  }
  out = to_shape(dims);
  return true;
}

Value sum_to_shape(Value x, const Shape& shape) {
  const Shape from = x.shape();
  if (from == shape) return x;
  const int added = from.rank() - shape.rank();
  if (added < 0) throw InternalError("sum_to_shape: " + to_string(from) + " to " + to_string(shape));
  std::vector<int> axes;
  for (int i = 0; i < from.rank(); ++i) {
    if (i < added || (shape[i - added] == 1 && from[i] != 1)) axes.push_back(i);
  }
  if (!axes.empty()) x = sum(x, axes);
  return reshaped(x, shape);
}

Value zeros(Value like, const TensorType& type) { return filled(like, type, 0); }

Value filled(Value like, const TensorType& type, double value) {
  const Value scalar = literal(like, value, type.dtype);
  return type.shape.rank() == 0 ? scalar : broadcast(scalar, type.shape);
}

int normalize_axis(const ir::OpDef& def, int64_t axis, int rank) {
  if (axis < -rank || axis >= rank) {
    throw Error(fmt::format("{}: expected an axis from {} to {}, got {}", def.name, -rank, rank - 1, axis),
                rank == 0 ? "a scalar has no axis" : "");
  }
  return static_cast<int>(axis < 0 ? axis + rank : axis);
}

Value reshaped(Value x, const Shape& shape) { return x.shape() == shape ? x : reshape(x, shape); }

Value rows_of(Value x) {
  const Shape shape = x.shape();
  const int64_t width = shape[shape.rank() - 1];
  return reshaped(x, {product(shape, 0, shape.rank() - 1), width});
}

DType wide(DType dtype) { return dtype == bf16 || dtype == f16 ? f32 : dtype; }

Value widen(Value x) { return cast(x, wide(x.dtype())); }

double lowest(DType dtype) {
  return dtype == f64 ? std::numeric_limits<double>::lowest() : std::numeric_limits<float>::lowest();
}

double smallest_normal() { return std::numeric_limits<float>::min(); }

ir::Cost cost_per_element(std::span<const TensorType> in, std::span<const TensorType> out, double flops) {
  ir::Cost cost;
  cost.flops = flops * static_cast<double>(in[0].shape.elements());
  for (const TensorType& t : in) cost.bytes += static_cast<double>(t.bytes());
  for (const TensorType& t : out) cost.bytes += static_cast<double>(t.bytes());
  return cost;
}

}  // namespace ops

Value literal(Value like, double value) { return literal(like, value, like.dtype()); }

Value literal(Value like, double value, DType dtype) {
  if (!like.valid()) throw Error("literal: `like` is an empty Value");
  if (!is_float(dtype)) {
    const double limit = dtype == boolean ? 1 : dtype == u8 ? 255 : dtype == i32 ? 2147483647.0 : 9007199254740992.0;
    const double low = dtype == boolean || dtype == u8 ? 0 : dtype == i32 ? -2147483648.0 : -limit;
    if (!(value >= low && value <= limit) || value != std::floor(value)) {
      throw Error(fmt::format("literal {}: expected a value of {}", value, name_of(dtype)), "cast the other operand");
    }
  }
  Tensor data(TensorType{dtype, {}});
  set_element(dtype, data.data(), 0, value);
  ir::Graph& graph = *like.graph();
  return graph.handle(graph.add_constant(std::move(data)));
}

}  // namespace aicf
