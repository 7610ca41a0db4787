// Random words by run-time dispatch.
#pragma once

#include <cstdint>

#include "base/philox.h"

namespace aicf::backend::cpu {

// Elements `first` … first + n - 1 of the stream: element e is word e % 4 of block e / 4.
using RandomBitsFn = void (*)(const base::PhiloxStream& stream, int64_t first, int64_t n, int32_t* to);
RandomBitsFn find_random_bits();

}  // namespace aicf::backend::cpu
