// Copies of short runs of memory, for which a call of memcpy each would take longer than the bytes.
#pragma once

#include <cstddef>
#include <cstdint>

namespace aicf::backend::cpu {

// `rows` runs of `bytes` each, `pitch` bytes apart, to one run. The two do not overlap.
using CopyRowsFn = void (*)(const char* from, int64_t pitch, size_t rows, size_t bytes, char* to);
CopyRowsFn find_copy_rows();

}  // namespace aicf::backend::cpu
