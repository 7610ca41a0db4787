// Reductions: the documented tree, written again here in the plainest way, against every target, thread count and
// split.
#include <gtest/gtest.h>
#include <hwy/highway.h>

#include <cmath>
#include <functional>
#include <limits>
#include <random>

#include "backend/cpu/reduce_tree.h"
#include "ops/defs.h"
#include "ops/kernel_run.h"
#include "support/every_target.h"

namespace aicf {
namespace {

using test::on_every_target;

constexpr float kInf = std::numeric_limits<float>::infinity();
constexpr float kQuiet = std::numeric_limits<float>::quiet_NaN();

Tensor run(const ir::OpDef& def, const Tensor& x, const TensorType& out, ir::Attrs attrs, test::RunMode mode = {}) {
  const test::BoundOp op{&def, std::move(attrs), {x.type()}, {out}};
  for (const backend::Kernel& k : backend::cpu::kernel_table()) {
    if (std::string_view(k.op) == def.name && k.accepts(op.query())) return test::run_kernel(op, k, {&x}, mode)[0];
  }
  throw InternalError(op.text() + ": no kernel");
}

// (outer, n, inner) reduced over the middle.
Tensor reduce(const ir::OpDef& def, const Tensor& x, test::RunMode mode = {}) {
  const Shape& s = x.shape();
  return run(def, x, {x.dtype(), {s[0], s[2]}}, {{"axes", std::vector<int64_t>{1}}}, mode);
}

// The tree of reduce_tree.h, literally.
template <class T, class Op>
T row_tree(std::vector<T> x, T identity, Op op) {
  do {
    std::vector<T> results;
    for (size_t b = 0; b < x.size(); b += 1024) {
      const size_t n = std::min<size_t>(1024, x.size() - b);
      size_t w = 1;
      while (w < n && w < 64) w *= 2;
      std::vector<T> lanes(w, identity);
      for (size_t i = 0; i < n; ++i) lanes[i % w] = op(lanes[i % w], x[b + i]);
      while (w > 1) {
        w /= 2;
        for (size_t j = 0; j < w; ++j) lanes[j] = op(lanes[j], lanes[j + w]);
      }
      results.push_back(lanes[0]);
    }
    x = results;
  } while (x.size() > 1);
  return x[0];
}

template <class T, class Op>
T column_tree(std::vector<T> x, T identity, Op op) {
  do {
    std::vector<T> results;
    for (size_t b = 0; b < x.size(); b += 64) {
      T acc = identity;
      for (size_t i = b; i < std::min(b + 64, x.size()); ++i) acc = op(acc, x[i]);
      results.push_back(acc);
    }
    x = results;
  } while (x.size() > 1);
  return x[0];
}

template <class T>
Tensor random_tensor(const Shape& shape) {
  Tensor t(TensorType{kDTypeOf<T>, shape});
  std::mt19937 random(static_cast<unsigned>(shape.elements()));
  std::uniform_real_distribution<double> number(-1, 1);
  for (int64_t i = 0; i < t.elements(); ++i) {
    const double v = number(random);
    t.as<T>()[i] = static_cast<T>(std::is_integral_v<T> ? v * 2e9 : v * std::exp2(static_cast<int>(random() % 20)));
  }
  return t;
}

template <class T, class Op>
Tensor by_the_tree(const Tensor& x, T identity, Op op) {
  const Shape& s = x.shape();
  Tensor y(TensorType{x.dtype(), {s[0], s[2]}});
  for (int64_t o = 0; o < s[0]; ++o) {
    for (int64_t c = 0; c < s[2]; ++c) {
      std::vector<T> column;
      for (int64_t i = 0; i < s[1]; ++i) column.push_back(x.as<T>()[(o * s[1] + i) * s[2] + c]);
      y.as<T>()[o * s[2] + c] = s[2] == 1 ? row_tree(column, identity, op) : column_tree(column, identity, op);
    }
  }
  return y;
}

std::vector<Shape> shapes() {
  std::vector<Shape> all;
  for (int64_t n : {1, 2, 5, 33, 63, 64, 65, 100, 127, 128, 1023, 1024, 1025, 4096, 8195, 70001})
    all.push_back({3, n, 1});
  // Enough rows to be taken together, and some more.
  for (int64_t n : {1, 2, 5, 8, 15, 16, 17, 32, 33, 63, 64, 65, 100, 255, 256, 257}) all.push_back({53, n, 1});
  for (int64_t n : {1, 2, 63, 64, 65, 4096, 4097, 5000}) {
    for (int64_t inner : {2, 17, 64, 130}) all.push_back({2, n, inner});
  }
  for (const Shape& s : {Shape{1, 70, 256}, Shape{1, 200, 257}, Shape{2, 70, 1000}, Shape{500, 3, 2},
                         Shape{1, 300000, 1}, Shape{40000, 10, 1}, Shape{1, 1, 1}, Shape{1, 20000, 3}}) {
    all.push_back(s);
  }
  return all;
}

template <class T>
void expect_the_tree() {
  using U = std::conditional_t<std::is_same_v<T, int32_t>, uint32_t,
                               std::conditional_t<std::is_same_v<T, int64_t>, uint64_t, T>>;
  for (const Shape& shape : shapes()) {
    const Tensor x = random_tensor<T>(shape);
    const Tensor sum = by_the_tree<T>(x, 0, [](T a, T b) { return static_cast<T>(U(a) + U(b)); });
    const Tensor prod = by_the_tree<T>(x, 1, [](T a, T b) { return static_cast<T>(U(a) * U(b)); });
    const auto check = [&](const char* target) {
      EXPECT_TRUE(reduce(ops::reduce_sum_def, x) == sum) << target << " " << to_string(x.type());
      EXPECT_TRUE(reduce(ops::reduce_prod_def, x) == prod) << target << " " << to_string(x.type());
    };
    if (std::is_same_v<T, float>) {
      on_every_target(check);
    } else {
      check("scalar");
    }
    for (int threads : {1, 2, 8}) {
      EXPECT_TRUE(reduce(ops::reduce_sum_def, x, {.threads = threads}) == sum) << threads << " " << to_string(x.type());
    }
    EXPECT_TRUE(reduce(ops::reduce_sum_def, x, {.last_part_first = true}) == sum) << to_string(x.type());
  }
}

TEST(Reduce, SumsAndProductsFollowTheTree) {
  const base::FlushSubnormals flush;  // products of many factors become subnormal
  expect_the_tree<float>();
  expect_the_tree<double>();
  expect_the_tree<int32_t>();
  expect_the_tree<int64_t>();
}

TEST(Reduce, ExtremesOfEveryType) {
  for (int d = 0; d < kDTypeCount; ++d) {
    const auto dtype = static_cast<DType>(d);
    for (const Shape& shape :
         {Shape{3, 77, 1}, Shape{53, 77, 1}, Shape{53, 9, 1}, Shape{2, 10000, 1}, Shape{2, 200, 300}, Shape{4, 5, 3}}) {
      Tensor x(TensorType{dtype, shape});
      std::mt19937 random(5);
      for (int64_t i = 0; i < x.elements(); ++i) {
        const int v = static_cast<int>(random() % 200);
        set_element(dtype, x.data(), i, dtype == boolean ? v > 197 : dtype == u8 ? v : v - 100);
      }
      on_every_target([&](const char* target) {
        const Tensor high = reduce(ops::reduce_max_def, x), low = reduce(ops::reduce_min_def, x);
        for (int64_t o = 0; o < shape[0]; ++o) {
          for (int64_t c = 0; c < shape[2]; ++c) {
            double largest = -1e9, least = 1e9;
            for (int64_t i = 0; i < shape[1]; ++i) {
              const double v = x.at((o * shape[1] + i) * shape[2] + c);
              largest = std::max(largest, v);
              least = std::min(least, v);
            }
            ASSERT_EQ(high.at(o * shape[2] + c), largest) << target << " " << to_string(x.type());
            ASSERT_EQ(low.at(o * shape[2] + c), least) << target << " " << to_string(x.type());
          }
        }
      });
    }
  }
}

TEST(Reduce, ExtremesPropagateNaNFromAnyPlace) {
  on_every_target([](const char* target) {
    for (const Shape& shape : {Shape{1, 9, 1}, Shape{1, 200, 1}, Shape{1, 200, 20}}) {
      for (int64_t at = 0; at < shape.elements(); ++at) {
        Tensor x(TensorType{f32, shape});
        x.as<float>()[at] = kQuiet;
        for (const ir::OpDef* def : {&ops::reduce_max_def, &ops::reduce_min_def}) {
          const Tensor y = reduce(*def, x);
          for (int64_t c = 0; c < shape[2]; ++c) {
            ASSERT_EQ(std::isnan(y.at(c)), c == at % shape[2]) << target << " " << def->name << " NaN at " << at;
          }
        }
      }
    }
  });
}

TEST(Reduce, NothingGivesTheIdentity) {
  const Shape none = {2, 0, 3};
  EXPECT_EQ(reduce(ops::reduce_sum_def, Tensor(TensorType{f32, none})).to_doubles(), std::vector<double>(6, 0));
  EXPECT_EQ(reduce(ops::reduce_prod_def, Tensor(TensorType{f16, none})).to_doubles(), std::vector<double>(6, 1));
  EXPECT_EQ(reduce(ops::reduce_max_def, Tensor(TensorType{f32, none})).to_doubles(), std::vector<double>(6, -kInf));
  EXPECT_EQ(reduce(ops::reduce_min_def, Tensor(TensorType{bf16, none})).to_doubles(), std::vector<double>(6, kInf));
  EXPECT_EQ(reduce(ops::reduce_max_def, Tensor(TensorType{i32, none})).at(0), std::numeric_limits<int32_t>::lowest());
  EXPECT_EQ(reduce(ops::reduce_max_def, Tensor(TensorType{boolean, none})).at(0), 0);
  EXPECT_EQ(reduce(ops::reduce_min_def, Tensor(TensorType{boolean, none})).at(0), 1);
  EXPECT_EQ(reduce(ops::reduce_sum_def, Tensor(TensorType{f32, {0, 4, 3}})).elements(), 0);
}

// 16-bit operands are summed in f32 by the same tree and rounded at the end.
TEST(Reduce, HalvesAreSummedInF32) {
  for (DType dtype : {bf16, f16}) {
    for (const Shape& shape : {Shape{3, 10, 1}, Shape{2, 9000, 1}, Shape{2, 150, 300}}) {
      Tensor x(TensorType{dtype, shape}), wide(TensorType{f32, shape});
      std::mt19937 random(4);
      for (int64_t i = 0; i < x.elements(); ++i) {
        set_element(dtype, x.data(), i,
                    std::ldexp(static_cast<double>(random() % 256), -static_cast<int>(random() % 24)));
        wide.as<float>()[i] = static_cast<float>(x.at(i));
      }
      const Tensor y = reduce(ops::reduce_sum_def, x), exact = reduce(ops::reduce_sum_def, wide);
      for (int64_t i = 0; i < y.elements(); ++i) {
        const float v = exact.as<float>()[i];
        ASSERT_EQ(y.as<uint16_t>()[i], dtype == f16 ? f32_to_f16(v) : f32_to_bf16(v)) << to_string(x.type());
      }
    }
  }
}

TEST(Reduce, SeveralAdjacentAxes) {
  const Tensor x = random_tensor<float>({4, 6, 5, 3});
  const Tensor y =
      run(ops::reduce_sum_def, x, {f32, {4, 1, 1, 3}}, {{"axes", std::vector<int64_t>{1, 2}}, {"keepdims", true}});
  Tensor merged(TensorType{f32, {4, 30, 3}});
  std::copy_n(x.as<float>(), x.elements(), merged.as<float>());
  const Tensor want = reduce(ops::reduce_sum_def, merged);
  EXPECT_TRUE(std::equal(want.as<float>(), want.as<float>() + 12, y.as<float>()));
}

TEST(Argmax, FirstOfEqualsAndNaNIsTheMaximum) {
  const auto argmax = [](const Tensor& x, int64_t axis, const Shape& out) {
    std::vector<int64_t> y;
    for (double v : run(ops::argmax_def, x, {i32, out}, {{"axis", axis}}).to_doubles()) {
      y.push_back(static_cast<int64_t>(v));
    }
    return y;
  };
  using Ints = std::vector<int64_t>;
  const Tensor x = Tensor::of<float>({3, 4}, {1, 7, 7, 2, -kInf, -kInf, -kInf, -kInf, 3, kQuiet, kInf, kQuiet});
  EXPECT_EQ(argmax(x, 1, {3}), (Ints{1, 0, 1}));
  EXPECT_EQ(argmax(x, 0, {4}), (Ints{2, 2, 2, 2}));
  EXPECT_EQ(argmax(Tensor::of<int64_t>({3}, {-5, -2, -2}), 0, {}), (Ints{1}));
  for (DType dtype : {f64, bf16, f16, i32}) {
    Tensor t(TensorType{dtype, {2, 700, 300}});
    for (int64_t c = 0; c < 300; ++c) set_element(dtype, t.data(), 210000 + (c * 2) * 300 + c, 1);
    const Ints y = argmax(t, 1, {2, 300});
    for (int64_t c = 0; c < 300; ++c) {
      ASSERT_EQ(y[static_cast<size_t>(c)], 0);
      ASSERT_EQ(y[static_cast<size_t>(300 + c)], c * 2) << name_of(dtype);
    }
  }
}

}  // namespace
}  // namespace aicf
