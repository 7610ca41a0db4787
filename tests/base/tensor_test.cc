// Shapes and host tensors: limits, typed access, conversions.
#include "aicf/tensor.h"

#include <gtest/gtest.h>

#include <limits>

#include "support/programs.h"

namespace aicf {
namespace {

using test::error_of;

TEST(Shape, LimitsAreErrors) {
  EXPECT_NE(error_of([] { Shape({-1}); }), "");
  EXPECT_NE(error_of([] { Shape({1, 1, 1, 1, 1, 1, 1, 1, 1}); }), "");
  EXPECT_NE(error_of([] { Shape({int64_t{1} << 32, int64_t{1} << 32}); }), "");
  EXPECT_NE(error_of([] { Shape({0, int64_t{1} << 32, int64_t{1} << 32}); }), "") << "a zero hides no overflow";
  EXPECT_EQ(Shape({int64_t{1} << 62}).elements(), int64_t{1} << 62);
  EXPECT_EQ(Shape({}).elements(), 1);
  EXPECT_EQ(Shape({3, 0, 2}).elements(), 0);
  EXPECT_EQ(to_string(TensorType{bf16, {2, 3}}), "bf16[2,3]");
  EXPECT_FALSE(Shape({2, 3}) == Shape({2, 3, 1}));
}

TEST(Tensor, TypedAccessIsChecked) {
  Tensor t = Tensor::of<float>({2}, {1, 2});
  EXPECT_EQ(t.as<float>()[1], 2);
  EXPECT_NE(error_of([&] { t.as<double>(); }), "");
  EXPECT_NE(error_of([&] { t.as<int32_t>(); }), "");
  EXPECT_NE(error_of([&] { t.at(2); }), "");
  EXPECT_NE(error_of([&] { t.at(-1); }), "");
  EXPECT_NE(error_of([&] { t.item(); }), "");
  EXPECT_NE(error_of([] { Tensor::of<float>({3}, {1, 2}); }), "");
  EXPECT_EQ(Tensor().elements(), 0);
  EXPECT_EQ(Tensor().bytes(), 0u);
}

TEST(Tensor, ElementsConvertThroughDouble) {
  for (DType dtype : {f64, f32, bf16, f16, i64, i32, u8}) {
    Tensor t(TensorType{dtype, {2}});
    set_element(dtype, t.data(), 1, 7);
    EXPECT_EQ(t.to_doubles(), (std::vector<double>{0, 7})) << name_of(dtype);
  }
  Tensor b(TensorType{boolean, {1}});
  set_element(boolean, b.data(), 0, -3);
  EXPECT_EQ(b.item(), 1);
}

TEST(Tensor, IntegersSaturate) {
  Tensor t(TensorType{i32, {4}});
  const double inf = std::numeric_limits<double>::infinity();
  const double values[] = {1e300, -inf, std::numeric_limits<double>::quiet_NaN(), -2.9};
  for (int i = 0; i < 4; ++i) set_element(i32, t.data(), i, values[i]);
  EXPECT_EQ(t.as<int32_t>()[0], std::numeric_limits<int32_t>::max());
  EXPECT_EQ(t.as<int32_t>()[1], std::numeric_limits<int32_t>::min());
  EXPECT_EQ(t.as<int32_t>()[2], 0);
  EXPECT_EQ(t.as<int32_t>()[3], -2);
}

}  // namespace
}  // namespace aicf
