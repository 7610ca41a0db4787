// Sequential reading of a gzip file's contents in bounded memory.
#pragma once

#include <zlib.h>

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "io/bytes.h"

namespace aicf::io {

// Deflate spends at least 2 bits on 258 bytes (RFC 1951: the longest match, codes of one bit each), so it shrinks by no
// more.
inline constexpr uint64_t kMaxInflation = 1032;

bool is_gzip(const Bytes& bytes);

// REQUIRES: the bytes outlive it.
class GzipReader {
 public:
  explicit GzipReader(const Bytes& bytes);
  ~GzipReader();
  GzipReader(const GzipReader&) = delete;
  GzipReader& operator=(const GzipReader&) = delete;

  // Fills `to` as far as the contents go and returns how far. Members are joined; checksums and lengths are checked.
  // Throws Error when the file is corrupt or cut off.
  size_t read(std::span<std::byte> to);

 private:
  void refill();

  const Bytes& bytes_;
  uint64_t offset_ = 0;  // of the next byte to load
  std::vector<std::byte> input_;
  z_stream stream_ = {};
  bool member_ended_ = false;
};

}  // namespace aicf::io
