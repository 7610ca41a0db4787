// A value type that prints: pointwise.inc over it turns each expression into CUDA C++ statements on f32.
#pragma once

#include <cmath>
#include <cstdio>
#include <string>
#include <utility>

namespace aicf::ops::pointwise::printing {

// Collects the statements of one or several expressions, one temporary each. REQUIRES: outlives its Texts.
class Printer {
 public:
  const std::string& statements() const { return statements_; }
  std::string assign(const char* type, const std::string& expression) {
    std::string name = "t" + std::to_string(next_++);
    statements_ += std::string("const ") + type + " " + name + " = " + expression + ";\n";
    return name;
  }

 private:
  std::string statements_;
  int next_ = 0;
};

// The name of a float or bool variable, or a literal (printer null).
struct Text {
  Printer* printer = nullptr;
  std::string name;
};

inline Text assign(const char* type, const std::string& expression, const Text& a, const Text& b = {},
                   const Text& c = {}) {
  Printer* printer = a.printer ? a.printer : b.printer ? b.printer : c.printer;
  if (!printer) return {nullptr, "(" + expression + ")"};
  return {printer, printer->assign(type, expression)};
}

template <class V>
Text lit(double c) {
  const float f = static_cast<float>(c);
  if (std::isnan(f)) return {nullptr, "__int_as_float(0x7fc00000)"};
  if (std::isinf(f)) return {nullptr, f > 0 ? "__int_as_float(0x7f800000)" : "__int_as_float(0xff800000)"};
  char buffer[40];
  std::snprintf(buffer, sizeof buffer, std::signbit(f) ? "(%af)" : "%af", static_cast<double>(f));
  return {nullptr, buffer};
}

inline Text infix(const char* type, const Text& a, const char* op, const Text& b) {
  return assign(type, a.name + " " + op + " " + b.name, a, b);
}
inline Text operator+(Text a, Text b) { return infix("float", a, "+", b); }
inline Text operator-(Text a, Text b) { return infix("float", a, "-", b); }
inline Text operator*(Text a, Text b) { return infix("float", a, "*", b); }
inline Text operator/(Text a, Text b) { return infix("float", a, "/", b); }
inline Text operator-(Text a) { return assign("float", "-" + a.name, a); }
inline Text lt(Text a, Text b) { return infix("bool", a, "<", b); }
inline Text le(Text a, Text b) { return infix("bool", a, "<=", b); }
inline Text eq(Text a, Text b) { return infix("bool", a, "==", b); }
inline Text both(Text a, Text b) { return infix("bool", a, "&&", b); }
inline Text either(Text a, Text b) { return infix("bool", a, "||", b); }
inline Text negate(Text a) { return assign("bool", "!" + a.name, a); }
inline Text select(Text c, Text a, Text b) {
  return assign("float", c.name + " ? " + a.name + " : " + b.name, c, a, b);
}
inline Text is_nan(Text x) { return infix("bool", x, "!=", x); }
inline Text abs_of(Text x) { return assign("float", "fabsf(" + x.name + ")", x); }
inline Text sqrt_of(Text x) { return assign("float", "sqrtf(" + x.name + ")", x); }
inline Text with_sign(Text magnitude, Text sign) {
  return assign("float", "copysignf(" + magnitude.name + ", " + sign.name + ")", magnitude, sign);
}

inline std::string bits(const Text& x) { return "__float_as_uint(" + x.name + ")"; }
inline Text of_bits(const std::string& expression, const Text& a, const Text& b = {}) {
  return assign("float", "__uint_as_float(" + expression + ")", a, b);
}
inline Text and_bits(Text a, Text b) { return of_bits(bits(a) + " & " + bits(b), a, b); }
inline Text or_bits(Text a, Text b) { return of_bits(bits(a) + " | " + bits(b), a, b); }
// As in pointwise_scalar.h.
inline Text pow2(Text n) { return of_bits("(" + bits(n + lit<Text>(0x1.8p23)) + " + 127u) << 23", n); }
inline Text exponent(Text x) { return assign("float", "(float)((int)(" + bits(x) + " - 0x3f3504f3u) >> 23)", x); }
inline Text mantissa(Text x) { return of_bits("((" + bits(x) + " - 0x3f3504f3u) & 0x007fffffu) + 0x3f3504f3u", x); }
inline Text head(Text x) { return of_bits(bits(x) + " & 0xfffff000u", x); }

#include "ops/pointwise.inc"

}  // namespace aicf::ops::pointwise::printing
