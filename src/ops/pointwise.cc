// The records of all pointwise ops, made from ops.def, and one shape rule for all of them.
#include "ops/pointwise.h"

#include <fmt/format.h>

#include <string_view>

#include "aicf/error.h"
#include "ops/defs.h"
#include "ops/structural.h"

namespace aicf {
namespace ops {
namespace {

// The operand types an op takes and the result it gives; the names are the domains of ops.def.
enum class Domain { real, arith, compare, logic, test, choose, convert };

std::vector<DType> dtypes_of(Domain domain) {
  switch (domain) {
    case Domain::real:
    case Domain::test:
      return {f32, f64, bf16, f16};
    case Domain::arith:
      return {f32, f64, bf16, f16, i64, i32};
    case Domain::logic:
      return {boolean};
    case Domain::compare:
    case Domain::choose:
    case Domain::convert:
      break;
  }
  return all_dtypes();
}

bool accepts(Domain domain, DType dtype) {
  switch (domain) {
    case Domain::real:
    case Domain::test:
      return is_float(dtype);
    case Domain::arith:
      return is_float(dtype) || dtype == i64 || dtype == i32;
    case Domain::logic:
      return dtype == boolean;
    case Domain::compare:
    case Domain::choose:
    case Domain::convert:
      break;
  }
  return true;
}

const char* wanted(Domain domain) {
  switch (domain) {
    case Domain::arith:
      return "floats, i64 or i32";
    case Domain::logic:
      return "bool";
    default:
      return "floats";
  }
}

Shape broadcast_of(const ir::InferCtx& ctx) {
  Shape shape = ctx.in[0].shape;
  std::string got = to_string(shape);
  bool fits = true;
  for (size_t i = 1; i < ctx.in.size(); ++i) {
    got += (i + 1 == ctx.in.size() ? " and " : ", ") + to_string(ctx.in[i].shape);
    fits = fits && broadcast_shapes(shape, ctx.in[i].shape, shape);
  }
  if (!fits) throw mismatch(ctx, "shapes that broadcast", got);
  return shape;
}

// The dtype the operands from `first` on have in common.
DType common_dtype(const ir::InferCtx& ctx, size_t first) {
  const DType dtype = ctx.in[first].dtype;
  for (size_t i = first + 1; i < ctx.in.size(); ++i) {
    if (ctx.in[i].dtype == dtype) continue;
    throw mismatch(ctx, "operands of one dtype", fmt::format("{} and {}", name_of(dtype), name_of(ctx.in[i].dtype)),
                   "cast one of them");
  }
  return dtype;
}

template <Domain domain>
std::vector<TensorType> infer(const ir::InferCtx& ctx) {
  constexpr bool choose = domain == Domain::choose;
  if (choose && ctx.in[0].dtype != boolean) {
    throw mismatch(ctx, "a bool condition", std::string(name_of(ctx.in[0].dtype)));
  }
  const DType dtype = common_dtype(ctx, choose ? 1 : 0);
  if (!accepts(domain, dtype)) throw mismatch(ctx, wanted(domain), std::string(name_of(dtype)));
  const Shape shape = broadcast_of(ctx);
  if (domain == Domain::compare || domain == Domain::test) return {{boolean, shape}};
  if (domain != Domain::convert) return {{dtype, shape}};
  if (!ctx.attrs.has("to")) throw mismatch(ctx, "the attribute `to`, a dtype", "none");
  return {{ctx.attrs.get_dtype("to"), shape}};
}

// Bit for bit (pointwise.inc); which NaN results of two is left open.
bool is_commutative(std::string_view name) {
  for (std::string_view n : {"add", "mul", "maximum", "minimum", "equal", "not_equal", "logical_and", "logical_or"}) {
    if (n == name) return true;
  }
  return false;
}

// Of the functions of reals, those that are no less exact in 16 bits than their operand is.
ir::PrecisionClass precision_of(std::string_view name, Domain domain) {
  if (domain != Domain::real) return ir::PrecisionClass::follow;
  for (std::string_view n : {"relu", "tanh", "sigmoid", "floor", "ceil", "round"}) {
    if (n == name) return ir::PrecisionClass::follow;
  }
  return ir::PrecisionClass::f32;
}

std::vector<const char*> operand_names(int arity, Domain domain) {
  if (domain == Domain::choose) return {"condition", "a", "b"};
  return arity == 1 ? std::vector<const char*>{"x"} : std::vector<const char*>{"a", "b"};
}

ir::OpDef record(const char* name, int arity, Domain domain, ir::InferFn infer, ir::GradFn grad,
                 ir::SamplesFn samples) {
  ir::OpDef def;
  def.name = name;
  def.num_inputs = arity;
  def.operand_names = operand_names(arity, domain);
  def.infer = infer;
  def.grad = grad;
  // Each element is read before the one of its index is written; the planner refuses operands of another type, and a
  // test of floats never has one of its own.
  for (int i = 0; i < arity && domain != Domain::test; ++i) def.alias.push_back({0, i});
  def.flags = ir::kPointwise | (is_commutative(name) ? ir::kCommutative : 0u);
  if (domain == Domain::convert) def.attrs = {{"to", ir::AttrSpec::Kind::dtype, true}};
  def.dtypes = dtypes_of(domain);
  def.samples = samples;
  def.precision = precision_of(name, domain);
  return def;
}

}  // namespace

#define AICF_POINTWISE(name, arity, domain) \
  const ir::OpDef name##_def = record(#name, arity, Domain::domain, infer<Domain::domain>, grad_##name, samples_##name);
#include "ops/ops.def"

}  // namespace ops

// The public functions of the rows that are called by their own name and take operands alone.
#define AICF_UNARY(name) \
  Value name(Value x) { return ir::emit(ops::name##_def, {x}); }
#define AICF_BINARY(name) \
  Value name(Value a, Value b) { return ir::emit(ops::name##_def, {a, b}); }

AICF_UNARY(abs)
AICF_BINARY(add)
AICF_UNARY(ceil)
AICF_UNARY(cos)
AICF_BINARY(div)
AICF_BINARY(equal)
AICF_UNARY(erf)
AICF_UNARY(exp)
AICF_UNARY(expm1)
AICF_UNARY(floor)
AICF_BINARY(greater)
AICF_BINARY(greater_equal)
AICF_UNARY(isfinite)
AICF_BINARY(less)
AICF_BINARY(less_equal)
AICF_UNARY(log)
AICF_UNARY(log1p)
AICF_BINARY(logical_and)
AICF_UNARY(logical_not)
AICF_BINARY(logical_or)
AICF_BINARY(maximum)
AICF_BINARY(minimum)
AICF_BINARY(mul)
AICF_UNARY(neg)
AICF_BINARY(not_equal)
AICF_BINARY(pow)
AICF_UNARY(relu)
AICF_UNARY(round)
AICF_UNARY(sigmoid)
AICF_UNARY(sign)
AICF_UNARY(sin)
AICF_UNARY(sqrt)
AICF_BINARY(sub)
AICF_UNARY(tanh)

#undef AICF_UNARY
#undef AICF_BINARY

Value select(Value condition, Value a, Value b) { return ir::emit(ops::select_def, {condition, a, b}); }
Value cast(Value x, DType dtype) { return x.dtype() == dtype ? x : ir::emit(ops::cast_def, {x}, {{"to", dtype}}); }

Value rsqrt(Value x) { return div(literal(x, 1), sqrt(x)); }
Value square(Value x) { return mul(x, x); }
Value reciprocal(Value x) { return div(literal(x, 1), x); }

Value operator+(Value a, Value b) { return add(a, b); }
Value operator-(Value a, Value b) { return sub(a, b); }
Value operator*(Value a, Value b) { return mul(a, b); }
Value operator/(Value a, Value b) { return div(a, b); }
Value operator-(Value x) { return neg(x); }
Value operator+(Value a, double b) { return add(a, literal(a, b)); }
Value operator-(Value a, double b) { return sub(a, literal(a, b)); }
Value operator*(Value a, double b) { return mul(a, literal(a, b)); }
Value operator/(Value a, double b) { return div(a, literal(a, b)); }
Value operator+(double a, Value b) { return add(literal(b, a), b); }
Value operator-(double a, Value b) { return sub(literal(b, a), b); }
Value operator*(double a, Value b) { return mul(literal(b, a), b); }
Value operator/(double a, Value b) { return div(literal(b, a), b); }

}  // namespace aicf
