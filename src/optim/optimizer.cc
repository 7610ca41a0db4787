#include "optim/optimizer.h"

#include "aicf/error.h"

namespace aicf::optim {

const std::string& Optimizer::name() const {
  if (empty()) throw Error("name of an empty optimizer");
  return impl_->name();
}

}  // namespace aicf::optim
