#include "backend/cuda/text.h"

#include <fmt/format.h>

#include <climits>

#include "aicf/error.h"

namespace aicf::backend::cuda {

std::string constants(std::initializer_list<std::pair<const char*, int64_t>> list) {
  std::string text;
  for (const auto& [name, value] : list) {
    if (value >= INT_MIN && value <= INT_MAX) {
      text += fmt::format("constexpr int {} = {};\n", name, value);
    } else {  // the literal of the smallest i64 is one too many for its type
      text += fmt::format("constexpr i64 {} = (i64){:#x}ull;\n", name, static_cast<uint64_t>(value));
    }
  }
  return text;
}

std::string types(std::initializer_list<std::pair<const char*, std::string>> list) {
  std::string text;
  for (const auto& [name, type] : list) text += fmt::format("typedef {} {};\n", type, name);
  return text;
}

const char* c_type(DType dtype) {
  switch (dtype) {
    case DType::f32:
      return "float";
    case DType::bf16:
      return "bf16";
    case DType::f16:
      return "f16";
    case DType::i64:
      return "i64";
    case DType::i32:
      return "int";
    case DType::u8:
    case DType::boolean:
      return "u8";
    case DType::f64:
      break;
  }
  throw InternalError("no CUDA kernel computes in f64");
}

const char* wide_type(DType dtype) { return is_float(dtype) ? "float" : dtype == i64 ? "i64" : "int"; }

const char* index_type(int64_t elements) { return elements < (int64_t{1} << 30) * 2 - (1 << 20) ? "int" : "i64"; }

int vector_length(int64_t n, size_t size, size_t bytes) {
  size_t length = 1;
  while (length * 2 * size <= bytes && n % static_cast<int64_t>(length * 2) == 0) length *= 2;
  return static_cast<int>(length);
}

}  // namespace aicf::backend::cuda
