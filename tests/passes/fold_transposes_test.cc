// fold_transposes by numbers: products whose transposes are folded against those that read and give them, over the
// shapes and dtypes that choose between kernels. The CPU's kernels add the products of one result in the order of the
// inner axis whatever the flags, so the bits are the same where both choose the same kernel.
#include <gtest/gtest.h>

#include <cmath>

#include "aicf/ops.h"
#include "ir/op.h"
#include "ops/matmul.h"
#include "passes/pass.h"
#include "passes/special_values.h"

namespace aicf::passes {
namespace {

struct Product {
  int64_t m, k, n;
  int64_t batch;
  DType dtype;
};

// (T(a)·T(b)), and T(a·b), with an operand shared by the whole batch.
ir::Graph products(const Product& p) {
  ir::Graph graph;
  const auto input = [&](const char* name, const Shape& shape) {
    return graph.handle(graph.add_external(ir::Role::input, name, {p.dtype, shape}));
  };
  const Value a = input("a", {p.batch, p.k, p.m}), b = input("b", {p.batch, p.n, p.k});
  const Value c = input("c", {p.batch, p.m, p.k}), w = input("w", {p.n, p.k});
  const std::vector<int> swap = {0, 2, 1};
  graph.add_output("operands", matmul(transpose(a, swap), transpose(b, swap)).id());
  graph.add_output("shared", matmul(c, transpose(w, {1, 0})).id());
  graph.add_output("result", transpose(matmul(c, b, false, true), swap).id());
  return graph;
}

int count(const ir::Graph& graph, const char* name) {
  int found = 0;
  for (const ir::Op& op : graph.ops()) found += std::string_view(op.def->name) == name;
  return found;
}

// Relative to the sum of the products' magnitudes, which is at most 4k for elements below 2: eps of the sums for each
// of k additions in either order, and one rounding of the result.
double bound(const Product& p) {
  const double narrow = p.dtype == bf16 ? 0x1p-8 : p.dtype == f16 ? 0x1p-11 : 0;
  return 4.0 * static_cast<double>(p.k) * (2 * static_cast<double>(p.k) * 0x1p-24 + narrow);
}

TEST(FoldTransposes, StaysWithinTheBoundOfTheSums) {
  int same = 0, all = 0;
  for (const DType dtype : {f32, bf16, f16}) {
    for (const int64_t batch : {1, 3}) {
      for (const auto& [m, k, n] : {std::array<int64_t, 3>{1, 1, 1},
                                    {2, 3, 5},
                                    {7, 300, 4},
                                    {64, 64, 64},
                                    {130, 70, 33},
                                    {33, 129, 200},
                                    {5, 0, 3}}) {
        const Product p{m, k, n, batch, dtype};
        const ir::Graph before = products(p);
        ir::Graph after = before;
        ASSERT_TRUE(fold_transposes(after));
        ASSERT_EQ(count(after, "transpose"), 0);
        test::TensorMap feeds;
        size_t seed = 0;
        for (const ir::ValueInfo& v : before.values()) {
          if (v.role == ir::Role::input) feeds[v.name] = test::ordinary_tensor(v.type, seed++);
        }
        const test::TensorMap want = test::interpret(before, feeds), got = test::interpret(after, feeds);
        for (const auto& [name, tensor] : want) {
          ++all;
          same += tensor == got.at(name);
          for (int64_t i = 0; i < tensor.elements(); ++i) {
            ASSERT_LE(std::fabs(tensor.at(i) - got.at(name).at(i)), bound(p))
                << name << " " << m << "×" << k << "×" << n;
          }
        }
      }
    }
  }
  RecordProperty("bitwise", same);
  EXPECT_EQ(same, all) << "of the CPU's kernels, no choice and no order depends on the flags at these sizes";
}

}  // namespace
}  // namespace aicf::passes
