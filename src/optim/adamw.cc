// AdamW: Loshchilov & Hutter, "Decoupled weight decay regularization" (ICLR 2019), algorithm 2.
#include "optim/adam.h"

namespace aicf::optim {

Optimizer::Optimizer(const AdamW& o)
    : impl_(make_adam("adamw", Adam{o.lr, o.beta1, o.beta2, o.eps, o.weight_decay, o.schedule, o.groups},
                      Decay::decoupled)) {}

}  // namespace aicf::optim
