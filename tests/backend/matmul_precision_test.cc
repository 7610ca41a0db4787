// matmul in tf32, bf16 and f16 on the CPU: factors rounded once, sums in f32, one rounding of the result; the same bits
// for any thread count and part order; guards.
#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <limits>
#include <optional>
#include <random>
#include <string>
#include <vector>

#include "aicf/error.h"
#include "aicf/ops.h"
#include "autodiff/differentiate.h"
#include "ir/text.h"
#include "ops/compute.h"
#include "ops/defs.h"
#include "ops/harness.h"
#include "ops/matmul.h"
#include "ops/reference.h"

namespace aicf::test {
namespace {

struct Types {
  DType a = f32, b = f32;
  std::string compute = {};
  std::optional<DType> out = {};
};

std::vector<Types> all_types() {
  std::vector<Types> all = {{f32, f32, "tf32"}};
  for (const DType narrow : {bf16, f16}) {
    const std::string name(name_of(narrow));
    all.push_back({narrow, narrow});
    all.push_back({narrow, narrow, "", f32});
    all.push_back({f32, f32, name});
    all.push_back({f32, f32, name, narrow});
    all.push_back({f32, narrow, name});
    all.push_back({narrow, f32, name, narrow});
  }
  return all;
}

struct Case {
  Shape a, b;
  bool ta = false, tb = false;
};

std::vector<Case> cases() {
  return {{{1, 1}, {1, 1}},
          {{7, 0}, {0, 5}},
          {{37, 53}, {53, 29}},
          {{40, 70}, {33, 70}, false, true},
          {{70, 40}, {70, 33}, true, false},
          {{90, 41}, {33, 90}, true, true},
          {{5, 900}, {900, 9}},
          {{5, 6000}, {6000, 2}},  // operands and
          {{200, 3}, {3, 150}},    // results that are converted in several parts
          {{3, 20, 33}, {33, 19}},
          {{20, 33}, {3, 33, 19}},
          {{2, 1, 20, 33}, {3, 19, 33}, false, true},
          {{2, 33, 20}, {2, 33, 19}, true, false}};
}

BoundOp bound_of(const Case& c, const Types& t) {
  ir::Attrs attrs;
  if (c.ta) attrs.set("ta", true);
  if (c.tb) attrs.set("tb", true);
  if (!t.compute.empty()) attrs.set("compute", t.compute);
  if (t.out) attrs.set("out", *t.out);
  BoundOp op{&ops::matmul_def, attrs, {{t.a, c.a}, {t.b, c.b}}, {}};
  op.out = ops::matmul_def.infer(ir::InferCtx{ops::matmul_def, op.in, op.attrs, nullptr});
  return op;
}

template <class Draw>
Tensor drawn(const TensorType& type, Draw draw) {
  Tensor tensor(type);
  for (int64_t i = 0; i < tensor.elements(); ++i) set_element(type.dtype, tensor.data(), i, draw());
  return tensor;
}

std::vector<const backend::Kernel*> accepting(const BoundOp& op) {
  std::vector<const backend::Kernel*> found;
  for (const backend::Kernel& kernel : backend::cpu::kernel_table()) {
    if (std::string_view(kernel.op) == "matmul" && kernel.accepts(op.query())) found.push_back(&kernel);
  }
  EXPECT_EQ(found.size(), 2u) << op.text();
  return found;
}

// Every kernel in every way to run it gives one kernel's bits.
void run_everyway(const BoundOp& op, const Tensor& a, const Tensor& b,
                  const std::function<void(const Tensor&, const std::string&)>& check) {
  for (const backend::Kernel* kernel : accepting(op)) {
    const std::string where = op.text() + " by " + kernel->variant;
    const Tensor first = run_kernel(op, *kernel, {&a, &b}, {})[0];
    check(first, where);
    for (const RunMode& mode : {RunMode{.threads = 0, .last_part_first = true, .poison = 0xCD}, RunMode{.threads = 1},
                                RunMode{.threads = 2}, RunMode{.threads = 8}}) {
      EXPECT_TRUE(run_kernel(op, *kernel, {&a, &b}, mode)[0] == first)
          << where << ": other bits with " << mode.threads << " threads";
    }
  }
}

// Whole numbers from -4 to 4 are exact as factors, and so are their sums in f32: the result is one rounding of them.
TEST(MatmulPrecision, OneRoundingOfExactSums) {
  for (const Types& t : all_types()) {
    for (const Case& c : cases()) {
      const BoundOp op = bound_of(c, t);
      std::minstd_rand random(1);
      const auto draw = [&] { return static_cast<double>(random() % 9) - 4; };
      const Tensor a = drawn(op.in[0], draw), b = drawn(op.in[1], draw);
      const Array want = matmul_reference({Array(a), Array(b)}, op.attrs)[0];
      run_everyway(op, a, b, [&](const Tensor& got, const std::string& where) {
        for (int64_t i = 0; i < got.elements(); ++i) {
          ASSERT_EQ(got.at(i), rounded(want.data[static_cast<size_t>(i)], op.out[0].dtype)) << where << " at " << i;
        }
      });
    }
  }
}

// λ·√K·u·Σ|a·b| of the sums (matmul_test.cc), λ = 4, u = 2^-24, and the result's own rounding. The operands are
// compared as rounded: no more than that is lost of them.
TEST(MatmulPrecision, ErrorsStayWithinTheirBound) {
  for (const Types& t : all_types()) {
    for (const Case& c : cases()) {
      const BoundOp op = bound_of(c, t);
      std::minstd_rand random(2);
      std::uniform_real_distribution<double> uniform(-1, 1);
      const Tensor a = drawn(op.in[0], [&] { return uniform(random); });
      const Tensor b = drawn(op.in[1], [&] { return uniform(random); });
      const Arrays in = {Array(a), Array(b)};
      Arrays magnitudes = in;
      for (Array& x : magnitudes) {
        for (double& v : x.data) v = std::fabs(v);
      }
      const Array want = matmul_reference(in, op.attrs)[0], magnitude = matmul_reference(magnitudes, op.attrs)[0];
      const int64_t k = c.a[c.a.rank() - (c.ta ? 2 : 1)];
      const double sums = 4 * std::sqrt(static_cast<double>(k) + 1) * 0x1p-24;
      run_everyway(op, a, b, [&](const Tensor& got, const std::string& where) {
        const DType out = op.out[0].dtype;
        for (int64_t i = 0; i < got.elements(); ++i) {
          const auto at = static_cast<size_t>(i);
          const double error = sums * magnitude.data[at];
          const double last = epsilon(out) * (std::fabs(want.data[at]) + error) + smallest_normal(out) * epsilon(out);
          ASSERT_NEAR(got.at(i), want.data[at], error + last + smallest_normal(f32)) << where << " at " << i;
        }
      });
    }
  }
}

// One factor through a 1×1 product with 1: its rounding.
double factor(double x, const std::string& compute) {
  const BoundOp op = bound_of({{1, 1}, {1, 1}}, {f32, f32, compute});
  const Tensor a = Tensor::of<float>({1, 1}, {static_cast<float>(x)}), one = Tensor::of<float>({1, 1}, {1});
  double result = 0;
  run_everyway(op, a, one, [&](const Tensor& got, const std::string&) { result = got.at(0); });
  return result;
}

TEST(MatmulPrecision, FactorsAreRoundedToNearestEven) {
  EXPECT_EQ(factor(1 + 0x1p-10, "tf32"), 1 + 0x1p-10);
  EXPECT_EQ(factor(1 + 0x1p-11, "tf32"), 1);  // a tie
  EXPECT_EQ(factor(1 + 0x1.8p-10, "tf32"), 1 + 0x1p-9);
  EXPECT_EQ(factor(1 + 0x1.004p-11, "tf32"), 1 + 0x1p-10);
  EXPECT_EQ(factor(-1 - 0x1.004p-11, "tf32"), -1 - 0x1p-10);
  EXPECT_EQ(factor(0x1.fffp0, "tf32"), 2);
  EXPECT_EQ(factor(1 + 0x1p-7, "bf16"), 1 + 0x1p-7);
  EXPECT_EQ(factor(1 + 0x1p-8, "bf16"), 1);
  EXPECT_EQ(factor(1 + 0x1.8p-7, "bf16"), 1 + 0x1p-6);
  EXPECT_EQ(factor(1 + 0x1p-11, "f16"), 1);
  EXPECT_EQ(factor(65519, "f16"), 65504);
  EXPECT_EQ(factor(65520, "f16"), std::numeric_limits<double>::infinity());
  EXPECT_EQ(factor(0x1p-24, "f16"), 0x1p-24) << "an f16 subnormal is kept";
  for (const std::string& compute : std::vector<std::string>{"tf32", "bf16", "f16"}) {
    EXPECT_EQ(factor(-std::numeric_limits<double>::infinity(), compute), -std::numeric_limits<double>::infinity());
    EXPECT_TRUE(std::isnan(factor(std::numeric_limits<double>::quiet_NaN(), compute))) << compute;
    EXPECT_TRUE(std::isnan(factor(std::bit_cast<float>(0x7f800001u), compute))) << "a NaN of low bits, " << compute;
  }
}

// --- gradients ----------------------------------------------------------------------------------------------------

struct Graded {
  ir::Graph graph;
  ir::ValueId da = ir::kNoValue, db = ir::kNoValue;
  const ir::Op& product_of(ir::ValueId v) const {
    while (std::string_view(graph.op(graph.value(v).producer).def->name) != "matmul") {
      v = graph.op(graph.value(v).producer).inputs[0];
    }
    return graph.op(graph.value(v).producer);
  }
};

Graded graded(const TensorType& a, const TensorType& b, const ops::MatmulOptions& options) {
  Graded g;
  const Value x = g.graph.handle(g.graph.add_external(ir::Role::param, "a", a));
  const Value y = g.graph.handle(g.graph.add_external(ir::Role::param, "b", b));
  g.graph.add_output("loss", sum(cast(ops::matmul(x, y, options), f32)).id());
  const ir::ValueId loss = g.graph.find_output("loss");
  const ir::ValueId one = g.graph.add_constant(Tensor::scalar<float>(1));
  const auto grads = autodiff::differentiate(g.graph, loss, one, {x.id(), y.id()});
  g.da = grads[0].value();
  g.db = grads[1].value();
  ir::verify(g.graph);
  return g;
}

// An f32 parameter's gradient comes from f32 sums, unrounded; a 16-bit operand's is rounded once.
TEST(MatmulPrecision, GradientsHaveTheirOperandsDtypeAndTheProductsFormat) {
  for (const bool ta : {false, true}) {
    for (const bool tb : {false, true}) {
      const Shape a = ta ? Shape{4, 3} : Shape{3, 4}, b = tb ? Shape{5, 4} : Shape{4, 5};
      const Graded mixed = graded({bf16, a}, {f32, b}, {.ta = ta, .tb = tb, .compute = "bf16", .out = bf16});
      EXPECT_EQ(mixed.graph.type(mixed.da), (TensorType{bf16, a}));
      EXPECT_EQ(mixed.graph.type(mixed.db), (TensorType{f32, b}));
      EXPECT_EQ(mixed.product_of(mixed.da).attrs.get_string("compute"), "bf16");
      EXPECT_EQ(mixed.product_of(mixed.db).attrs.get_dtype("out"), f32) << "straight from the f32 sums";
      const Graded tf32 = graded({f32, a}, {f32, b}, {.ta = ta, .tb = tb, .compute = "tf32"});
      EXPECT_EQ(tf32.product_of(tf32.da).attrs.get_string("compute"), "tf32");
      EXPECT_EQ(tf32.product_of(tf32.db).attrs.get_string("compute"), "tf32");
    }
  }
}

// f16 factors with an f32 cotangent: the gradients are multiplied in f16 too.
TEST(MatmulPrecision, AnF32CotangentIsRoundedWhereItIsMultiplied) {
  const Graded g = graded({f16, {3, 4}}, {f16, {4, 5}}, {.out = f32});
  EXPECT_EQ(g.product_of(g.da).attrs.get_string("compute"), "f16");
  EXPECT_EQ(g.graph.type(g.da).dtype, f16);
  EXPECT_EQ(g.product_of(g.da).attrs.get_dtype("out"), f16);
}

// What was broadcast is summed in f32 and rounded after the sum.
TEST(MatmulPrecision, ABroadcastOperandsGradientIsRoundedOnce) {
  const Graded g = graded({bf16, {3, 4}}, {bf16, {2, 4, 5}}, {});
  EXPECT_EQ(g.graph.type(g.da), (TensorType{bf16, {3, 4}}));
  EXPECT_EQ(g.graph.type(g.product_of(g.da).outputs[0]), (TensorType{f32, {2, 3, 4}}));
}

TEST(MatmulPrecision, AttributesThatSayNothingAreLeftOut) {
  ir::Attrs attrs = {{"compute", std::string("bf16")}, {"out", bf16}};
  ops::set_compute(attrs, bf16, bf16, "bf16", bf16);
  EXPECT_TRUE(attrs.empty()) << to_string(attrs);
  ops::set_compute(attrs, bf16, bf16, "bf16", f32);
  EXPECT_EQ(to_string(attrs), "{out=f32}");
  ops::set_compute(attrs, f32, bf16, "bf16", f32);
  EXPECT_EQ(to_string(attrs), "{compute=\"bf16\"}");
  ops::set_compute(attrs, f32, f32, "", f32);
  EXPECT_TRUE(attrs.empty());
}

// --- errors -------------------------------------------------------------------------------------------------------

std::string refusal(const Types& t) {
  try {
    bound_of({{2, 2}, {2, 2}}, t);
  } catch (const Error& e) {
    return std::string(e.what()) + (e.hint().empty() ? "" : " (" + e.hint() + ")");
  }
  return "accepted";
}

TEST(MatmulPrecision, RefusesWhatDoesNotFit) {
  EXPECT_EQ(refusal({f32, bf16}),
            "matmul(f32[2,2], bf16[2,2]): expected two operands of one float type, got f32 and bf16 (cast one to the "
            "dtype of the other)");
  EXPECT_EQ(refusal({bf16, f32, "tf32"}),
            "matmul(bf16[2,2], f32[2,2]): expected two f32 operands for compute=\"tf32\", got bf16 and f32");
  EXPECT_EQ(refusal({f16, f32, "bf16"}),
            "matmul(f16[2,2], f32[2,2]): expected operands f32 or bf16 for compute=\"bf16\", got f16 and f32");
  EXPECT_EQ(refusal({f32, f32, "bf61"}),
            "matmul(f32[2,2], f32[2,2]): expected compute to be tf32, bf16 or f16, got \"bf61\" (did you mean bf16?)");
  EXPECT_EQ(refusal({f32, f32, "", bf16}),
            "matmul(f32[2,2], f32[2,2]): expected out to be f32, got bf16 (cast the result)");
  EXPECT_EQ(refusal({f32, bf16, "bf16", f16}),
            "matmul(f32[2,2], bf16[2,2]): expected out to be f32 or bf16, got f16 (cast the result)");
  EXPECT_EQ(refusal({f64, f64, "", f32}),
            "matmul(f64[2,2], f64[2,2]): expected out to be f64, got f32 (cast the result)");
}

}  // namespace
}  // namespace aicf::test
