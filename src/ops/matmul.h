// matmul with every attribute, for gradient rules and passes.
#pragma once

#include <optional>
#include <string>

#include "aicf/value.h"

namespace aicf::ops {

struct MatmulOptions {
  bool ta = false, tb = false;
  std::string compute = {};       // "", "tf32", "bf16", "f16": what the operands are rounded to
  std::optional<DType> out = {};  // of the result
};

// Attributes that say nothing (`compute` of operands that have that dtype, the default `out`) are left out, so that
// equal products have equal text.
Value matmul(Value a, Value b, const MatmulOptions& options);

}  // namespace aicf::ops
