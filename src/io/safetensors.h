// The safetensors reader over bytes from anywhere.
#pragma once

#include "aicf/safetensors.h"
#include "io/bytes.h"

namespace aicf::io {

Safetensors read_safetensors(const Bytes& bytes);

}  // namespace aicf::io
