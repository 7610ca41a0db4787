// The shapes every pointwise op is tested on.
#pragma once

#include <vector>

#include "ops/samples.h"

namespace aicf::ops {

// Ranks 0 to 4, size 1, size 0, and more elements than one vector; drawn from low to high.
std::vector<ir::Sample> unary_samples(double low = -2, double high = 2);
// The same with two operands, broadcasting both ways, and one value as both operands.
std::vector<ir::Sample> binary_samples(double low = -2, double high = 2);

// Puts fixed values, none within 0.05 of an integer, a half or one of the other operand, in place of the draws.
std::vector<ir::Sample> away_from_kinks(std::vector<ir::Sample> samples);
// Retypes the operands.
std::vector<ir::Sample> of_dtype(std::vector<ir::Sample> samples, DType dtype);
std::vector<ir::Sample> operator+(std::vector<ir::Sample> samples, std::vector<ir::Sample> more);

}  // namespace aicf::ops
