// Samples of the reductions.
#pragma once

#include "ops/samples.h"

namespace aicf::ops {

std::vector<ir::Sample> samples_argmax();
std::vector<ir::Sample> samples_reduce_max();
std::vector<ir::Sample> samples_reduce_min();
std::vector<ir::Sample> samples_reduce_prod();
std::vector<ir::Sample> samples_reduce_sum();

}  // namespace aicf::ops
