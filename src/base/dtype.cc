#include "aicf/dtype.h"

#include <bit>
#include <cstring>

namespace aicf {
namespace {

struct Row {
  DType dtype;
  std::string_view name;
  size_t size;
};

constexpr Row kRows[kDTypeCount] = {
    {DType::f64, "f64", 8}, {DType::f32, "f32", 4}, {DType::bf16, "bf16", 2}, {DType::f16, "f16", 2},
    {DType::i64, "i64", 8}, {DType::i32, "i32", 4}, {DType::u8, "u8", 1},     {DType::boolean, "bool", 1},
};

}  // namespace

size_t size_of(DType dtype) { return kRows[static_cast<int>(dtype)].size; }

std::string_view name_of(DType dtype) { return kRows[static_cast<int>(dtype)].name; }

bool parse_dtype(std::string_view name, DType& dtype) {
  for (const Row& row : kRows) {
    if (row.name == name) {
      dtype = row.dtype;
      return true;
    }
  }
  return false;
}

bool is_float(DType dtype) {
  return dtype == DType::f64 || dtype == DType::f32 || dtype == DType::bf16 || dtype == DType::f16;
}

bool is_integer(DType dtype) { return dtype == DType::i64 || dtype == DType::i32 || dtype == DType::u8; }

uint16_t f32_to_bf16(float value) {
  const auto bits = std::bit_cast<uint32_t>(value);
  if ((bits & 0x7fffffffu) > 0x7f800000u) return static_cast<uint16_t>((bits >> 16) | 0x40u);  // NaN stays quiet NaN
  return static_cast<uint16_t>((bits + 0x7fffu + ((bits >> 16) & 1u)) >> 16);
}

float bf16_to_f32(uint16_t bits) { return std::bit_cast<float>(static_cast<uint32_t>(bits) << 16); }

// Integer arithmetic throughout, so that flush-to-zero cannot touch a subnormal.
uint16_t f32_to_f16(float value) {
  const auto bits = std::bit_cast<uint32_t>(value);
  const uint32_t sign = (bits >> 16) & 0x8000u;
  const uint32_t magnitude = bits & 0x7fffffffu;
  if (magnitude > 0x7f800000u) return static_cast<uint16_t>(sign | 0x7e00u | ((magnitude >> 13) & 0x1ffu));
  if (magnitude >= 0x477ff000u) return static_cast<uint16_t>(sign | 0x7c00u);  // 65520 and above round to infinity
  if (magnitude >= 0x38800000u) {                                              // 2^-14: normal
    const uint32_t rounded = magnitude - 0x38000000u + 0xfffu + ((magnitude >> 13) & 1u);
    return static_cast<uint16_t>(sign | (rounded >> 13));
  }
  if (magnitude <= 0x33000000u) return static_cast<uint16_t>(sign);  // 2^-25 and below round to zero
  const uint32_t shift = 126u - (magnitude >> 23);                   // 14 … 24
  const uint32_t mantissa = (magnitude & 0x7fffffu) | 0x800000u;
  const uint32_t kept = mantissa >> shift;
  const uint32_t rest = mantissa & ((1u << shift) - 1u);
  const uint32_t half = 1u << (shift - 1u);
  const uint32_t up = rest > half || (rest == half && (kept & 1u)) ? 1u : 0u;
  return static_cast<uint16_t>(sign | (kept + up));
}

float f16_to_f32(uint16_t bits) {
  const uint32_t sign = static_cast<uint32_t>(bits & 0x8000u) << 16;
  const uint32_t exponent = (bits >> 10) & 0x1fu;
  const uint32_t mantissa = bits & 0x3ffu;
  if (exponent == 0x1fu) return std::bit_cast<float>(sign | 0x7f800000u | (mantissa << 13));
  if (exponent != 0) return std::bit_cast<float>(sign | ((exponent + 112u) << 23) | (mantissa << 13));
  if (mantissa == 0) return std::bit_cast<float>(sign);
  const int lead = std::countl_zero(mantissa) - 21;  // bits below the implicit one
  const uint32_t normal = (mantissa << lead) & 0x3ffu;
  return std::bit_cast<float>(sign | (static_cast<uint32_t>(113 - lead) << 23) | (normal << 13));
}

}  // namespace aicf
