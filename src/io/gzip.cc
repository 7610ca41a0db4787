// gzip through zlib's inflate.
#include "io/gzip.h"

#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <new>

#include "aicf/error.h"

namespace aicf::io {

bool is_gzip(const Bytes& bytes) {
  if (bytes.size() < 2) return false;
  std::byte magic[2];
  bytes.read(0, magic);
  return magic[0] == std::byte{0x1f} && magic[1] == std::byte{0x8b};
}

GzipReader::GzipReader(const Bytes& bytes) : bytes_(bytes), input_(size_t{1} << 16) {
  constexpr int kGzipOnly = 15 + 16;  // zlib.h, inflateInit2: the largest window, and a gzip header
  if (inflateInit2(&stream_, kGzipOnly) != Z_OK) throw std::bad_alloc();
}

GzipReader::~GzipReader() { inflateEnd(&stream_); }

void GzipReader::refill() {
  const size_t n = std::min<uint64_t>(input_.size(), bytes_.size() - offset_);
  bytes_.read(offset_, std::span(input_).first(n));
  offset_ += n;
  stream_.next_in = reinterpret_cast<Bytef*>(input_.data());
  stream_.avail_in = static_cast<uInt>(n);
}

size_t GzipReader::read(std::span<std::byte> to) {
  size_t done = 0;
  while (done < to.size()) {
    if (stream_.avail_in == 0) refill();
    if (stream_.avail_in == 0) {
      if (member_ended_) break;
      throw Error(fmt::format("{}: expected more gzip data, got the end of the file after {} bytes", bytes_.label(),
                              bytes_.size()));
    }
    if (member_ended_) {
      constexpr Bytef kFirstMagic = 0x1f;
      if (*stream_.next_in != kFirstMagic) {
        throw Error(fmt::format("{}: expected the end of the file after the gzip data, got more", bytes_.label()));
      }
      inflateReset(&stream_);
    }
    const size_t room = std::min<size_t>(to.size() - done, std::numeric_limits<uInt>::max());
    stream_.next_out = reinterpret_cast<Bytef*>(to.data() + done);
    stream_.avail_out = static_cast<uInt>(room);
    const int status = inflate(&stream_, Z_NO_FLUSH);
    done += room - stream_.avail_out;
    member_ended_ = status == Z_STREAM_END;
    if (status == Z_MEM_ERROR) throw std::bad_alloc();
    if (status != Z_OK && status != Z_STREAM_END) {
      throw Error(fmt::format("{}: expected gzip data, got corrupt data ({})", bytes_.label(),
                              stream_.msg ? stream_.msg : "unknown format"));
    }
  }
  return done;
}

}  // namespace aicf::io
