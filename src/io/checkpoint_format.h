// Checkpoints as safetensors: what is in the metadata, and the checksum over everything.
#pragma once

#include <map>
#include <span>
#include <string>

#include "aicf/checkpoint.h"
#include "aicf/error.h"
#include "aicf/safetensors.h"

namespace aicf::io {

// The metadata key of the format's version, which every checkpoint has.
inline constexpr const char* kCheckpointVersion = "aicf.checkpoint";
// Waiver for contents that differ from their checksum.
inline constexpr const char* kWaiveChecksum = "checksum";

// All of the checkpoint but its tensors. Throws Error beginning with `label` on what the format cannot hold.
std::map<std::string, std::string> checkpoint_metadata(const Checkpoint& checkpoint, const std::string& label);

// Not damaged: what wrote it knew more.
class LaterVersion : public Error {
 public:
  using Error::Error;
};

// The inverse. Throws Error beginning with `label`, LaterVersion when that is what it is.
Checkpoint checkpoint_of(Safetensors file, const std::string& label, std::span<const std::string> waive);

}  // namespace aicf::io
