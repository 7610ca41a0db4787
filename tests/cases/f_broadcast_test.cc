// Cases F1, F2: broadcasting and rank in the backward. A gradient has exactly its operand's shape, and an op that works
// on rows gives the same bits whatever leading axes the rows come in.
#include "cases/tape.h"

namespace aicf::test {
namespace {

Tensor filled_tensor(Shape shape, double from, double step) {
  Tensor t({f64, shape});
  for (int64_t i = 0; i < t.elements(); ++i) t.as<double>()[i] = from + step * static_cast<double>(i);
  return t;
}

// --- F1: the gradient of a broadcast operand --------------------------------------------------------------------

TEST(F1, ColumnPlusRow) {
  Tape tape;
  const Value a = tape.param("a", tensor<float>({3, 1}, {1, 2, 3}));
  const Value b = tape.param("b", tensor<float>({1, 4}, {1, 2, 3, 4}));
  const TensorMap got = tape.backward(sum(a + b));
  EXPECT_EQ(got.at("grad:a"), tensor<float>({3, 1}, {4, 4, 4}));
  EXPECT_EQ(got.at("grad:b"), tensor<float>({1, 4}, {3, 3, 3, 3}));
}

TEST(F1, LastAxisOfOne) {
  Tape tape;
  const Value a = tape.param("a", converted(filled_tensor({2, 1, 4, 64}, 0, 1), f32));
  const Value b = tape.param("b", converted(filled_tensor({2, 1, 4, 1}, 1, 1), f32));
  const TensorMap got = tape.backward(sum(a * b));
  ASSERT_EQ(got.at("grad:b").shape(), (Shape{2, 1, 4, 1}));
  // Row r holds 64r … 64r+63: integers, whose sum is exact in f32.
  for (int64_t r = 0; r < 8; ++r) EXPECT_EQ(got.at("grad:b").at(r), 64.0 * 64 * static_cast<double>(r) + 63 * 32);
}

TEST(F1, OneElementAgainstAMatrix) {
  Tape tape;
  const Value a = tape.param("a", vec({2}));
  const Value b = tape.param("b", converted(filled_tensor({5, 7}, 0, 1), f32));
  EXPECT_EQ(tape.backward(sum(a + b)).at("grad:a"), vec({35}));
}

bool takes_floats(const ir::OpDef& def) { return def.num_inputs >= 2 && def.is(ir::kPointwise) && runs_in(def, f64); }

struct Operands {
  Shape a, b;
};

// The op on operands that broadcast, or on the same operands broadcast beforehand.
TensorMap gradients_of(const ir::OpDef& def, const Operands& shapes, const Shape& full, bool beforehand) {
  Tape tape;
  Tensor condition({boolean, full});
  for (int64_t i = 0; i < condition.elements(); i += 2) condition.as<bool>()[i] = true;
  const Value c = tape.input("c", condition);
  // Positive and without ties: inside the domain of every binary op.
  Value a = tape.param("a", filled_tensor(shapes.a, 0.5, 0.37)),
        b = tape.param("b", filled_tensor(shapes.b, 0.7, 0.23));
  if (beforehand) a = broadcast(a, full), b = broadcast(b, full);
  const Value y = def.num_inputs == 3 ? ir::emit(def, {c, a, b}) : ir::emit(def, {a, b});
  if (!is_float(y.dtype())) return {};
  EXPECT_EQ(y.shape(), full);
  return tape.backward(sum(y * tape.constant(loss_weights(y.type(), 0))));
}

TEST(F1, EveryPointwiseOpBothWays) {
  const std::pair<Operands, Shape> shapes[] = {
      {{{3, 1}, {1, 4}}, {3, 4}},    {{{1, 4}, {3, 1}}, {3, 4}},       {{{2, 1, 4, 5}, {2, 1, 4, 1}}, {2, 1, 4, 5}},
      {{{1}, {5, 7}}, {5, 7}},       {{{5, 7}, {}}, {5, 7}},           {{{}, {3}}, {3}},
      {{{4}, {2, 3, 4}}, {2, 3, 4}}, {{{2, 3, 1}, {3, 4}}, {2, 3, 4}}, {{{0, 3}, {3}}, {0, 3}},
  };
  std::set<std::string> ops;
  for (const ir::OpDef* def : ir::op_table()) {
    if (!takes_floats(*def)) continue;
    for (const auto& [operands, full] : shapes) {
      SCOPED_TRACE(std::string(def->name) + " " + to_string(operands.a) + " " + to_string(operands.b));
      const TensorMap got = gradients_of(*def, operands, full, false);
      const TensorMap want = gradients_of(*def, operands, full, true);
      if (got.empty()) continue;  // a comparison
      ops.insert(def->name);
      EXPECT_EQ(got.at("grad:a").shape(), operands.a);
      EXPECT_EQ(got.at("grad:b").shape(), operands.b);
      // Sums of at most 24 f64 terms, perhaps in another order.
      for (const char* key : {"grad:a", "grad:b"}) expect_near(got.at(key), want.at(key).to_doubles(), 1e-14, key);
    }
  }
  for (const char* op : {"add", "sub", "mul", "div", "pow", "maximum", "minimum", "select"}) {
    EXPECT_TRUE(ops.contains(op)) << op;
  }
}

// --- F2: rows of any rank ---------------------------------------------------------------------------------------

TEST(F2, BiasOfRank3) {
  for (const DType dtype : {f32, f64}) {
    Tape tape;
    const Value x = tape.input("x", converted(filled_tensor({2, 5, 3}, 0, 1), dtype));
    const Value b = tape.param("b", converted(filled_tensor({3}, 0, 1), dtype));
    const Tensor db = tape.backward(sum(x + b)).at("grad:b");
    EXPECT_EQ(db.shape(), Shape{3});
    expect_values(db, {10, 10, 10});
  }
}

// An op on rows: the same values, gradients of x and of the parameters for [2,3,4] as for [6,4].
using RowOp = Value (*)(Tape&, Value x, Value gamma, Value beta);

TensorMap row_results(RowOp op, const Shape& shape, DType dtype) {
  Tape tape;
  const Value x = tape.param("x", converted(filled_tensor(shape, -1.3, 0.21), dtype));
  const Value gamma = tape.param("gamma", converted(filled_tensor({4}, 0.5, 0.3), dtype));
  const Value beta = tape.param("beta", converted(filled_tensor({4}, -0.2, 0.1), dtype));
  const Value y = op(tape, x, gamma, beta);
  const Value w = tape.constant(converted(loss_weights({dtype, y.shape()}, 0), dtype));
  return tape.backward(sum(reshape(y * w, {y.shape().elements()})));
}

Value labels_for(Tape& tape, const Shape& shape) {
  std::vector<int64_t> dims(shape.begin(), shape.end() - 1);
  Tensor labels({i32, Shape(std::span<const int64_t>(dims))});
  for (int64_t i = 0; i < labels.elements(); ++i) labels.as<int32_t>()[i] = static_cast<int32_t>(i * 3 % 4);
  return tape.input("labels", labels);
}

const std::pair<const char*, RowOp> kRowOps[] = {
    {"layer_norm", [](Tape&, Value x, Value gamma, Value beta) { return layer_norm(x, gamma, beta); }},
    {"rms_norm", [](Tape&, Value x, Value gamma, Value beta) { return rms_norm(x, gamma) * beta; }},
    {"softmax", [](Tape&, Value x, Value gamma, Value beta) { return softmax(x * gamma + beta); }},
    {"log_softmax", [](Tape&, Value x, Value gamma, Value beta) { return log_softmax(x * gamma + beta); }},
    {"cross_entropy",
     [](Tape& tape, Value x, Value gamma, Value beta) {
       return cross_entropy(x * gamma + beta, labels_for(tape, x.shape()), Reduction::none);
     }},
    {"matmul",
     [](Tape&, Value x, Value gamma, Value beta) {
       return matmul(x, reshape(gamma, {4, 1}) * reshape(beta, {1, 4}), false, true);
     }},
    {"reduce_sum", [](Tape&, Value x, Value gamma, Value beta) { return sum(x * gamma + beta, {-1}); }},
    {"reduce_max", [](Tape&, Value x, Value gamma, Value beta) { return max(x * gamma + beta, {-1}); }},
};

TEST(F2, RowsOfRank3AreTheRowsOfRank2) {
  for (const auto& [name, op] : kRowOps) {
    for (const DType dtype : {f32, f64}) {
      SCOPED_TRACE(std::string(name) + " " + std::string(name_of(dtype)));
      const TensorMap flat = row_results(op, {6, 4}, dtype), deep = row_results(op, {2, 3, 4}, dtype);
      ASSERT_EQ(flat.size(), deep.size());
      for (const auto& [key, value] : flat) {
        const Tensor& other = deep.at(key);
        const bool bits = value.bytes() == other.bytes() && std::memcmp(value.data(), other.data(), value.bytes()) == 0;
        EXPECT_TRUE(bits) << key;
      }
      EXPECT_EQ(deep.at("grad:x").shape(), (Shape{2, 3, 4}));
      EXPECT_EQ(deep.at("grad:gamma").shape(), Shape{4});
    }
  }
}

}  // namespace
}  // namespace aicf::test
