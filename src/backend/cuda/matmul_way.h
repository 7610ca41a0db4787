// Whether a matmul runs in the library or in the own kernel: a choice by the matmul alone, whatever follows it.
#pragma once

#include "backend/api.h"

namespace aicf::backend::cuda {

// A matmul that some way runs.
bool accepts_matmul(const KernelQuery& matmul);

// Only to be compared with each other: estimates in microseconds or, with tuning.measure, what measuring has shown;
// known_choice() where there is one.
// Thread-safe. Throws Error when the device fails. REQUIRES: accepts_matmul().
struct MatmulCosts {
  double library = 0, own = 0;
};
MatmulCosts matmul_costs(const KernelQuery& matmul);

}  // namespace aicf::backend::cuda
