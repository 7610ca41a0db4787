// Fuzzes the IDX reader: it throws Error or returns a tensor of the size declared; and the same contents, stored or
// compressed, give the same tensor or are both refused. The mutator now and then starts afresh from a file that is
// nearly valid.
#include <zlib.h>

#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <optional>
#include <random>
#include <string>

#include "aicf/error.h"
#include "io/idx.h"

extern "C" size_t LLVMFuzzerMutate(uint8_t* data, size_t size, size_t max_size);

namespace {

void require(bool condition) {
  if (!condition) std::abort();
}

std::string gzip(std::span<const uint8_t> plain) {
  z_stream stream = {};
  require(deflateInit2(&stream, 1, Z_DEFLATED, 15 + 16, 8, Z_DEFAULT_STRATEGY) == Z_OK);
  std::string packed(deflateBound(&stream, plain.size()), '\0');
  stream.next_in = const_cast<Bytef*>(plain.data());
  stream.avail_in = static_cast<uInt>(plain.size());
  stream.next_out = reinterpret_cast<Bytef*>(packed.data());
  stream.avail_out = static_cast<uInt>(packed.size());
  require(deflate(&stream, Z_FINISH) == Z_STREAM_END);
  packed.resize(stream.total_out);
  deflateEnd(&stream);
  return packed;
}

std::optional<aicf::Tensor> read(std::span<const std::byte> bytes) {
  try {
    aicf::Tensor tensor = aicf::io::read_idx(aicf::io::MemoryBytes("fuzz", bytes));
    require(tensor.bytes() == tensor.type().bytes());
    return tensor;
  } catch (const aicf::Error& error) {
    require(std::strchr(error.what(), '\n') == nullptr);
    return std::nullopt;
  }
}

// Small extents and data to fit, each off now and then.
std::string generate(std::minstd_rand& random) {
  static constexpr uint8_t kTypes[] = {0x08, 0x09, 0x0B, 0x0C, 0x0D, 0x0E};
  static constexpr size_t kSizes[] = {1, 1, 2, 4, 4, 8};
  const size_t type = random() % std::size(kTypes), rank = random() % 10;
  std::string file = {'\0', '\0', static_cast<char>(kTypes[type]), static_cast<char>(rank)};
  size_t bytes = kSizes[type];
  for (size_t i = 0; i < rank; ++i) {
    const uint8_t extent = static_cast<uint8_t>(random() % 4);
    bytes *= extent;
    const char high = random() % 40 == 0 ? static_cast<char>(random()) : '\0';
    file += {high, '\0', '\0', static_cast<char>(extent)};
  }
  return file + std::string(bytes + (random() % 20 == 0 ? 1 : 0), '\1');
}

bool is_gzip(std::span<const uint8_t> bytes) { return bytes.size() >= 2 && bytes[0] == 0x1f && bytes[1] == 0x8b; }

}  // namespace

extern "C" size_t LLVMFuzzerCustomMutator(uint8_t* bytes, size_t size, size_t max_size, unsigned int seed) {
  std::minstd_rand random(seed);
  if (random() % 16 != 0) return LLVMFuzzerMutate(bytes, size, max_size);
  std::string file = generate(random);
  if (random() % 4 == 0) file = gzip({reinterpret_cast<const uint8_t*>(file.data()), file.size()});
  const size_t kept = std::min(file.size(), max_size);
  std::memcpy(bytes, file.data(), kept);
  return kept;
}

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* bytes, size_t size) {
  const std::span plain(bytes, size);
  const std::optional<aicf::Tensor> stored = read(std::as_bytes(plain));
  if (is_gzip(plain)) return 0;
  const std::string packed = gzip(plain);
  const std::optional<aicf::Tensor> compressed = read(std::as_bytes(std::span(packed)));
  require(stored == compressed);
  return 0;
}
