#include "ir/literal.h"

#include <fmt/format.h>

#include <charconv>
#include <cmath>
#include <cstring>
#include <limits>

#include "aicf/tensor.h"

namespace aicf::ir {
namespace {

uint64_t element_bits(DType dtype, const void* data, int64_t i) {
  uint64_t bits = 0;
  const size_t size = size_of(dtype);
  std::memcpy(&bits, static_cast<const char*>(data) + static_cast<size_t>(i) * size, size);
  return bits;
}

void set_element_bits(DType dtype, void* data, int64_t i, uint64_t bits) {
  const size_t size = size_of(dtype);
  std::memcpy(static_cast<char*>(data) + static_cast<size_t>(i) * size, &bits, size);
}

// Positive, quiet, no payload.
uint64_t usual_nan(DType dtype) {
  switch (dtype) {
    case DType::f64:
      return 0x7ff8000000000000u;
    case DType::f32:
      return 0x7fc00000u;
    case DType::bf16:
      return 0x7fc0u;
    default:
      return 0x7e00u;
  }
}

template <class T>
bool whole(std::string_view text, T& value, auto... format) {
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value, format...);
  return error == std::errc() && end == text.data() + text.size();
}

}  // namespace

std::string element_text(DType dtype, const void* data, int64_t i) {
  if (dtype == DType::boolean) return element_bits(dtype, data, i) != 0 ? "true" : "false";
  if (dtype == DType::i64) return std::to_string(static_cast<const int64_t*>(data)[i]);
  const double value = element_as_double(dtype, data, i);
  if (!is_float(dtype)) return std::to_string(static_cast<int64_t>(value));
  if (std::isnan(value)) {
    const uint64_t bits = element_bits(dtype, data, i);
    return bits == usual_nan(dtype) ? "nan" : fmt::format("nan({:#x})", bits);
  }
  if (std::isinf(value)) return value < 0 ? "-inf" : "inf";
  char buffer[64];
  const auto end = std::to_chars(buffer, buffer + sizeof buffer, std::fabs(value), std::chars_format::hex).ptr;
  return (std::signbit(value) ? "-0x" : "0x") + std::string(buffer, end);
}

bool parse_integer(std::string_view text, int64_t& value) { return whole(text, value, 10); }

bool parse_float(std::string_view text, double& value) {
  const bool negative = text.starts_with('-');
  if (negative) text.remove_prefix(1);
  if (text == "nan") {
    value = std::numeric_limits<double>::quiet_NaN();
    return !negative;
  }
  if (text == "inf") {
    value = std::numeric_limits<double>::infinity();
  } else {
    const bool hex = text.starts_with("0x");
    if (hex) text.remove_prefix(2);
    // from_chars would take a second sign, and words.
    if (text.empty() || text[0] == '-' || text[0] == 'i' || text[0] == 'n') return false;
    if (!whole(text, value, hex ? std::chars_format::hex : std::chars_format::general)) return false;
  }
  if (negative) value = -value;
  return true;
}

bool parse_element(DType dtype, std::string_view text, void* data, int64_t i) {
  if (dtype == DType::boolean) {
    if (text != "true" && text != "false") return false;
    set_element(dtype, data, i, text == "true" ? 1 : 0);
    return true;
  }
  if (is_float(dtype)) {
    double value = 0;
    if (!parse_float(text, value)) return false;
    if (std::isnan(value)) {
      set_element_bits(dtype, data, i, usual_nan(dtype));
      return true;
    }
    set_element(dtype, data, i, value);
    return std::isinf(value) || !std::isinf(element_as_double(dtype, data, i));
  }
  int64_t value = 0;
  if (!parse_integer(text, value)) return false;
  if (dtype == DType::i64) {
    static_cast<int64_t*>(data)[i] = value;
    return true;
  }
  const bool fits = dtype == DType::i32 ? value == static_cast<int32_t>(value) : value == static_cast<uint8_t>(value);
  if (fits) set_element(dtype, data, i, static_cast<double>(value));
  return fits;
}

bool parse_nan_bits(DType dtype, std::string_view text, void* data, int64_t i) {
  uint64_t bits = 0;
  if (!is_float(dtype) || !text.starts_with("0x") || !whole(text.substr(2), bits, 16)) return false;
  if (size_of(dtype) < 8 && (bits >> (8 * size_of(dtype))) != 0) return false;
  set_element_bits(dtype, data, i, bits);
  return std::isnan(element_as_double(dtype, data, i));
}

}  // namespace aicf::ir
