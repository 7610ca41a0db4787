// The data set that was attached to a program, as checkpoints see it.
#pragma once

#include <cstdint>
#include <optional>

#include "aicf/program.h"

namespace aicf::api {

// Its size; nothing when none is attached.
std::optional<int64_t> attached_examples(Program::Impl& impl);

}  // namespace aicf::api
