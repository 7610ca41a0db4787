// pad on CUDA: each element of the result is one of the operand, or the value.
#include <fmt/format.h>

#include <cstring>

#include "aicf/tensor.h"
#include "backend/cuda/code.h"
#include "backend/cuda/index_space.h"
#include "backend/cuda/kernels.h"
#include "backend/cuda/scalar.h"

namespace aicf::backend::cuda {
namespace {

// The axes, those without padding merged into the one before; at least one. In elements.
struct Axes {
  std::vector<int64_t> in, low, out;
};

Axes axes_of(const KernelQuery& query) {
  const Shape &in = query.in[0].shape, &out = query.out[0].shape;
  const std::vector<int64_t> low = query.attrs.get_ints("low");
  Axes axes;
  for (int i = 0; i < in.rank(); ++i) {
    if (i > 0 && in[i] == out[i]) {
      axes.in.back() *= in[i];
      axes.low.back() *= in[i];
      axes.out.back() *= in[i];
    } else {
      axes.in.push_back(in[i]);
      axes.low.push_back(low[i]);
      axes.out.push_back(out[i]);
    }
  }
  if (in.rank() == 0) return {{1}, {0}, {1}};
  return axes;
}

std::string value_text(const KernelQuery& query) {
  uint64_t bits = 0;
  set_element(query.out[0].dtype, &bits, 0, query.attrs.get_float("value"));
  return fmt::format("({}){:#x}ull", bits_type(size_of(query.out[0].dtype)), bits);
}

// Statements that define `inside` and the offset `at` in the operand, of the result's element `index`.
std::string find(const Axes& axes, const IndexText& index, const std::string& element) {
  std::string text = index.coordinates(axes.out, element, "c"), inside;
  for (size_t k = 0; k < axes.out.size(); ++k) {
    text += fmt::format("const {} s{} = c{} - {};\n", index.type(), k, k, index.number(axes.low[k]));
    if (axes.in[k] == axes.out[k]) continue;
    inside += (inside.empty() ? "" : " && ") + fmt::format("s{} < {}", k, index.number(axes.in[k]));
  }
  text += "const bool inside = " + (inside.empty() ? "true" : inside) + ";\n";
  return text + fmt::format("const {} at = {};\n", index.type(), index.offset(dense_strides(Shape(axes.in)), "s"));
}

PreparedKernel prepare(const KernelQuery& query) {
  const int64_t n = query.out[0].shape.elements();
  if (n == 0) return {};
  const Axes axes = axes_of(query);
  const size_t size = size_of(query.out[0].dtype);
  auto width = static_cast<int64_t>(16 / size);
  const bool whole = axes.out.back() % width == 0 && axes.in.back() % width == 0 && axes.low.back() % width == 0;
  while (width > n) width /= 2;
  const Grid grid = grid_for((n + width - 1) / width);
  const IndexText index(n);
  const std::string type = bits_type(size);
  Generated g;
  g.what = ir::call_text(query.def, query.in);
  g.params = {{"const " + type + "* x", 0}, {type + "* y", 1}};
  g.blocks = grid.blocks;
  g.threads = grid.threads;
  g.body = fmt::format("const {} i = {} * {};\nif (i >= {}) return;\nPack<{}, {}> b;\n", index.type(),
                       index.thread(grid.threads), index.number(width), index.number(n), type, width);
  if (whole) {
    g.body += find(axes, index, "i");
    g.body += fmt::format("if (inside) {{\nb = load_pack<{}>(x + at);\n}} else {{\n", width);
    g.body += fmt::format("#pragma unroll\nfor (int j = 0; j < {}; ++j) b.at[j] = {};\n}}\n", width, value_text(query));
    g.body += "store_pack(y + i, b);\n";
  } else {
    g.body += fmt::format("const int count = {0} - i < {1} ? (int)({0} - i) : {1};\n", index.number(n), width);
    g.body += fmt::format("#pragma unroll\nfor (int j = 0; j < {}; ++j) {{\n", width);
    // Beyond the end the last element is found again.
    g.body += fmt::format("const {} e = i + (j < count ? j : count - 1);\n", index.type()) + find(axes, index, "e");
    g.body += fmt::format("b.at[j] = inside ? x[at] : {};\n}}\nstore_pack(y + i, b, count);\n", value_text(query));
  }
  return prepared({g});
}

}  // namespace

void register_pad(KernelTable& table) {
  table.push_back(
      {.op = "pad", .variant = "packs", .accepts = [](const KernelQuery&) { return true; }, .prepare = prepare});
}

}  // namespace aicf::backend::cuda
