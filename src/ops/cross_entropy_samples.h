// Samples of cross_entropy.
#pragma once

#include "ops/samples.h"

namespace aicf::ops {

std::vector<ir::Sample> samples_cross_entropy();

}  // namespace aicf::ops
