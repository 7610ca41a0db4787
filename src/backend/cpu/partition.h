// How a kernel's work is shared out: by shape alone, so that the thread count changes nothing.
#pragma once

#include <algorithm>
#include <cstdint>

namespace aicf::backend::cpu {

struct Range {
  int64_t begin = 0, end = 0;
};

// The part-th of `parts` nearly equal shares of 0 … n-1.
inline Range share(int64_t n, int part, int parts) {
  const int64_t each = n / parts, more = n % parts;
  const int64_t begin = each * part + std::min<int64_t>(part, more);
  return {begin, begin + each + (part < more ? 1 : 0)};
}

// Shares of work that moves this many bytes: below 64 KiB each, waking a thread costs more than it saves.
inline int parts_for_bytes(double bytes) { return static_cast<int>(std::clamp(bytes / 65536, 1.0, 64.0)); }

}  // namespace aicf::backend::cpu
