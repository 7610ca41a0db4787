// The IDX reader over bytes from anywhere.
#pragma once

#include "aicf/data.h"
#include "io/bytes.h"

namespace aicf::io {

Tensor read_idx(const Bytes& bytes);

}  // namespace aicf::io
