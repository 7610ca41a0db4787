// Element types, and the exact conversions of the 16-bit floats.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>

namespace aicf {

// `f64` exists for the CPU reference only. `boolean` is stored as one byte, 0 or 1.
enum class DType : uint8_t { f64, f32, bf16, f16, i64, i32, u8, boolean };

inline constexpr int kDTypeCount = 8;
inline constexpr DType f64 = DType::f64;
inline constexpr DType f32 = DType::f32;
inline constexpr DType bf16 = DType::bf16;
inline constexpr DType f16 = DType::f16;
inline constexpr DType i64 = DType::i64;
inline constexpr DType i32 = DType::i32;
inline constexpr DType u8 = DType::u8;
inline constexpr DType boolean = DType::boolean;

// Bytes of one element.
size_t size_of(DType dtype);

// "f32", "bf16", …, "bool": the names used in IR text, recipes and messages.
std::string_view name_of(DType dtype);

// The inverse of name_of. Returns false when no dtype has that name.
bool parse_dtype(std::string_view name, DType& dtype);

bool is_float(DType dtype);    // f64 f32 bf16 f16
bool is_integer(DType dtype);  // i64 i32 u8

// Round to nearest even; NaN stays NaN, overflow becomes infinity, subnormals are kept.
uint16_t f32_to_bf16(float value);
uint16_t f32_to_f16(float value);
// Exact.
float bf16_to_f32(uint16_t bits);
float f16_to_f32(uint16_t bits);

}  // namespace aicf
