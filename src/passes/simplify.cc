// simplify: algebra that changes no bit, whatever the operands hold: ±0, infinities, NaN (with its payload),
// subnormals. f32 arithmetic flushes subnormals, so x * 1 is no move of bits; rules of floats are few for such reasons,
// and each states why it holds. Integers wrap, and a bool is 0 or 1.
#include <cmath>
#include <cstring>

#include "ops/defs.h"
#include "passes/pass.h"
#include "passes/peephole.h"

namespace aicf::passes {
namespace {

using ir::kNoValue;
using ir::ValueId;

bool is_half(DType dtype) { return dtype == bf16 || dtype == f16; }

constexpr int64_t kMaxSearched = 4096;

// The one value of all elements, as double, through broadcasts and reshapes of a constant.
std::optional<double> splat(Peephole& p, ValueId v) {
  for (;;) {
    const ir::Op* op = p.producer(v, ops::broadcast_def);
    if (op == nullptr) op = p.producer(v, ops::reshape_def);
    if (op == nullptr) break;
    v = op->inputs[0];
  }
  const Tensor* data = p.constant(v);
  if (data == nullptr || data->elements() == 0 || data->elements() > kMaxSearched) return {};
  const size_t size = size_of(data->dtype());
  const auto* bytes = static_cast<const char*>(data->data());
  for (int64_t i = 1; i < data->elements(); ++i) {
    if (std::memcmp(bytes, bytes + static_cast<size_t>(i) * size, size) != 0) return {};
  }
  return data->at(0);
}

bool is_splat(Peephole& p, ValueId v, double value) {
  const std::optional<double> all = splat(p, v);
  return all && *all == value && std::signbit(*all) == std::signbit(value);
}

ValueId filled(Peephole& p, const TensorType& type, double value) {
  Tensor scalar(TensorType{type.dtype, {}});
  set_element(type.dtype, scalar.data(), 0, value);
  return p.broadcast_to(p.emit_constant(std::move(scalar)), type.shape);
}

// An operand in the place of the op, in the op's shape.
ValueId operand(Peephole& p, const Node& n, size_t i) { return p.broadcast_to(n.in[i], p.result_type(n).shape); }

// The result of an f32, bf16 or f16 addition, subtraction or multiplication: no subnormal is left to flush (an f16 one
// is none in f32, where the op is computed; a bf16 one is one in f32, so the f32 result was not), and a NaN is already
// one that arithmetic gives. Such a value passes through * 1, / 1, - 0 and + -0 bit for bit.
bool is_arithmetic(Peephole& p, ValueId v) {
  if (p.type(v).dtype == f64) return false;
  return p.producer(v, ops::add_def) != nullptr || p.producer(v, ops::sub_def) != nullptr ||
         p.producer(v, ops::mul_def) != nullptr;
}

// x itself where it may stand for `x op neutral`.
ValueId without_neutral(Peephole& p, const Node& n, size_t x, double neutral) {
  const DType dtype = p.type(n.in[x]).dtype;
  if (is_float(dtype) && !is_arithmetic(p, n.in[x])) return kNoValue;
  return is_splat(p, n.in[1 - x], neutral) ? operand(p, n, x) : kNoValue;
}

ValueId arithmetic_rule(Peephole& p, const Node& n) {
  const bool real = is_float(p.type(n.in[0]).dtype);
  for (size_t x = 0; x < 2; ++x) {
    ValueId value = kNoValue;
    // x + -0 is x, -0 + -0 included; x + +0 is not, for -0 + +0 is +0. Integers have one zero.
    if (n.is(ops::add_def)) value = without_neutral(p, n, x, real ? -0.0 : 0.0);
    if (n.is(ops::mul_def)) value = without_neutral(p, n, x, 1);
    if (x == 0 && n.is(ops::sub_def)) value = without_neutral(p, n, x, 0);
    if (x == 0 && n.is(ops::div_def)) value = without_neutral(p, n, x, 1);
    if (value != kNoValue) return value;
  }
  return kNoValue;
}

// maximum and minimum of x and x choose x's bits (x == x: x & x, x | x; NaN: the first). 16-bit floats are left out:
// they are converted on the way, and a NaN with them.
ValueId extreme_rule(Peephole& p, const Node& n) {
  if (n.in[0] != n.in[1] || is_half(p.type(n.in[0]).dtype)) return kNoValue;
  return n.in[0];
}

ValueId comparison_rule(Peephole& p, const Node& n) {
  const DType dtype = p.type(n.in[0]).dtype;
  if (n.in[0] != n.in[1]) return kNoValue;
  const TensorType type = p.result_type(n);
  // x < x is false, of NaN too.
  if (n.is(ops::less_def) || n.is(ops::greater_def)) return filled(p, type, 0);
  if (is_float(dtype)) return kNoValue;  // NaN == NaN is false
  return filled(p, type, n.is(ops::not_equal_def) ? 0 : 1);
}

ValueId logic_rule(Peephole& p, const Node& n) {
  const bool all = n.is(ops::logical_and_def);
  if (n.in[0] == n.in[1]) return n.in[0];
  for (size_t x = 0; x < 2; ++x) {
    if (is_splat(p, n.in[1 - x], all ? 1 : 0)) return operand(p, n, x);      // and true, or false
    if (is_splat(p, n.in[1 - x], all ? 0 : 1)) return operand(p, n, 1 - x);  // and false, or true
  }
  return kNoValue;
}

ValueId not_rule(Peephole& p, const Node& n) {
  const ValueId x = n.in[0];
  if (const ir::Op* op = p.producer(x, ops::logical_not_def)) return op->inputs[0];
  // not_equal is the negation of equal by definition (pointwise.inc).
  if (const ir::Op* op = p.producer(x, ops::equal_def)) return p.emit({&ops::not_equal_def, op->inputs});
  if (const ir::Op* op = p.producer(x, ops::not_equal_def)) return p.emit({&ops::equal_def, op->inputs});
  // Of what has no NaN: not (a < b) is b <= a, not (a <= b) is b < a.
  if (const ir::Op* op = p.producer(x, ops::less_def); op && !is_float(p.type(op->inputs[0]).dtype)) {
    return p.emit({&ops::less_equal_def, {op->inputs[1], op->inputs[0]}});
  }
  if (const ir::Op* op = p.producer(x, ops::less_equal_def); op && !is_float(p.type(op->inputs[0]).dtype)) {
    return p.emit({&ops::less_def, {op->inputs[1], op->inputs[0]}});
  }
  return kNoValue;
}

// select moves bits, of 16-bit floats too.
ValueId select_rule(Peephole& p, const Node& n) {
  if (n.in[1] == n.in[2]) return operand(p, n, 1);
  if (const std::optional<double> condition = splat(p, n.in[0])) return operand(p, n, *condition != 0 ? 1 : 2);
  if (const ir::Op* op = p.producer(n.in[0], ops::logical_not_def)) {
    return p.emit({&ops::select_def, {op->inputs[0], n.in[2], n.in[1]}});
  }
  return kNoValue;
}

// neg and abs are done on the sign bit; integers wrap, so -(-x) is x and |-x| is |x| for the lowest one too. For 16-bit
// floats, which are converted, the inner op has made its NaN one that conversion keeps, but x itself has not.
ValueId sign_rule(Peephole& p, const Node& n) {
  const bool half = is_half(p.type(n.in[0]).dtype);
  if (n.is(ops::neg_def)) {
    const ir::Op* op = p.producer(n.in[0], ops::neg_def);
    return op != nullptr && !half ? op->inputs[0] : kNoValue;
  }
  if (p.producer(n.in[0], ops::abs_def) != nullptr) return n.in[0];  // already without sign, and converted
  const ir::Op* op = p.producer(n.in[0], ops::neg_def);
  return op != nullptr ? p.emit({&ops::abs_def, op->inputs}) : kNoValue;
}

ValueId rules(Peephole& p, const Node& n) {
  if (!n.def->is(ir::kPointwise)) return kNoValue;
  if (n.is(ops::add_def) || n.is(ops::sub_def) || n.is(ops::mul_def) || n.is(ops::div_def)) {
    return arithmetic_rule(p, n);
  }
  if (n.is(ops::maximum_def) || n.is(ops::minimum_def)) return extreme_rule(p, n);
  if (n.is(ops::neg_def) || n.is(ops::abs_def)) return sign_rule(p, n);
  // No result of relu is below 0, so a second one chooses it as it is.
  if (n.is(ops::relu_def)) return p.producer(n.in[0], ops::relu_def) != nullptr ? n.in[0] : kNoValue;
  if (n.is(ops::logical_and_def) || n.is(ops::logical_or_def)) return logic_rule(p, n);
  if (n.is(ops::logical_not_def)) return not_rule(p, n);
  if (n.is(ops::select_def)) return select_rule(p, n);
  for (const ir::OpDef* def : {&ops::equal_def, &ops::not_equal_def, &ops::less_def, &ops::less_equal_def,
                               &ops::greater_def, &ops::greater_equal_def}) {
    if (n.is(*def)) return comparison_rule(p, n);
  }
  return kNoValue;
}

}  // namespace

bool simplify(ir::Graph& graph) { return Peephole::run(graph, rules); }

}  // namespace aicf::passes
