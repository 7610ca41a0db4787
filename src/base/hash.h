// 64-bit FNV-1a (Fowler, Noll, Vo): one hash for cache keys and file names, the same on every machine.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>

namespace aicf::base {

inline constexpr uint64_t kHashSeed = 0xcbf29ce484222325u;

// Chains: hash_bytes(b, nb, hash_bytes(a, na)) is the hash of a followed by b.
uint64_t hash_bytes(const void* data, size_t size, uint64_t seed = kHashSeed);

inline uint64_t hash_text(std::string_view text, uint64_t seed = kHashSeed) {
  return hash_bytes(text.data(), text.size(), seed);
}

}  // namespace aicf::base
