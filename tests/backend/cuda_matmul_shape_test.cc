// How one matmul becomes strided-batched calls. The file under test needs nothing of CUDA and is built in here.
#include <gtest/gtest.h>

#include <set>
#include <tuple>
#include <vector>

#include "backend/cuda/matmul_shape.cc"
#include "ops/defs.h"

namespace aicf::backend::cuda {
namespace {

struct Case {
  Shape a, b;
  bool ta = false, tb = false;
};

MatmulShape shape_of(const Case& c) {
  ir::Attrs attrs;
  if (c.ta) attrs.set("ta", true);
  if (c.tb) attrs.set("tb", true);
  const std::vector<TensorType> in = {{f32, c.a}, {f32, c.b}};
  const auto out = ops::matmul_def.infer(ir::InferCtx{ops::matmul_def, in, attrs, nullptr});
  return matmul_shape({ops::matmul_def, attrs, in, out});
}

// Which elements of A and B each row of the result is made of: (result row, A row, B matrix).
using Row = std::tuple<int64_t, int64_t, int64_t>;

std::set<Row> rows_of(const MatmulShape& s) {
  std::set<Row> rows;
  for (const MatmulShape::Call& call : s.calls) {
    for (int64_t i = 0; i < s.batch; ++i) {
      for (int64_t row = 0; row < s.m; ++row) {
        const int64_t a = call.a + i * s.a_stride + (s.ta ? row : row * s.k);
        rows.emplace(call.out + i * s.out_stride + row * s.n, a, call.b + i * s.b_stride);
      }
    }
  }
  return rows;
}

// The same by numpy's rules.
std::set<Row> expected_rows(const Case& c) {
  const auto from_end = [](const Shape& s, int i) { return i <= s.rank() ? s[s.rank() - i] : 1; };
  const int64_t m = from_end(c.a, c.ta ? 1 : 2), k = from_end(c.a, c.ta ? 2 : 1), n = from_end(c.b, c.tb ? 2 : 1);
  const int rank = std::max(c.a.rank(), c.b.rank());
  int64_t products = 1;
  const auto extent = [&](int i) { return from_end(c.a, i) == 1 ? from_end(c.b, i) : from_end(c.a, i); };
  for (int i = 3; i <= rank; ++i) products *= extent(i);
  std::set<Row> rows;
  for (int64_t p = 0; p < products; ++p) {
    int64_t a = 0, b = 0, a_stride = m * k, b_stride = k * n, rest = p;
    for (int i = 3; i <= rank; ++i) {
      const int64_t at = rest % extent(i);
      rest /= extent(i);
      if (from_end(c.a, i) != 1) a += at * a_stride;
      if (from_end(c.b, i) != 1) b += at * b_stride;
      a_stride *= from_end(c.a, i);
      b_stride *= from_end(c.b, i);
    }
    for (int64_t row = 0; row < m; ++row) rows.emplace((p * m + row) * n, a + (c.ta ? row : row * k), b);
  }
  return rows;
}

TEST(CudaMatmulShape, OnePlainProduct) {
  const MatmulShape s = shape_of({{3, 4}, {5, 4}, false, true});
  EXPECT_EQ(s.m, 3);
  EXPECT_EQ(s.n, 5);
  EXPECT_EQ(s.k, 4);
  EXPECT_FALSE(s.ta);
  EXPECT_TRUE(s.tb);
  EXPECT_EQ(s.batch, 1);
  EXPECT_EQ(s.calls, std::vector<MatmulShape::Call>{{}});
}

TEST(CudaMatmulShape, LeadingAxesAreOneBatch) {
  const MatmulShape s = shape_of({{2, 3, 4, 5}, {2, 3, 5, 6}});
  EXPECT_EQ(s.batch, 6);
  EXPECT_EQ(s.a_stride, 20);
  EXPECT_EQ(s.b_stride, 30);
  EXPECT_EQ(s.out_stride, 24);
  EXPECT_EQ(s.calls.size(), 1u);
}

TEST(CudaMatmulShape, ASharedMatrixMultipliesMoreRows) {
  const MatmulShape s = shape_of({{2, 3, 4, 5}, {5, 6}});
  EXPECT_EQ(s.m, 24);
  EXPECT_EQ(s.batch, 1);
  EXPECT_EQ(s.calls.size(), 1u);
}

TEST(CudaMatmulShape, ASharedMatrixOfTransposedRowsIsABatchWithoutStride) {
  const MatmulShape s = shape_of({{2, 3, 5, 4}, {5, 6}, true, false});
  EXPECT_EQ(s.m, 4);
  EXPECT_EQ(s.batch, 6);
  EXPECT_EQ(s.b_stride, 0);
}

TEST(CudaMatmulShape, MixedBroadcastsTakeTheFewestCalls) {
  const MatmulShape s = shape_of({{2, 1, 4, 5}, {7, 5, 6}});
  EXPECT_EQ(s.batch, 7);
  EXPECT_EQ(s.a_stride, 0);
  EXPECT_EQ(s.calls.size(), 2u);
}

TEST(CudaMatmulShape, EveryProductIsMadeOfItsMatrices) {
  for (const bool ta : {false, true}) {
    for (const bool tb : {false, true}) {
      for (const auto& [a_lead, b_lead] :
           std::vector<std::pair<std::vector<int64_t>, std::vector<int64_t>>>{{{}, {}},
                                                                              {{3}, {3}},
                                                                              {{3}, {}},
                                                                              {{}, {3}},
                                                                              {{1}, {3}},
                                                                              {{3}, {1}},
                                                                              {{1, 1}, {1}},
                                                                              {{2, 1}, {1, 3}},
                                                                              {{2, 3}, {3}},
                                                                              {{2, 3}, {2, 1}},
                                                                              {{4, 1, 2}, {3, 1}},
                                                                              {{2, 3, 1, 2}, {1, 3, 5, 1}},
                                                                              {{1, 3, 2}, {4, 1, 2}}}) {
        std::vector<int64_t> a = a_lead, b = b_lead;
        a.insert(a.end(), {ta ? 7 : 5, ta ? 5 : 7});
        b.insert(b.end(), {tb ? 9 : 7, tb ? 7 : 9});
        const Case c = {Shape(std::span<const int64_t>(a)), Shape(std::span<const int64_t>(b)), ta, tb};
        const MatmulShape s = shape_of(c);
        SCOPED_TRACE(to_string(c.a) + " x " + to_string(c.b) + (ta ? " ta" : "") + (tb ? " tb" : ""));
        EXPECT_EQ(rows_of(s), expected_rows(c));
        EXPECT_EQ(rows_of(unbatched(s)), expected_rows(c));
        EXPECT_EQ(unbatched(s).batch, 1);
      }
    }
  }
}

}  // namespace
}  // namespace aicf::backend::cuda
