// Samples of attention.
#pragma once

#include "ops/samples.h"

namespace aicf::ops {

std::vector<ir::Sample> samples_attention();
std::vector<ir::Sample> samples_attention_dropout();

}  // namespace aicf::ops
