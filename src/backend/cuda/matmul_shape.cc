#include "backend/cuda/matmul_shape.h"

#include <algorithm>

namespace aicf::backend::cuda {
namespace {

using Axis = MatmulAxis;

// The stride of each leading axis of the result in this operand.
std::vector<int64_t> strides_of(const Shape& operand, const Shape& out) {
  const int lead = out.rank() - 2, missing = out.rank() - operand.rank();
  std::vector<int64_t> strides(static_cast<size_t>(lead), 0);
  int64_t stride = operand[operand.rank() - 1] * operand[operand.rank() - 2];
  for (int axis = lead - 1; axis >= missing; --axis) {
    const int64_t extent = operand[axis - missing];
    if (extent != 1) strides[axis] = stride;
    stride *= extent;
  }
  return strides;
}

std::vector<Axis> leading_axes(const Shape& a, const Shape& b, const Shape& out) {
  const std::vector<int64_t> in_a = strides_of(a, out), in_b = strides_of(b, out), in_out = strides_of(out, out);
  std::vector<Axis> axes;
  for (size_t i = 0; i < in_out.size(); ++i) {
    const Axis axis = {out[static_cast<int>(i)], in_a[i], in_b[i], in_out[i]};
    if (axis.extent == 1) continue;
    const bool joins = !axes.empty() && axes.back().a == axis.a * axis.extent && axes.back().b == axis.b * axis.extent;
    if (joins) {
      axes.back() = {axes.back().extent * axis.extent, axis.a, axis.b, axis.out};
    } else {
      axes.push_back(axis);
    }
  }
  return axes;
}

}  // namespace

int64_t MatmulGrid::products() const {
  int64_t count = 1;
  for (const Axis& axis : axes) count *= axis.extent;
  return count;
}

MatmulGrid matmul_grid(const KernelQuery& query) {
  const Shape &a = query.in[0].shape, &b = query.in[1].shape, &out = query.out[0].shape;
  MatmulGrid grid;
  grid.ta = query.attrs.get_bool("ta");
  grid.tb = query.attrs.get_bool("tb");
  grid.m = out[out.rank() - 2];
  grid.n = out[out.rank() - 1];
  grid.k = a[a.rank() - (grid.ta ? 2 : 1)];
  grid.axes = leading_axes(a, b, out);
  if (!grid.axes.empty() && !grid.ta && grid.axes.back().b == 0 && grid.axes.back().a == grid.m * grid.k) {
    grid.m *= grid.axes.back().extent;
    grid.axes.pop_back();
  }
  return grid;
}

MatmulShape matmul_shape(const KernelQuery& query) {
  const MatmulGrid grid = matmul_grid(query);
  std::vector<Axis> axes = grid.axes;
  MatmulShape shape;
  shape.m = grid.m, shape.n = grid.n, shape.k = grid.k;
  shape.ta = grid.ta, shape.tb = grid.tb;
  const auto longest =
      std::max_element(axes.begin(), axes.end(), [](const Axis& x, const Axis& y) { return x.extent < y.extent; });
  if (longest != axes.end()) {
    shape.batch = longest->extent;
    shape.a_stride = longest->a;
    shape.b_stride = longest->b;
    shape.out_stride = longest->out;
    axes.erase(longest);
  }
  shape.calls = {{}};
  for (const Axis& axis : axes) {
    std::vector<MatmulShape::Call> calls;
    for (const MatmulShape::Call& call : shape.calls) {
      for (int64_t i = 0; i < axis.extent; ++i) {
        calls.push_back({call.a + i * axis.a, call.b + i * axis.b, call.out + i * axis.out});
      }
    }
    shape.calls = std::move(calls);
  }
  return shape;
}

MatmulShape unbatched(const MatmulShape& shape) {
  MatmulShape single = shape;
  single.batch = 1;
  single.a_stride = single.b_stride = single.out_stride = 0;
  single.calls.clear();
  for (const MatmulShape::Call& call : shape.calls) {
    for (int64_t i = 0; i < shape.batch; ++i) {
      single.calls.push_back(
          {call.a + i * shape.a_stride, call.b + i * shape.b_stride, call.out + i * shape.out_stride});
    }
  }
  return single;
}

}  // namespace aicf::backend::cuda
