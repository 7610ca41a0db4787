// Cases I1 to I6: the numerics of single ops at the inputs where other systems got them wrong.
#include <limits>

#include "cases/tape.h"

namespace aicf::test {
namespace {

constexpr float kInf = std::numeric_limits<float>::infinity();

Value labels(Tape& tape, const std::vector<int32_t>& data) {
  return tape.input("labels", tensor<int32_t>({static_cast<int64_t>(data.size())}, data));
}

// --- I1: the gradient is scaled by what comes from above, and by the count only for the mean --------------------

Tensor cross_entropy_gradient(Reduction reduction, const std::vector<float>& upstream) {
  Tape tape;
  const Value x = tape.param("x", Tensor({f32, {2, 2}}));
  const Value loss = cross_entropy(x, labels(tape, {0, 1}), reduction);
  const Value above = tape.constant(Tensor::of<float>(loss.shape(), upstream));
  return tape.backward(sum(reshape(loss * above, {loss.shape().elements()}))).at("grad:x");
}

TEST(I1, CrossEntropy) {
  expect_values(cross_entropy_gradient(Reduction::mean, {1}), {-.25, .25, .25, -.25}, kFewUlps);
  expect_values(cross_entropy_gradient(Reduction::sum, {1}), {-.5, .5, .5, -.5}, kFewUlps);
  expect_values(cross_entropy_gradient(Reduction::none, {1, 10}), {-.5, .5, 5, -5}, 10 * kFewUlps);
  expect_values(cross_entropy_gradient(Reduction::mean, {1024}), {-256, 256, 256, -256}, 256 * kFewUlps);
}

// The other op that reduces.
Tensor mse_gradient(Reduction reduction, const std::vector<float>& upstream) {
  Tape tape;
  const Value x = tape.param("x", vec({1, 3})), y = tape.input("y", vec({0, 0}));
  const Value loss = mse(x, y, reduction);
  const Value above = tape.constant(Tensor::of<float>(loss.shape(), upstream));
  return tape.backward(sum(reshape(loss * above, {loss.shape().elements()}))).at("grad:x");
}

TEST(I1, MeanSquaredError) {
  expect_values(mse_gradient(Reduction::mean, {1}), {1, 3}, kFewUlps);
  expect_values(mse_gradient(Reduction::sum, {1}), {2, 6}, kFewUlps);
  expect_values(mse_gradient(Reduction::none, {1, 10}), {2, 60}, 60 * kFewUlps);
  expect_values(mse_gradient(Reduction::mean, {1024}), {1024, 3072}, 3072 * kFewUlps);
}

TEST(I1, UpstreamOfEveryOpScalesItsGradient) {
  for (const ir::OpDef* def : ir::op_table()) {
    const std::vector<OpCase> cases = smooth_cases(*def);
    if (cases.empty()) continue;
    SCOPED_TRACE(cases[0].text());
    const std::set<size_t> used = used_outputs(cases[0]);
    const TensorMap once = gradients(grad_setup(cases[0], used));
    GradSetup setup = grad_setup(cases[0], used);
    OpGraph built = graph_of(*def, cases[0].sample);
    built.graph.add_output("loss", weighted_sum(built.graph, used).id());
    add_gradients(built.graph, setup.keys, 1024);
    setup.backward = std::move(built.graph);
    for (const auto& [key, grad] : gradients(setup)) {
      for (int64_t i = 0; i < grad.elements(); ++i) {
        const double want = 1024 * once.at(key).at(i);
        EXPECT_NEAR(grad.at(i), want, 1e-12 * std::max(1.0, std::fabs(want)));  // f64 roundings at 1024 times the size
      }
    }
  }
}

// --- I2: ignored labels -----------------------------------------------------------------------------------------

TEST(I2, AllLabelsIgnored) {
  for (const Reduction reduction : {Reduction::mean, Reduction::sum}) {
    Tape tape;
    const Tensor start = tensor<float>({4, 3}, {.1f, -2, 3, 4, 5e-3f, -6, 7, 8, -9, 1e-8f, 11, 12});
    const Value w = tape.param("w", start);
    const auto loss = cross_entropy_with_count(w, labels(tape, {-100, -100, -100, -100}), reduction);
    tape.graph().add_output("count", loss[1].id());
    const TensorMap got = tape.backward(loss[0]);
    EXPECT_EQ(got.at("loss"), Tensor::scalar<float>(0));
    EXPECT_EQ(got.at("count").item(), 0);
    for (int64_t i = 0; i < start.elements(); ++i) {
      EXPECT_EQ(got.at("grad:w").at(i), 0);
      const float after = start.as<float>()[i] - 0.1f * got.at("grad:w").as<float>()[i];
      EXPECT_EQ(std::memcmp(&after, start.as<float>() + i, sizeof after), 0) << "SGD moved element " << i;
    }
  }
}

TEST(I2, TheMeanDividesByTheLabelsThatCount) {
  Tape tape;
  const Value x = tape.param("x", Tensor({f32, {2, 2}}));
  const auto loss = cross_entropy_with_count(x, labels(tape, {0, -1}), Reduction::mean, -1);
  tape.graph().add_output("count", loss[1].id());
  const TensorMap got = tape.backward(loss[0]);
  EXPECT_NEAR(got.at("loss").item(), 0.693147, 1e-6);
  EXPECT_EQ(got.at("count").item(), 1);
  expect_values(got.at("grad:x"), {-.5, .5, 0, 0}, kFewUlps);
}

// --- I3: infinite logits ----------------------------------------------------------------------------------------

TEST(I3, OneMaskedLogit) {
  for (const DType dtype : {f32, f64}) {
    Tape tape;
    const Value x = tape.param("x", converted(tensor<float>({1, 3}, {-kInf, 0, 0}), dtype));
    const TensorMap got = tape.backward(cross_entropy(x, labels(tape, {1})));
    EXPECT_NEAR(got.at("loss").item(), 0.693147, 1e-6);
    expect_values(got.at("grad:x"), {0, -.5, .5}, kFewUlps);
  }
}

TEST(I3, AllButOneOfALongRowMasked) {
  std::vector<float> row(100000, -kInf);
  row[50000] = 10;
  Tape tape;
  const Value x = tape.param("x", Tensor::of<float>({1, 100000}, row));
  const TensorMap got = tape.backward(cross_entropy(x, labels(tape, {50000})));
  EXPECT_EQ(got.at("loss").item(), 0);
  for (double g : got.at("grad:x").to_doubles()) ASSERT_EQ(g, 0);
}

TEST(I3, FarApartLogits) {
  Tape tape;
  const Value x = tape.param("x", tensor<float>({1, 2}, {1e4f, -1e4f}));
  const TensorMap got = tape.backward(cross_entropy(x, labels(tape, {1})));
  EXPECT_EQ(got.at("loss").item(), 20000);
  expect_values(got.at("grad:x"), {1, -1}, kFewUlps);
}

// A fully masked row: softmax 0, log_softmax -inf, and no gradient; the row beside it is as if alone.
TEST(I3, AFullyMaskedRow) {
  using Fn = Value (*)(Value, int);
  for (const auto& [fn, masked] : {std::pair<Fn, double>{softmax, 0}, std::pair<Fn, double>{log_softmax, -kInf}}) {
    Tape alone, both;
    const Tensor w = tensor<float>({1, 2}, {2, 3});
    const Value x1 = alone.param("x", tensor<float>({1, 2}, {1, 2}));
    const TensorMap want = alone.backward(sum(fn(x1, -1) * alone.constant(w)));
    const Value x2 = both.param("x", tensor<float>({2, 2}, {-kInf, -kInf, 1, 2}));
    const Value y = fn(x2, -1);
    both.graph().add_output("y", y.id());
    const Value live = slice(y, {1, 0}, {2, 2});
    const Value dead = slice(y, {0, 0}, {1, 2});
    const TensorMap got = both.backward(sum(live * both.constant(w)) + sum(dead * both.constant(w)));
    EXPECT_EQ(got.at("y").at(0), masked);
    EXPECT_EQ(got.at("y").at(1), masked);
    const std::vector<double> row = want.at("grad:x").to_doubles();
    expect_values(got.at("grad:x"), {0, 0, row[0], row[1]});
  }
}

TEST(I3, MaskedLogitsOfEveryRowOp) {
  using Fn = Value (*)(Value, int);
  for (const Fn fn : {Fn{softmax}, Fn{log_softmax}}) {
    Tape tape;
    const Value x = tape.param("x", vec({0, -kInf, 1}));
    const Value y = select(tape.constant(tensor<bool>({3}, {true, false, true})), fn(x, -1), literal(x, 0));
    const Tensor grad = tape.backward(sum(y * tape.constant(vec({2, 5, 3})))).at("grad:x");
    EXPECT_EQ(grad.at(1), 0);
    EXPECT_TRUE(std::isfinite(grad.at(0)) && std::isfinite(grad.at(2)) && grad.at(0) != 0);
  }
}

// --- I4: a mean far from zero -----------------------------------------------------------------------------------

double first_normalised(float mean, DType dtype, float step = .001f) {
  Tape tape;
  Tensor row({f32, {1, 16}});
  for (int i = 0; i < 16; ++i) row.as<float>()[i] = mean + step * static_cast<float>(i);
  const Value x = tape.input("x", converted(row, dtype));
  const Value gamma = tape.constant(converted(Tensor::of<float>({16}, std::vector<float>(16, 1)), dtype));
  const Value beta = tape.constant(converted(Tensor({f32, {16}}), dtype));
  return tape.forward(layer_norm(x, gamma, beta, 1e-5)).at("y").at(0);
}

TEST(I4, LayerNormWithALargeMean) {
  EXPECT_NEAR(first_normalised(1000, f32), -1.3415, 2e-3);
  EXPECT_NEAR(first_normalised(100, f32), -1.3415, 2e-3);
  EXPECT_NEAR(first_normalised(10000, f32), -1.3313, 2e-3);
}

TEST(I4, LayerNormOfHalvesHasUnitDeviation) {
  for (const DType dtype : {bf16, f16}) {
    Tape tape;
    std::mt19937_64 random(1);
    Tensor rows({f32, {4, 256}});
    for (int64_t i = 0; i < rows.elements(); ++i) {
      double normal = -6;  // twelve uniforms: mean 6, variance 1
      for (int k = 0; k < 12; ++k) normal += static_cast<double>(random() >> 11) * 0x1p-53;
      rows.as<float>()[i] = static_cast<float>(5 + 0.1 * normal);
    }
    const Value x = tape.input("x", converted(rows, dtype));
    const Value one = tape.constant(converted(Tensor::of<float>({256}, std::vector<float>(256, 1)), dtype));
    const Value zero = tape.constant(converted(Tensor({f32, {256}}), dtype));
    const Tensor y = tape.forward(layer_norm(x, one, zero)).at("y");
    for (int64_t r = 0; r < 4; ++r) {
      double square = 0;
      for (int64_t i = 0; i < 256; ++i) square += y.at(r * 256 + i) * y.at(r * 256 + i) / 256;
      EXPECT_NEAR(std::sqrt(square), 1, .05) << name_of(dtype);
    }
  }
}

// --- I5: infinite derivatives -----------------------------------------------------------------------------------

TEST(I5, TheBranchNotTaken) {
  Tape tape;
  const Value x = tape.param("x", Tensor::scalar<float>(0));
  const Value loss = select(greater(x, literal(x, 0)), sqrt(x), literal(x, 0));
  expect_values(tape.backward(loss).at("grad:x"), {0});
}

TEST(I5, TheLosingSideOfAMaximum) {
  Tape tape;
  const Value x = tape.param("x", Tensor::scalar<float>(0)), y = tape.param("y", Tensor::scalar<float>(0));
  const Value norm = sqrt(x * x + y * y);
  const TensorMap got = tape.backward(maximum(norm, literal(norm, 1e-10)));
  expect_values(got.at("grad:x"), {0});
  expect_values(got.at("grad:y"), {0});
}

TEST(I5, ANonZeroCotangentKeepsTheInfinity) {
  using Fn = Value (*)(Value);
  const std::pair<Fn, double> at_zero[] = {{sqrt, kInf},
                                           {log, kInf},
                                           {reciprocal, -kInf},
                                           {rsqrt, -kInf},
                                           {[](Value x) { return log1p(x - 1.0); }, kInf},
                                           {[](Value x) { return pow(x, literal(x, 0.5)); }, kInf},
                                           {[](Value x) { return 1.0 / x; }, -kInf}};
  for (const auto& [fn, want] : at_zero) {
    Tape tape;
    const Value x = tape.param("x", Tensor::scalar<float>(0));
    expect_values(tape.backward(fn(x)).at("grad:x"), {want});
  }
}

// Every pointwise op on every pair of these finite points: a zero cotangent gives a zero gradient, whatever the
// derivative.
TEST(I5, AZeroCotangentGivesZeroThroughEveryOp) {
  const float huge = std::numeric_limits<float>::max();
  const std::vector<float> points = {0, -0.0f, 1, -1, .5f, -2, 3, huge, 1e-38f};
  std::vector<float> a, b;
  for (float p : points) {
    for (float q : points) {
      a.push_back(p);
      b.push_back(q);
    }
  }
  for (const ir::OpDef* def : ir::op_table()) {
    if (!def->is(ir::kPointwise) || !runs_in(*def, f32) || def->name == std::string("cast")) continue;
    for (const DType dtype : {f32, f64}) {
      Tape tape;
      const Value x = tape.param("x", converted(vec(a), dtype)), y = tape.param("y", converted(vec(b), dtype));
      const Value condition = tape.constant(tensor<bool>({1}, {true}));
      const Value z = def->num_inputs == 1   ? ir::emit(*def, {x})
                      : def->num_inputs == 2 ? ir::emit(*def, {x, y})
                                             : ir::emit(*def, {condition, x, y});
      if (!is_float(z.dtype())) continue;
      const Value masked = select(tape.constant(tensor<bool>({1}, {false})), z, literal(z, 0));
      for (const auto& [key, grad] : tape.backward(sum(masked))) {
        if (key == "loss") continue;
        for (int64_t i = 0; i < grad.elements(); ++i) {
          EXPECT_EQ(grad.at(i), 0) << def->name << " " << name_of(dtype) << " " << key << " at " << a[i] << ", "
                                   << b[i];
        }
      }
    }
  }
}

// --- I6: repeated indices ---------------------------------------------------------------------------------------

TEST(I6, RepeatedIndicesAdd) {
  Tape tape;
  const Value w = tape.param("w", Tensor({f32, {4, 2}}));
  const Value index = tape.input("index", tensor<int32_t>({3}, {0, 0, 2}));
  expect_values(tape.backward(sum(gather(w, index))).at("grad:w"), {2, 2, 0, 0, 1, 1, 0, 0});
}

TEST(I6, ManyCopiesOfOneIndex) {
  // 16-bit floats too: they are summed in f32, where 4096 ones are exact.
  for (const DType dtype : {f32, f64, bf16, f16}) {
    Tape tape;
    const Value w = tape.param("w", Tensor({dtype, {3, 2}}));
    const Value index = tape.input("index", Tensor::of<int64_t>({4096}, std::vector<int64_t>(4096, 1)));
    const Tensor grad = tape.backward(cast(sum(cast(gather(w, index), f32)), f32)).at("grad:w");
    expect_values(grad, {0, 0, 4096, 4096, 0, 0});
  }
}

// In f32, 2^24 + 1 is 2^24: only the order of the indices gives 0 here, any other gives 1.
TEST(I6, RepeatedIndicesAddInIndexOrder) {
  Tape tape;
  const Value base = tape.input("base", Tensor({f32, {2}}));
  const Value index = tape.input("index", tensor<int32_t>({3}, {1, 1, 1}));
  const Value updates = tape.input("updates", vec({0x1p24f, 1, -0x1p24f}));
  expect_values(tape.forward(scatter_add(base, index, updates)).at("y"), {0, 0});
}

// gather and scatter_add, batched and not: 20 runs on 8 threads and a run on one give the same bits.
TEST(I6, TheSameBitsEveryTime) {
  for (const bool batched : {false, true}) {
    Tensor first;
    for (int run = 0; run < 20; ++run) {
      Tape tape;
      std::mt19937_64 random(7);
      Tensor data({f32, batched ? Shape{6, 5, 40} : Shape{30, 40}});
      Tensor index({i32, batched ? Shape{6, 70} : Shape{420}});
      for (int64_t i = 0; i < data.elements(); ++i) data.as<float>()[i] = static_cast<float>(random() % 1000) * 1e-3f;
      for (int64_t i = 0; i < index.elements(); ++i) index.as<int32_t>()[i] = static_cast<int32_t>(random() % 5);
      const Value x = tape.param("x", data);
      const Value y = gather(x, tape.input("index", index), batched ? 1 : 0, batched ? 1 : 0);
      const Value z = scatter_add(x * x, tape.input("index2", index), y * y, batched ? 1 : 0, batched ? 1 : 0);
      const Tensor grad = tape.backward(sum(z * z), 1, {.threads = run == 0 ? 1 : 8}).at("grad:x");
      if (run == 0) first = grad;
      ASSERT_TRUE(grad == first) << "run " << run;
    }
  }
}

}  // namespace
}  // namespace aicf::test
