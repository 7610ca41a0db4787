// Samples of attention.
#pragma once

#include "ops/samples.h"

namespace aicf::ops {

std::vector<ir::Sample> samples_attention();

}  // namespace aicf::ops
