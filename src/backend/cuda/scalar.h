// Pointwise ops on scalars as text: the statements of a kernel that computes them for one element.
#pragma once

#include <span>
#include <string>
#include <utility>
#include <vector>

#include "aicf/dtype.h"
#include "ir/op.h"
#include "ops/pointwise_printer.h"

namespace aicf::backend::cuda {

// Values are rounded to their dtype as if each were written to memory and read again, so a chain of ops has the bits of
// the ops run one by one. The numbers returned name the values.
class Scalars {
 public:
  explicit Scalars(std::string prefix = "t") : printer_(std::move(prefix)) {}
  // A variable holding an element as it is in memory.
  int variable(DType dtype, std::string name);
  // The value of a pointwise op. REQUIRES: what the record's shape rule asks; no f64.
  int apply(const ir::OpDef& def, DType result, std::span<const int> operands);
  // An expression for the element as it is in memory; may add statements.
  std::string element(int value);
  DType dtype(int value) const { return values_[value].dtype; }
  const std::string& statements() const { return printer_.statements(); }

  // The value as the expressions of pointwise.inc take it: floats as float, bool as a condition. For the ops.
  template <class T>
  ops::pointwise::printing::Text<T> text(int value);
  // A result of such an expression, before rounding.
  template <class T>
  int result(DType dtype, const ops::pointwise::printing::Text<T>& text);
  ops::pointwise::printing::Printer& printer() { return printer_; }

 private:
  struct Value {
    DType dtype;
    std::string element;   // "": not formed yet
    std::string computed;  // float of a 16-bit float, bool of a bool; "": not formed yet
  };
  int add(Value value);

  ops::pointwise::printing::Printer printer_;
  std::vector<Value> values_;
};

}  // namespace aicf::backend::cuda
