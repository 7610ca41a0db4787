// A value type that prints: pointwise.inc over it turns each expression into CUDA C++ statements. The type parameter is
// that of the variable: float, int32_t and int64_t (whose arithmetic wraps), uint8_t and uint16_t (bits to compare or
// choose), bool (a condition).
#pragma once

#include <cmath>
#include <cstdint>
#include <cstdio>
#include <string>
#include <type_traits>
#include <utility>

namespace aicf::ops::pointwise::printing {

// Collects the statements of one or several expressions, one temporary each. REQUIRES: outlives its Texts.
class Printer {
 public:
  // Of the names of its variables, so that nested blocks hide none of each other's.
  explicit Printer(std::string prefix = "t") : prefix_(std::move(prefix)) {}
  const std::string& statements() const { return statements_; }
  std::string assign(const std::string& type, const std::string& expression) {
    std::string name = prefix_ + std::to_string(next_++);
    statements_ += "const " + type + " " + name + " = " + expression + ";\n";
    return name;
  }

 private:
  std::string prefix_;
  std::string statements_;
  int next_ = 0;
};

// The name of a variable, or a literal (printer null).
template <class T>
struct Text {
  Printer* printer = nullptr;
  std::string name;
};
using Condition = Text<bool>;

template <class T>
const char* type_name() {
  if constexpr (std::is_same_v<T, bool>) return "bool";
  if constexpr (std::is_same_v<T, uint8_t>) return "unsigned char";
  if constexpr (std::is_same_v<T, uint16_t>) return "unsigned short";
  if constexpr (std::is_same_v<T, int32_t>) return "int";
  if constexpr (std::is_same_v<T, int64_t>) return "long long";
  if constexpr (std::is_same_v<T, float>) return "float";
}

template <class T, class... Operands>
Text<T> assign(const std::string& expression, const Operands&... operands) {
  Printer* printer = nullptr;
  ((printer = printer ? printer : operands.printer), ...);
  if (!printer) return {nullptr, "(" + expression + ")"};
  return {printer, printer->assign(type_name<T>(), expression)};
}

template <class V>
struct Literal;
template <class T>
struct Literal<Text<T>> {
  static std::string of(double c) {
    if constexpr (!std::is_same_v<T, float>) return std::to_string(static_cast<T>(c));
    const float f = static_cast<float>(c);
    if (std::isnan(f)) return "__uint_as_float(0x7fc00000u)";
    if (std::isinf(f)) return f > 0 ? "__uint_as_float(0x7f800000u)" : "__uint_as_float(0xff800000u)";
    char buffer[40];
    std::snprintf(buffer, sizeof buffer, std::signbit(f) ? "(%af)" : "%af", static_cast<double>(f));
    return buffer;
  }
};
template <class V>
V lit(double c) {
  return {nullptr, Literal<V>::of(c)};
}

// Floats as they are; integers as unsigned, so that they wrap.
template <class T>
Text<T> arithmetic(const Text<T>& a, const char* op, const Text<T>& b) {
  if constexpr (std::is_same_v<T, float>) return assign<T>(a.name + " " + op + " " + b.name, a, b);
  const std::string type = type_name<T>(), wrapping = "(unsigned " + type + ")";
  return assign<T>("(" + type + ")(" + wrapping + a.name + " " + op + " " + wrapping + b.name + ")", a, b);
}
template <class T>
Text<T> operator+(Text<T> a, Text<T> b) {
  return arithmetic(a, "+", b);
}
template <class T>
Text<T> operator-(Text<T> a, Text<T> b) {
  return arithmetic(a, "-", b);
}
template <class T>
Text<T> operator*(Text<T> a, Text<T> b) {
  return arithmetic(a, "*", b);
}
inline Text<float> operator/(Text<float> a, Text<float> b) { return arithmetic(a, "/", b); }

template <class T>
Condition lt(Text<T> a, Text<T> b) {
  return assign<bool>(a.name + " < " + b.name, a, b);
}
template <class T>
Condition le(Text<T> a, Text<T> b) {
  return assign<bool>(a.name + " <= " + b.name, a, b);
}
template <class T>
Condition eq(Text<T> a, Text<T> b) {
  return assign<bool>(a.name + " == " + b.name, a, b);
}
inline Condition both(Condition a, Condition b) { return assign<bool>(a.name + " && " + b.name, a, b); }
inline Condition either(Condition a, Condition b) { return assign<bool>(a.name + " || " + b.name, a, b); }
inline Condition negate(Condition a) { return assign<bool>("!" + a.name, a); }

inline std::string bits(const Text<float>& x) { return "__float_as_uint(" + x.name + ")"; }
template <class... Operands>
Text<float> of_bits(const std::string& expression, const Operands&... operands) {
  return assign<float>("__uint_as_float(" + expression + ")", operands...);
}

template <class T>
Text<T> select(Condition c, Text<T> a, Text<T> b) {
  return assign<T>(c.name + " ? " + a.name + " : " + b.name, c, a, b);
}
// Signs and choices are on bits, as in pointwise_scalar.h: instructions on floats would flush a subnormal.
inline Text<float> select(Condition c, Text<float> a, Text<float> b) {
  return of_bits(c.name + " ? " + bits(a) + " : " + bits(b), c, a, b);
}
inline Text<float> operator-(Text<float> a) { return of_bits(bits(a) + " ^ 0x80000000u", a); }
template <class T>
Text<T> operator-(Text<T> a) {
  return lit<Text<T>>(0) - a;
}
inline Text<float> abs_of(Text<float> x) { return of_bits(bits(x) + " & 0x7fffffffu", x); }
template <class T>
Text<T> abs_of(Text<T> x) {
  return select(lt(x, lit<Text<T>>(0)), -x, x);
}
inline Text<float> with_sign(Text<float> magnitude, Text<float> sign) {
  return of_bits("(" + bits(magnitude) + " & 0x7fffffffu) | (" + bits(sign) + " & 0x80000000u)", magnitude, sign);
}
inline Text<float> and_bits(Text<float> a, Text<float> b) { return of_bits(bits(a) + " & " + bits(b), a, b); }
inline Text<float> or_bits(Text<float> a, Text<float> b) { return of_bits(bits(a) + " | " + bits(b), a, b); }
template <class T>
Text<T> and_bits(Text<T> a, Text<T> b) {
  return assign<T>(a.name + " & " + b.name, a, b);
}
template <class T>
Text<T> or_bits(Text<T> a, Text<T> b) {
  return assign<T>(a.name + " | " + b.name, a, b);
}

inline Condition is_nan(Text<float> x) { return assign<bool>(x.name + " != " + x.name, x); }
template <class T>
Condition is_nan(Text<T>) {
  return {nullptr, "false"};
}
inline Text<float> sqrt_of(Text<float> x) { return assign<float>("sqrtf(" + x.name + ")", x); }

inline Text<float> fma_of(Text<float> a, Text<float> b, Text<float> c) {
  return assign<float>("__fmaf_rn(" + a.name + ", " + b.name + ", " + c.name + ")", a, b, c);
}
// One instruction each. Of two subnormals, or one and zero, they choose by value, where the expression's comparison
// calls them equal.
inline Text<float> op_maximum(Text<float> a, Text<float> b) {
  return assign<float>("most(" + a.name + ", " + b.name + ")", a, b);
}
inline Text<float> op_minimum(Text<float> a, Text<float> b) {
  return assign<float>("least(" + a.name + ", " + b.name + ")", a, b);
}

inline Text<float> clamp(Text<float> x, double low, double high) {
  return assign<float>(
      "least(" + lit<Text<float>>(high).name + ", most(" + lit<Text<float>>(low).name + ", " + x.name + "))", x);
}
// As in pointwise_scalar.h.
inline Text<float> add_exponent(Text<float> p, Text<float> t) {
  return of_bits(bits(p) + " + (" + bits(t) + " << 23)", p, t);
}
inline Text<float> pow2(Text<float> n) {
  return of_bits("(" + bits(n + lit<Text<float>>(0x1.8p23)) + " + 127u) << 23", n);
}
inline Text<float> exponent(Text<float> x) {
  return assign<float>("(float)((int)(" + bits(x) + " - 0x3f3504f3u) >> 23)", x);
}
inline Text<float> mantissa(Text<float> x) {
  return of_bits("((" + bits(x) + " - 0x3f3504f3u) & 0x007fffffu) + 0x3f3504f3u", x);
}
inline Text<float> head(Text<float> x) { return of_bits(bits(x) + " & 0xfffff000u", x); }

#include "ops/pointwise.inc"

}  // namespace aicf::ops::pointwise::printing
