// How an external starts: the text of its attribute `init`, and the elements it stands for.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "aicf/tensor.h"

namespace aicf::ir {

// values: one an element, in order. seed: the model's seed itself (i64[]). The others as in aicf/model.h.
enum class InitKind : uint8_t { zeros, ones, value, values, uniform, normal, seed };

struct InitSpec {
  InitKind kind = InitKind::zeros;
  std::vector<double> args;  // value: 1; values: one an element; uniform: low, high; normal: mean, deviation

  bool operator==(const InitSpec&) const = default;
};

// "zeros", "ones", "value(0x1p-1)", "values(0x1p+0,0x1p-1)", "uniform(-0x1p-3,0x1p-3)", "normal(0x0p+0,0x1p+0)",
// "seed": floats in hex, so that the bits survive.
std::string format_init(const InitSpec& spec);
// "" is zeros. Throws Error on anything else that format_init would not write.
InitSpec parse_init(std::string_view text);

// The elements of the external `name`. Random draws depend on (seed, name, element) alone, are computed in double from
// IEEE-exact operations only, and are then rounded to the dtype: the same bits on every machine. Throws Error naming
// the external when `init` is malformed or does not fit the type.
Tensor initial_value(const std::string& name, const TensorType& type, const std::string& init, uint64_t seed);

}  // namespace aicf::ir
