// Adam and AdamW: one update, which differ in where the decay enters.
#pragma once

#include <memory>

#include "optim/optimizer.h"

namespace aicf::optim {

// Decay: coupled adds weight_decay·p to the gradient, decoupled shrinks the parameter by 1 - lr·weight_decay.
enum class Decay : uint8_t { coupled, decoupled };

std::shared_ptr<const Optimizer::Impl> make_adam(const char* name, const Adam& options, Decay decay);

}  // namespace aicf::optim
