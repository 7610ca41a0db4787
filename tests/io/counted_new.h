// Replaces the global operator new of the test that includes this, to count calls and live bytes. Include in one file
// only.
#pragma once

#include <malloc.h>

#include <atomic>
#include <cstddef>
#include <cstdlib>
#include <new>

namespace aicf::tests {

inline std::atomic<size_t> allocations = 0, live_bytes = 0, peak_bytes = 0;

inline size_t allocation_count() { return allocations; }

// The most bytes live at once during the call, beyond those live before it.
template <class Call>
size_t peak_during(const Call& call) {
  const size_t before = live_bytes;
  peak_bytes = before;
  call();
  return peak_bytes - before;
}

inline void* count(void* memory) {
  if (!memory) throw std::bad_alloc();
  ++allocations;
  const size_t live = live_bytes += malloc_usable_size(memory);
  size_t peak = peak_bytes;
  while (live > peak && !peak_bytes.compare_exchange_weak(peak, live)) {
  }
  return memory;
}

inline void release(void* memory) noexcept {
  if (memory) live_bytes -= malloc_usable_size(memory);
  std::free(memory);
}

}  // namespace aicf::tests

// The array and nothrow forms call these.
void* operator new(size_t bytes) { return aicf::tests::count(std::malloc(bytes ? bytes : 1)); }
void* operator new(size_t bytes, std::align_val_t alignment) {
  const size_t a = static_cast<size_t>(alignment);
  return aicf::tests::count(std::aligned_alloc(a, (bytes + a - 1) / a * a));
}
void operator delete(void* memory) noexcept { aicf::tests::release(memory); }
void operator delete(void* memory, size_t) noexcept { aicf::tests::release(memory); }
void operator delete(void* memory, std::align_val_t) noexcept { aicf::tests::release(memory); }
void operator delete(void* memory, size_t, std::align_val_t) noexcept { aicf::tests::release(memory); }
