#include "api/machine.h"

#include <fmt/format.h>

#include <algorithm>

#include "aicf/info.h"

namespace aicf::api {

std::string machine_of(const backend::Backend& backend) {
  std::string description = backend.description();
  // The number of threads changes no bit.
  if (backend.name() == "cpu") description.resize(std::min(description.rfind(", "), description.size()));
  return fmt::format("AICF {} on {}: {}", version(), backend.name(), description);
}

}  // namespace aicf::api
