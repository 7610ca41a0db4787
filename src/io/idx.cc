// The IDX format: two zero bytes, an element type, a rank, big-endian extents, big-endian elements.
#include "io/idx.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <optional>

#include "aicf/error.h"
#include "io/gzip.h"

namespace aicf {
namespace {

constexpr size_t kMagicBytes = 4;

// The contents in order, whether stored or compressed.
class Contents {
 public:
  explicit Contents(const io::Bytes& bytes) : bytes_(bytes) {
    if (io::is_gzip(bytes)) gzip_.emplace(bytes);
  }

  bool compressed() const { return gzip_.has_value(); }

  size_t read(std::span<std::byte> to) {
    if (gzip_) return gzip_->read(to);
    const size_t n = std::min<uint64_t>(to.size(), bytes_.size() - offset_);
    bytes_.read(offset_, to.first(n));
    offset_ += n;
    return n;
  }

  void read_exactly(std::span<std::byte> to, const char* what) {
    const size_t got = read(to);
    if (got != to.size()) {
      throw Error(fmt::format("{}: expected {} bytes of {}, got {}", bytes_.label(), to.size(), what, got));
    }
  }

 private:
  const io::Bytes& bytes_;
  std::optional<io::GzipReader> gzip_;
  uint64_t offset_ = 0;
};

DType element_type(unsigned code, const std::string& label) {
  switch (code) {
    case 0x08:
      return DType::u8;
    case 0x0C:
      return DType::i32;
    case 0x0D:
      return DType::f32;
    case 0x0E:
      return DType::f64;
    case 0x09:
    case 0x0B:
      throw Error(fmt::format("{}: expected elements of type u8, i32, f32 or f64, got {}, which AICF has no dtype for",
                              label, code == 0x09 ? "i8" : "i16"));
    default:
      throw Error(fmt::format("{}: expected element type 8 (u8), 12 (i32), 13 (f32) or 14 (f64), got {}", label, code));
  }
}

// Refuses, before anything is allocated, data the file cannot hold or does not hold.
void check_size(uint64_t header, uint64_t data, const io::Bytes& bytes, bool compressed) {
  if (!compressed) {
    if (bytes.size() != header + data) {
      throw Error(fmt::format("{}: expected {} bytes ({} of header, {} of data), got {}", bytes.label(), header + data,
                              header, data, bytes.size()));
    }
    return;
  }
  const uint64_t most = std::min(bytes.size(), kMaxInflatedIdxBytes) * io::kMaxInflation;
  if (header + data > std::min(most, kMaxInflatedIdxBytes)) {
    throw Error(fmt::format("{}: expected at most {} bytes from a gzip file of {}, got a header that declares {}",
                            bytes.label(), std::min(most, kMaxInflatedIdxBytes), bytes.size(), header + data));
  }
}

void swap_bytes(Tensor& tensor) {
  const size_t size = size_of(tensor.dtype());
  auto* bytes = static_cast<std::byte*>(tensor.data());
  if (size == 1) return;
  for (size_t i = 0; i < tensor.bytes(); i += size) std::reverse(bytes + i, bytes + i + size);
}

}  // namespace

Tensor io::read_idx(const Bytes& bytes) {
  const std::string& label = bytes.label();
  Contents contents(bytes);
  std::array<std::byte, kMagicBytes> magic;
  contents.read_exactly(magic, "header");
  if (magic[0] != std::byte{0} || magic[1] != std::byte{0}) {
    throw Error(fmt::format("{}: expected an IDX file beginning with two zero bytes, got {:#04x} {:#04x}", label,
                            std::to_integer<int>(magic[0]), std::to_integer<int>(magic[1])));
  }
  const DType dtype = element_type(std::to_integer<unsigned>(magic[2]), label);
  const size_t rank = std::to_integer<size_t>(magic[3]);
  if (rank < 1 || rank > static_cast<size_t>(kMaxRank)) {
    throw Error(fmt::format("{}: expected a rank from 1 to {}, got {}", label, kMaxRank, rank));
  }
  std::array<std::byte, 4 * kMaxRank> raw;
  contents.read_exactly(std::span(raw).first(4 * rank), "extents");
  std::array<uint64_t, kMaxRank> extents = {};
  for (size_t i = 0; i < 4 * rank; ++i) extents[i / 4] = extents[i / 4] << 8 | std::to_integer<uint64_t>(raw[i]);
  const auto dims = std::span<const uint64_t>(extents).first(rank);

  uint64_t data;
  if (!checked_bytes(dims, dtype, data)) {
    throw Error(fmt::format("{}: expected extents of at most 2^62 bytes, got [{}]", label, fmt::join(dims, ",")));
  }
  check_size(kMagicBytes + 4 * rank, data, bytes, contents.compressed());
  const std::vector<int64_t> shape(dims.begin(), dims.end());
  Tensor tensor(TensorType{dtype, Shape(shape)});
  contents.read_exactly({static_cast<std::byte*>(tensor.data()), tensor.bytes()}, "data");
  std::byte beyond;
  if (contents.read({&beyond, 1}) != 0)
    throw Error(fmt::format("{}: expected {} bytes of data, got more", label, data));
  swap_bytes(tensor);
  return tensor;
}

Tensor read_idx(const std::string& path) { return io::read_idx(io::FileBytes("read_idx", path)); }

}  // namespace aicf
