// Fuzzes the safetensors reader: it throws Error or returns tensors that cover the data exactly. The mutator keeps the
// header length right most of the time, and now and then starts afresh from a file that is nearly valid.
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <random>
#include <set>
#include <string>

#include "aicf/error.h"
#include "aicf/safetensors.h"

extern "C" size_t LLVMFuzzerMutate(uint8_t* data, size_t size, size_t max_size);

namespace {

using Random = std::minstd_rand;

void require(bool condition) {
  if (!condition) std::abort();
}

std::string assemble(const std::string& header, const std::string& data) {
  const uint64_t length = header.size();
  std::string file(sizeof(length), '\0');
  std::memcpy(file.data(), &length, sizeof(length));
  return file + header + data;
}

// A file of up to four tensors, in which each number is off now and then.
std::string generate(Random& random) {
  static constexpr struct {
    const char* name;
    uint64_t size;
  } kDTypes[] = {{"F64", 8}, {"F32", 4}, {"BF16", 2}, {"F16", 2}, {"I64", 8},
                 {"I32", 4}, {"U8", 1},  {"BOOL", 1}, {"I16", 2}};
  static constexpr const char* kOdd[] = {
      "-1", "0", "1e300", "0.5", "4294967296", "18446744073709551615", "4611686018427387904", "true", "[]"};
  const auto odd = [&](uint64_t right) {
    return random() % 40 == 0 ? std::string(kOdd[random() % std::size(kOdd)]) : std::to_string(right);
  };
  std::string header = "{";
  if (random() % 3 == 0) header += R"("__metadata__":{"k":"v"})";
  uint64_t offset = 0;
  for (size_t tensors = random() % 5; tensors > 0; --tensors) {
    const auto& dtype = kDTypes[random() % std::size(kDTypes)];
    std::string shape;
    uint64_t bytes = dtype.size;
    for (size_t rank = random() % 4; rank > 0; --rank) {
      const uint64_t extent = random() % 4;
      bytes *= extent;
      shape += (shape.empty() ? "" : ",") + odd(extent);
    }
    if (header.size() > 1) header += ',';
    header += "\"" + std::string(1, static_cast<char>('a' + random() % 26)) + R"(":{"dtype":")" + dtype.name +
              R"(","shape":[)" + shape + R"(],"data_offsets":[)" + odd(offset) + "," + odd(offset + bytes) + "]}";
    offset += bytes;
  }
  return assemble(header + "}", std::string(offset, '\1'));
}

}  // namespace

extern "C" size_t LLVMFuzzerCustomMutator(uint8_t* bytes, size_t size, size_t max_size, unsigned int seed) {
  Random random(seed);
  uint64_t length = 0;
  if (size >= sizeof(length)) std::memcpy(&length, bytes, sizeof(length));
  std::string file;
  if (random() % 16 == 0) return LLVMFuzzerMutate(bytes, size, max_size);
  if (size < sizeof(length) || length > size - sizeof(length) || random() % 16 == 0) {
    file = generate(random);
  } else {
    std::string header(reinterpret_cast<char*>(bytes) + sizeof(length), length);
    const std::string data(reinterpret_cast<char*>(bytes) + sizeof(length) + length, size - sizeof(length) - length);
    const size_t room = header.size() + 64;
    header.resize(room);
    header.resize(LLVMFuzzerMutate(reinterpret_cast<uint8_t*>(header.data()), length, room));
    file = assemble(header, data);
  }
  const size_t kept = std::min(file.size(), max_size);
  std::memcpy(bytes, file.data(), kept);
  return kept;
}

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* bytes, size_t size) {
  aicf::Safetensors read;
  try {
    read = aicf::parse_safetensors({reinterpret_cast<const std::byte*>(bytes), size}, "fuzz");
  } catch (const aicf::Error& error) {
    require(std::strchr(error.what(), '\n') == nullptr);
    return 0;
  }
  uint64_t length;
  std::memcpy(&length, bytes, sizeof(length));
  size_t covered = sizeof(length) + length;
  std::set<std::string> names;
  for (const auto& [name, tensor] : read.tensors) {
    require(names.insert(name).second);
    require(tensor.bytes() == tensor.type().bytes());
    covered += tensor.bytes();
  }
  require(covered == size);
  return 0;
}
