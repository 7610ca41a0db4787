// What a checkpoint says it ran on: results of matrix products are the same bits only there.
#pragma once

#include <string>

#include "backend/api.h"

namespace aicf::api {

// "AICF 0.1.0 on cpu: …": device and versions, without what changes no bit.
std::string machine_of(const backend::Backend& backend);

}  // namespace aicf::api
