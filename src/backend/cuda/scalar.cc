#include "backend/cuda/scalar.h"

#include <string_view>
#include <utility>

#include "aicf/error.h"

namespace aicf::backend::cuda {
namespace {

using namespace ops::pointwise::printing;  // for the op_NAME of the table below

bool is_half(DType dtype) { return dtype == bf16 || dtype == f16; }

#define AICF_POINTWISE(name, arity, domain) \
  struct Print_##name {                     \
    template <class... V>                   \
    auto operator()(V... v) const {         \
      return op_##name(v...);               \
    }                                       \
  };
#include "ops/ops.def"

using Operands = std::span<const int>;

template <class Op, class T, int kArity>
int call(Scalars& s, DType result, Operands in) {
  return [&]<size_t... i>(std::index_sequence<i...>) { return s.result(result, Op()(s.text<T>(in[i])...)); }
  (std::make_index_sequence<kArity>());
}

template <class Op, int kArity>
int real(Scalars& s, DType result, Operands in) {
  return call<Op, float, kArity>(s, result, in);
}
template <class Op, int kArity>
int test(Scalars& s, DType result, Operands in) {
  return call<Op, float, kArity>(s, result, in);
}
template <class Op, int kArity>
int arith(Scalars& s, DType result, Operands in) {
  switch (s.dtype(in[0])) {
    case DType::i32:
      return call<Op, int32_t, kArity>(s, result, in);
    case DType::i64:
      return call<Op, int64_t, kArity>(s, result, in);
    default:
      return call<Op, float, kArity>(s, result, in);
  }
}
template <class Op, int kArity>
int compare(Scalars& s, DType result, Operands in) {
  const DType dtype = s.dtype(in[0]);
  return dtype == u8 || dtype == boolean ? call<Op, uint8_t, kArity>(s, result, in) : arith<Op, kArity>(s, result, in);
}
template <class Op, int kArity>
int logic(Scalars& s, DType result, Operands in) {
  return call<Op, bool, kArity>(s, result, in);
}

template <class Op, class T>
int choose_as(Scalars& s, DType result, Operands in) {
  return s.result(result, Op()(s.text<bool>(in[0]), s.text<T>(in[1]), s.text<T>(in[2])));
}
// Moves bits: none is rounded.
template <class Op, int kArity>
int choose(Scalars& s, DType result, Operands in) {
  switch (result) {
    case DType::bf16:
    case DType::f16: {
      const auto bits = [&](int value) { return Text<uint16_t>{&s.printer(), s.element(value) + ".bits"}; };
      const auto chosen = Op()(s.text<bool>(in[0]), bits(in[1]), bits(in[2]));
      return s.variable(result, s.printer().assign(element_type(result), "{" + chosen.name + "}"));
    }
    case DType::i64:
      return choose_as<Op, int64_t>(s, result, in);
    case DType::i32:
      return choose_as<Op, int32_t>(s, result, in);
    case DType::u8:
    case DType::boolean:
      return choose_as<Op, uint8_t>(s, result, in);
    default:
      return choose_as<Op, float>(s, result, in);
  }
}

// By the functions of prelude.h.
template <class Op, int kArity>
int convert(Scalars& s, DType result, Operands in) {
  const DType from = s.dtype(in[0]);
  if (from == result) return s.variable(result, s.element(in[0]));
  const std::string x = is_half(from) ? s.text<float>(in[0]).name : s.element(in[0]);
  const auto assign = [&](const std::string& call) {
    return s.variable(result, s.printer().assign(element_type(result), call));
  };
  switch (result) {
    case DType::bf16:
      return assign("to_bf16(to_odd(" + x + "))");
    case DType::f16:
      return assign("to_f16(to_odd(" + x + "))");
    case DType::i64:
      return assign("to_i64(" + x + ")");
    case DType::i32:
      return assign("to_i32(" + x + ")");
    case DType::u8:
      return assign("to_u8(" + x + ")");
    case DType::boolean:
      return assign("to_bool(" + x + ")");
    default:
      return assign("to_f32(" + x + ")");
  }
}

struct Row {
  std::string_view name;
  int (*apply)(Scalars&, DType, Operands);
};
constexpr Row kRows[] = {
#define AICF_POINTWISE(name, arity, domain) {#name, domain<Print_##name, arity>},
#include "ops/ops.def"
};

}  // namespace

const char* element_type(DType dtype) {
  switch (dtype) {
    case DType::f32:
      return "float";
    case DType::bf16:
      return "bf16";
    case DType::f16:
      return "f16";
    case DType::i64:
      return "i64";
    case DType::i32:
      return "int";
    case DType::u8:
    case DType::boolean:
      return "u8";
    case DType::f64:
      break;
  }
  throw InternalError("f64 in a CUDA kernel");
}

const char* bits_type(size_t bytes) { return bytes == 1 ? "u8" : bytes == 2 ? "u16" : bytes == 4 ? "u32" : "u64"; }

int Scalars::add(Value value) {
  values_.push_back(std::move(value));
  return static_cast<int>(values_.size()) - 1;
}

int Scalars::variable(DType dtype, std::string name) { return add({dtype, std::move(name), {}}); }

int Scalars::apply(const ir::OpDef& def, DType result, std::span<const int> operands) {
  for (const Row& row : kRows) {
    if (row.name == def.name) return row.apply(*this, result, operands);
  }
  throw InternalError(std::string(def.name) + " is not a pointwise op");
}

std::string Scalars::element(int value) {
  Value& v = values_[value];
  if (v.element.empty()) v.element = printer_.assign("u8", v.computed);  // all others were formed at once
  return v.element;
}

template <class T>
Text<T> Scalars::text(int value) {
  Value& v = values_[value];
  if constexpr (std::is_same_v<T, bool>) {
    if (v.computed.empty()) v.computed = printer_.assign("bool", v.element + " != 0");
    return {&printer_, v.computed};
  }
  if (std::is_same_v<T, float> && is_half(v.dtype)) {
    if (v.computed.empty()) v.computed = printer_.assign("float", "widen(" + v.element + ")");
    return {&printer_, v.computed};
  }
  return {&printer_, element(value)};
}

template <class T>
int Scalars::result(DType dtype, const Text<T>& text) {
  if constexpr (std::is_same_v<T, bool>) return add({dtype, {}, text.name});
  if (!is_half(dtype)) return variable(dtype, text.name);
  return variable(dtype, printer_.assign(element_type(dtype),
                                         dtype == bf16 ? "to_bf16(" + text.name + ")" : "to_f16(" + text.name + ")"));
}

}  // namespace aicf::backend::cuda
