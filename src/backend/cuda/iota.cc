// iota on CUDA: each element's index along the axis.
#include <fmt/format.h>

#include "backend/cuda/code.h"
#include "backend/cuda/index_space.h"
#include "backend/cuda/kernels.h"
#include "backend/cuda/scalar.h"

namespace aicf::backend::cuda {
namespace {

std::string converted(DType dtype, const std::string& x) {
  switch (dtype) {
    case DType::f32:
      return "to_f32(" + x + ")";
    case DType::bf16:
      return "to_bf16(to_f32(" + x + "))";
    case DType::f16:
      return "to_f16(to_f32(" + x + "))";
    default:
      return fmt::format("({}){}", element_type(dtype), x);
  }
}

PreparedKernel prepare(const KernelQuery& query) {
  const TensorType& out = query.out[0];
  const int64_t n = out.shape.elements();
  if (n == 0) return {};
  const int axis = static_cast<int>(query.attrs.get_int("axis"));
  int64_t inner = 1;
  for (int i = axis + 1; i < out.shape.rank(); ++i) inner *= out.shape[i];
  auto width = static_cast<int64_t>(16 / size_of(out.dtype));
  while (width > n) width /= 2;
  const Grid grid = grid_for((n + width - 1) / width);
  const IndexText index(n);
  const std::string type = element_type(out.dtype);
  Generated g;
  g.what = fmt::format("iota {}", to_string(out));
  g.params = {{type + "* y", 0}};
  g.blocks = grid.blocks;
  g.threads = grid.threads;
  g.body = fmt::format(R"(const {index} i = {thread} * {width};
if (i >= {n}) return;
Pack<{type}, {width}> b;
#pragma unroll
for (int j = 0; j < {width}; ++j) {{
  const i64 k = (i + j) / {inner} % {extent};
  b.at[j] = {value};
}}
store_pack(y + i, b, {n} - i < {width} ? (int)({n} - i) : {width});
)",
                       fmt::arg("index", index.type()), fmt::arg("thread", index.thread(grid.threads)),
                       fmt::arg("width", width), fmt::arg("n", index.number(n)), fmt::arg("type", type),
                       fmt::arg("inner", index.number(inner)), fmt::arg("extent", index.number(out.shape[axis])),
                       fmt::arg("value", converted(out.dtype, "k")));
  return prepared({g});
}

}  // namespace

void register_iota(KernelTable& table) {
  table.push_back({.op = "iota",
                   .variant = "packs",
                   .accepts = [](const KernelQuery& query) { return query.out[0].dtype != f64; },
                   .prepare = prepare});
}

}  // namespace aicf::backend::cuda
