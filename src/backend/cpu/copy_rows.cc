// The copy of rows, for every Highway target.
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "backend/cpu/copy_rows.cc"
#include "hwy/foreach_target.h"
// After foreach_target.
#include <cstring>

#include "backend/cpu/copy_rows.h"
#include "hwy/highway.h"

HWY_BEFORE_NAMESPACE();
namespace aicf::backend::cpu {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

using ByteTag = hn::ScalableTag<uint8_t>;

// Longer ones are worth the call.
inline constexpr size_t kLongest = 2048;

// The last vector of a row may overlap the one before.
HWY_ATTR void copy_rows(const char* from, int64_t pitch, size_t rows, size_t bytes, char* to) {
  const ByteTag tag;
  const size_t each = hn::Lanes(tag);
  if (bytes < each || bytes > kLongest) {
    for (size_t r = 0; r < rows; ++r, from += pitch, to += bytes) std::memcpy(to, from, bytes);
    return;
  }
  const auto move = [&](size_t i) HWY_ATTR {
    hn::StoreU(hn::LoadU(tag, reinterpret_cast<const uint8_t*>(from) + i), tag, reinterpret_cast<uint8_t*>(to) + i);
  };
  for (size_t r = 0; r < rows; ++r, from += pitch, to += bytes) {
    for (size_t i = 0; i + each <= bytes; i += each) move(i);
    if (bytes % each != 0) move(bytes - each);
  }
}

CopyRowsFn copy_rows_fn() { return copy_rows; }

}  // namespace HWY_NAMESPACE
}  // namespace aicf::backend::cpu
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace aicf::backend::cpu {
HWY_EXPORT(copy_rows_fn);
CopyRowsFn find_copy_rows() { return HWY_DYNAMIC_DISPATCH(copy_rows_fn)(); }
}  // namespace aicf::backend::cpu
#endif
