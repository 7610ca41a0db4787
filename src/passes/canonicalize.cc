// canonicalize: one form for equal things. Every rule keeps every bit: it moves what an op moves anyway (no kernel that
// only moves elements looks at them), reorders what commutes bit for bit, or drops what says nothing.
#include <algorithm>
#include <cmath>
#include <string_view>

#include "ops/compute.h"
#include "ops/defs.h"
#include "ops/reduce.h"
#include "ops/structural.h"
#include "passes/pass.h"
#include "passes/peephole.h"

namespace aicf::passes {
namespace {

using ir::kNoValue;
using ir::ValueId;
using Ints = std::vector<int64_t>;

bool is_half(DType dtype) { return dtype == bf16 || dtype == f16; }

// --- attributes -------------------------------------------------------------------------------------------------

// Without the attributes that say what goes without saying.
ir::Attrs plain_attrs(Peephole& p, const Node& n) {
  ir::Attrs attrs = n.attrs;
  for (const char* flag : {"ta", "tb", "keepdims"}) {
    if (attrs.has(flag) && !attrs.get_bool(flag)) attrs.erase(flag);
  }
  if (n.is(ops::slice_def) && attrs.has("step")) {
    const Ints step = attrs.get_ints("step");
    if (std::all_of(step.begin(), step.end(), [](int64_t s) { return s == 1; })) attrs.erase("step");
  }
  if (n.is(ops::pad_def) && attrs.has("value")) {
    const double value = attrs.get_float("value");
    if (value == 0 && !std::signbit(value)) attrs.erase("value");
  }
  if (n.is(ops::matmul_def)) {
    const DType a = p.type(n.in[0]).dtype, b = p.type(n.in[1]).dtype;
    ops::set_compute(attrs, a, b, ops::compute_of(attrs, a, b), p.result_type(n).dtype);
  }
  return attrs;
}

// --- operand order ----------------------------------------------------------------------------------------------

bool holds_nan(const Tensor& data) {
  if (!is_float(data.dtype())) return false;
  for (int64_t i = 0; i < data.elements(); ++i) {
    if (std::isnan(data.at(i))) return true;
  }
  return false;
}

// Constants last; else by id. Of two NaNs a float op returns one, and which depends on the order: so float results are
// reordered only where one operand is a constant without NaN.
bool should_swap(Peephole& p, const Node& n) {
  const Tensor *first = p.constant(n.in[0]), *second = p.constant(n.in[1]);
  if (first != nullptr && second == nullptr) return !is_float(p.result_type(n).dtype) || !holds_nan(*first);
  if (first == nullptr && second != nullptr) return false;
  return n.in[0] > n.in[1] && !is_float(p.result_type(n).dtype);
}

ValueId operand_order(Peephole& p, const Node& n) {
  // a > b is b < a, and a >= b is b <= a, by definition (pointwise.inc).
  if (n.is(ops::greater_def)) return p.emit({&ops::less_def, {n.in[1], n.in[0]}});
  if (n.is(ops::greater_equal_def)) return p.emit({&ops::less_equal_def, {n.in[1], n.in[0]}});
  if (!n.def->is(ir::kCommutative) || !should_swap(p, n)) return kNoValue;
  return p.emit({n.def, {n.in[1], n.in[0]}, n.attrs});
}

// --- ops that only move elements --------------------------------------------------------------------------------

// `to` is `from` with axes of extent 1 in front.
bool adds_leading_ones(const Shape& from, const Shape& to) {
  const int added = to.rank() - from.rank();
  if (added <= 0) return false;
  return ops::product(to, 0, added) == 1 && std::equal(from.begin(), from.end(), to.begin() + added);
}

// What a broadcast reads that aligns its operand at the right: below other broadcasts and reshapes that only add
// leading axes.
ValueId below_broadcasts(Peephole& p, ValueId v) {
  for (;;) {
    const ir::Op* op = p.producer(v, ops::broadcast_def);
    if (op == nullptr) {
      op = p.producer(v, ops::reshape_def);
      if (op == nullptr || !adds_leading_ones(p.type(op->inputs[0]).shape, p.type(v).shape)) return v;
    }
    v = op->inputs[0];
  }
}

ValueId reshape_rule(Peephole& p, const Node& n) {
  const Shape shape = p.result_type(n).shape;
  ValueId x = n.in[0];
  if (const ir::Op* inner = p.producer(x, ops::reshape_def)) x = inner->inputs[0];
  if (p.type(x).shape == shape) return x;
  return x == n.in[0] ? kNoValue : p.reshaped(x, shape);
}

ValueId transpose_rule(Peephole& p, const Node& n) {
  const Ints perm = n.attrs.get_ints("perm");
  if (const ir::Op* inner = p.producer(n.in[0], ops::transpose_def)) {
    const Ints first = inner->attrs.get_ints("perm");
    Ints both;
    for (int64_t axis : perm) both.push_back(first[static_cast<size_t>(axis)]);
    return p.emit({&ops::transpose_def, {inner->inputs[0]}, {{"perm", both}}});
  }
  // Axes of extent 1 may go anywhere: the elements stay in order when the others do.
  const Shape& in = p.type(n.in[0]).shape;
  Ints moved = perm;
  std::erase_if(moved, [&](int64_t axis) { return in[static_cast<int>(axis)] == 1; });
  if (!std::is_sorted(moved.begin(), moved.end())) return kNoValue;
  return p.reshaped(n.in[0], p.result_type(n).shape);
}

ValueId broadcast_rule(Peephole& p, const Node& n) {
  const Shape shape = p.result_type(n).shape;
  const ValueId x = below_broadcasts(p, n.in[0]);
  if (p.type(x).shape.elements() == shape.elements()) return p.reshaped(x, shape);  // nothing repeats
  return x == n.in[0] ? kNoValue : p.broadcast_to(x, shape);
}

Ints steps_of(const ir::Attrs& attrs, size_t rank) {
  return attrs.has("step") ? attrs.get_ints("step") : Ints(rank, 1);
}

ValueId slice_rule(Peephole& p, const Node& n) {
  const Shape in = p.type(n.in[0]).shape, out = p.result_type(n).shape;
  if (in == out) return n.in[0];  // as many elements as there are, in order
  const ir::Op* inner = p.producer(n.in[0], ops::slice_def);
  if (inner == nullptr || out.elements() == 0) return kNoValue;
  const auto rank = static_cast<size_t>(in.rank());
  const Ints first = inner->attrs.get_ints("start"), first_step = steps_of(inner->attrs, rank);
  const Ints second = n.attrs.get_ints("start"), second_step = steps_of(n.attrs, rank);
  Ints start(rank), limit(rank), step(rank, 1);
  for (size_t i = 0; i < rank; ++i) {
    start[i] = first[i] + second[i] * first_step[i];
    const int64_t last = out[static_cast<int>(i)] - 1;
    // A step beyond the only element says nothing, and the product of two might not fit.
    if (last > 0) step[i] = first_step[i] * second_step[i];
    limit[i] = start[i] + last * step[i] + 1;
  }
  return p.emit({&ops::slice_def, {inner->inputs[0]}, {{"start", start}, {"limit", limit}, {"step", step}}});
}

ValueId pad_rule(Peephole& p, const Node& n) { return p.result_type(n) == p.type(n.in[0]) ? n.in[0] : kNoValue; }

ValueId only_part(Peephole&, const Node& n) { return n.in.size() == 1 ? n.in[0] : kNoValue; }

// --- casts ------------------------------------------------------------------------------------------------------

// Every value of `from` has one of its own in `to`, which casts back to it. Left out: f64, for f32's subnormals are
// flushed on the way there. Of a 16-bit NaN that no kernel made the payload may change (dtype.h: NaN stays NaN).
bool holds_all_of(DType to, DType from) {
  switch (from) {
    case DType::boolean:
      return true;
    case DType::u8:
      return to == i32 || to == i64 || to == f32;
    case DType::i32:
      return to == i64;
    case DType::bf16:
    case DType::f16:
      return to == f32;
    default:
      return false;
  }
}

ValueId cast_rule(Peephole& p, const Node& n) {
  const DType to = n.attrs.get_dtype("to");
  if (to == p.type(n.in[0]).dtype) return n.in[0];
  const ir::Op* inner = p.producer(n.in[0], ops::cast_def);
  if (inner == nullptr) return kNoValue;
  const DType from = p.type(inner->inputs[0]).dtype;
  return from == to && holds_all_of(p.type(n.in[0]).dtype, from) ? inner->inputs[0] : kNoValue;
}

// --- reductions and pointwise ops -------------------------------------------------------------------------------

// Over axes of extent 1 the only element is combined with the identity of the reduction. That gives its bits for an
// extreme (a choice between bits, NaN included), and for sums and products of integers. Not for those of floats: 0 + -0
// is +0, and both flush subnormals; nor for 16-bit extremes, whose NaNs are converted.
ValueId reduce_rule(Peephole& p, const Node& n) {
  const TensorType& x = p.type(n.in[0]);
  const bool extreme = n.is(ops::reduce_max_def) || n.is(ops::reduce_min_def);
  if (extreme ? is_half(x.dtype) : is_float(x.dtype)) return kNoValue;
  if (ops::reduce_dims(x.shape, n.attrs).n != 1) return kNoValue;
  return p.reshaped(n.in[0], p.result_type(n).shape);
}

// A pointwise op broadcasts by itself: what reads a broadcast reads its operand, where the result keeps its shape.
ValueId operands_below_broadcasts(Peephole& p, const Node& n) {
  Node plain = n;
  for (const ValueId v : n.in) {
    const ValueId below = below_broadcasts(p, v);
    if (below == v) continue;
    Node next = plain;
    std::replace(next.in.begin(), next.in.end(), v, below);
    if (p.result_type(next).shape == p.result_type(n).shape) plain = std::move(next);
  }
  return plain.in != n.in ? p.emit(std::move(plain)) : kNoValue;
}

ValueId rules(Peephole& p, const Node& n) {
  if (!n.attrs.empty()) {
    ir::Attrs attrs = plain_attrs(p, n);
    if (attrs != n.attrs) return p.emit({n.def, n.in, std::move(attrs), n.region});
  }
  if (n.def->is(ir::kPointwise) && n.in.size() > 1) {
    const ValueId value = operand_order(p, n);
    return value != kNoValue ? value : operands_below_broadcasts(p, n);
  }
  if (n.is(ops::reduce_sum_def) || n.is(ops::reduce_prod_def) || n.is(ops::reduce_max_def) ||
      n.is(ops::reduce_min_def)) {
    return reduce_rule(p, n);
  }
  if (n.is(ops::reshape_def)) return reshape_rule(p, n);
  if (n.is(ops::transpose_def)) return transpose_rule(p, n);
  if (n.is(ops::broadcast_def)) return broadcast_rule(p, n);
  if (n.is(ops::slice_def)) return slice_rule(p, n);
  if (n.is(ops::pad_def)) return pad_rule(p, n);
  if (n.is(ops::concat_def)) return only_part(p, n);
  if (n.is(ops::cast_def)) return cast_rule(p, n);
  return kNoValue;
}

}  // namespace

bool canonicalize(ir::Graph& graph) { return Peephole::run(graph, rules); }

}  // namespace aicf::passes
