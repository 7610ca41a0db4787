// The header of a safetensors file, checked: where each tensor lies.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "aicf/dtype.h"
#include "aicf/shape.h"

namespace aicf::io {

struct SafetensorsEntry {
  std::string name;
  TensorType type;
  uint64_t begin = 0, end = 0;  // in the data section
};

struct SafetensorsHeader {
  std::vector<SafetensorsEntry> entries;
  std::map<std::string, std::string> metadata;
};

inline constexpr const char* kMetadataKey = "__metadata__";

// The format's name of a dtype: "F32".
const char* safetensors_name(DType dtype);

// Every range in the result is the size of its tensor and inside the data section, which they tile. Throws Error
// beginning with `label`.
SafetensorsHeader parse_safetensors_header(std::string_view text, uint64_t data_bytes, const std::string& label);

}  // namespace aicf::io
