#include "base/hash.h"

namespace aicf::base {

uint64_t hash_bytes(const void* data, size_t size, uint64_t seed) {
  const auto* bytes = static_cast<const unsigned char*>(data);
  uint64_t h = seed;
  for (size_t i = 0; i < size; ++i) h = (h ^ bytes[i]) * 0x100000001b3u;
  return h;
}

}  // namespace aicf::base
