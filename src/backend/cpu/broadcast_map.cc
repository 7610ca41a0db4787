#include "backend/cpu/broadcast_map.h"

#include <algorithm>
#include <cstring>

namespace aicf::backend::cpu {

BroadcastMap::BroadcastMap(const Shape& from, const Shape& to) {
  int64_t stride[kMaxRank] = {};
  int64_t dense = 1;
  for (int a = from.rank() - 1, b = to.rank() - 1; a >= 0; --a, --b) {
    stride[b] = from[a] == 1 ? 0 : dense;
    dense *= from[a];
  }
  for (int i = 0; i < to.rank(); ++i) {
    if (to[i] == 1) continue;
    const bool merges = rank_ > 0 && strides_[rank_ - 1] == stride[i] * to[i];
    if (merges) {
      dims_[rank_ - 1] *= to[i];
      strides_[rank_ - 1] = stride[i];
    } else {
      dims_[rank_] = to[i];
      strides_[rank_++] = stride[i];
    }
  }
  if (rank_ == 0) {  // one element
    rank_ = 1;
    dims_[0] = 1;
  }
  repeats_ = strides_[0] == 0 && (rank_ == 1 || (rank_ == 2 && strides_[1] == 1));
  if (repeats_ && rank_ == 2) period_ = dims_[1];
}

const void* BroadcastMap::contiguous(const void* data, size_t size, int64_t begin, size_t n) const {
  const int last = rank_ - 1;
  if (strides_[last] != 1) return nullptr;
  int64_t offset = begin % dims_[last];
  if (rank_ > 1 && offset + static_cast<int64_t>(n) > dims_[last]) return nullptr;
  int64_t outer = begin / dims_[last];
  for (int i = last - 1; i >= 0; --i) {
    offset += outer % dims_[i] * strides_[i];
    outer /= dims_[i];
  }
  return static_cast<const char*>(data) + offset * size;
}

void BroadcastMap::expand(const void* data, size_t size, void* out, int64_t begin, size_t n) const {
  switch (size) {
    case 1:
      return expand_as(static_cast<const uint8_t*>(data), static_cast<uint8_t*>(out), begin, n);
    case 2:
      return expand_as(static_cast<const uint16_t*>(data), static_cast<uint16_t*>(out), begin, n);
    case 4:
      return expand_as(static_cast<const uint32_t*>(data), static_cast<uint32_t*>(out), begin, n);
    default:
      return expand_as(static_cast<const uint64_t*>(data), static_cast<uint64_t*>(out), begin, n);
  }
}

namespace {

// Runs of a few elements are common, and a call of memcpy costs more than they do.
template <class T>
void copy(T* out, const T* from, int64_t n) {
  if (n > 16) {
    std::memcpy(out, from, static_cast<size_t>(n) * sizeof(T));
  } else {
    for (int64_t i = 0; i < n; ++i) out[i] = from[i];
  }
}

// By doubling what is filled already.
template <class T>
void fill(T* out, T value, int64_t n) {
  int64_t done = std::min<int64_t>(n, 16);
  for (int64_t i = 0; i < done; ++i) out[i] = value;
  while (done < n) {
    const int64_t more = std::min(done, n - done);
    std::memcpy(out + done, out, static_cast<size_t>(more) * sizeof(T));
    done += more;
  }
}

}  // namespace

// Runs along the last axis, an odometer over the others.
template <class T>
void BroadcastMap::expand_as(const T* data, T* out, int64_t begin, size_t n) const {
  const int last = rank_ - 1;
  int64_t at[kMaxRank];
  int64_t rest = begin;
  for (int i = last; i >= 0; --i) {
    at[i] = rest % dims_[i];
    rest /= dims_[i];
  }
  int64_t left = static_cast<int64_t>(n);
  while (left > 0) {
    const T* from = data;
    for (int i = 0; i <= last; ++i) from += at[i] * strides_[i];
    const int64_t run = std::min(left, dims_[last] - at[last]);
    if (strides_[last] == 0) {
      fill(out, *from, run);
    } else {
      copy(out, from, run);
    }
    out += run;
    left -= run;
    at[last] = 0;
    for (int i = last - 1; i >= 0; --i) {
      if (++at[i] < dims_[i]) break;
      at[i] = 0;
    }
  }
}

}  // namespace aicf::backend::cpu
