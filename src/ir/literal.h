// Elements and numbers in the text form: every bit survives, and no locale is asked.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "aicf/dtype.h"

namespace aicf::ir {

// Element i of a dense array: 3, true, 0x1.8p+1, inf, nan, or nan(0x7fc00001) for a NaN of other bits than the usual.
std::string element_text(DType dtype, const void* data, int64_t i);

// Reads hexadecimal or decimal floats, inf and nan. Returns false on anything else, or out of range.
bool parse_float(std::string_view text, double& value);
// Returns false on anything but a 64-bit integer.
bool parse_integer(std::string_view text, int64_t& value);
// Writes element i from its text; floats, hexadecimal or decimal, are rounded to the dtype. Returns false when it is no
// element of the dtype, or out of its range.
bool parse_element(DType dtype, std::string_view text, void* data, int64_t i);
// The element whose bits are those of `text`, as in nan(0x7fc00001). Returns false unless it is a NaN of the dtype.
bool parse_nan_bits(DType dtype, std::string_view text, void* data, int64_t i);

}  // namespace aicf::ir
