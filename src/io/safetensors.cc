// Reading and writing safetensors files.
#include "io/safetensors.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <set>
#include <string_view>

#include "aicf/error.h"
#include "io/safetensors_header.h"

namespace aicf {
namespace {

static_assert(std::endian::native == std::endian::little, "the format's numbers are little-endian, read as they are");

constexpr size_t kLengthBytes = 8;

void check_booleans(const Tensor& tensor, const std::string& name, const std::string& label) {
  const auto* bytes = static_cast<const unsigned char*>(tensor.data());
  const auto* bad = std::find_if(bytes, bytes + tensor.bytes(), [](unsigned char b) { return b > 1; });
  if (bad != bytes + tensor.bytes()) {
    throw Error(fmt::format("{}: tensor {}: expected BOOL bytes 0 or 1, got {} at element {}", label, io::quote(name),
                            *bad, bad - bytes));
  }
}

std::string header_text(const std::string& label, const NamedTensors& tensors,
                        const std::map<std::string, std::string>& metadata) {
  std::string text = "{";
  if (!metadata.empty()) {
    text += fmt::format("\"{}\":{{", io::kMetadataKey);
    for (const auto& [key, value] : metadata) {
      if (text.back() != '{') text += ',';
      text += io::json_string(key, label + ": metadata key") + ":" +
              io::json_string(value, label + ": metadata " + io::quote(key));
    }
    text += '}';
  }
  std::set<std::string_view> names = {io::kMetadataKey};
  uint64_t offset = 0;
  for (const auto& [name, tensor] : tensors) {
    if (!names.insert(name).second) {
      throw Error(
          fmt::format("{}: expected unique names other than {}, got {}", label, io::kMetadataKey, io::quote(name)));
    }
    if (text.size() > 1) text += ',';
    const uint64_t end = offset + tensor.bytes();
    text += fmt::format("{}:{{\"dtype\":\"{}\",\"shape\":[{}],\"data_offsets\":[{},{}]}}",
                        io::json_string(name, label + ": tensor name"), io::safetensors_name(tensor.dtype()),
                        fmt::join(tensor.shape().dims(), ","), offset, end);
    offset = end;
  }
  text += '}';
  text.append((kLengthBytes - text.size() % kLengthBytes) % kLengthBytes, ' ');
  if (text.size() > kMaxSafetensorsHeader) {
    throw Error(
        fmt::format("{}: expected a header of at most {} bytes, got {}", label, kMaxSafetensorsHeader, text.size()));
  }
  return text;
}

}  // namespace

Safetensors io::read_safetensors(const Bytes& bytes) {
  const std::string& label = bytes.label();
  uint64_t length;
  if (bytes.size() < kLengthBytes) {
    throw Error(fmt::format("{}: expected at least {} bytes, got {}", label, kLengthBytes, bytes.size()));
  }
  bytes.read(0, std::as_writable_bytes(std::span(&length, 1)));
  const uint64_t most = std::min(kMaxSafetensorsHeader, bytes.size() - kLengthBytes);
  if (length > most) {
    throw Error(fmt::format("{}: expected a header of at most {} bytes in a file of {}, got the length {}", label, most,
                            bytes.size(), length));
  }
  const uint64_t data = kLengthBytes + length;
  SafetensorsHeader header;
  {
    std::string text(length, '\0');
    bytes.read(kLengthBytes, std::as_writable_bytes(std::span(text)));
    header = parse_safetensors_header(text, bytes.size() - data, label);
  }
  Safetensors result;
  result.metadata = std::move(header.metadata);
  result.tensors.reserve(header.entries.size());
  for (auto& entry : header.entries) {
    Tensor tensor(entry.type);
    bytes.read(data + entry.begin, {static_cast<std::byte*>(tensor.data()), tensor.bytes()});
    if (tensor.dtype() == DType::boolean) check_booleans(tensor, entry.name, label);
    result.tensors.emplace_back(std::move(entry.name), std::move(tensor));
  }
  return result;
}

Safetensors read_safetensors(const std::string& path) {
  return io::read_safetensors(io::FileBytes("read_safetensors", path));
}

Safetensors parse_safetensors(std::span<const std::byte> bytes, const std::string& name) {
  return io::read_safetensors(io::MemoryBytes(io::label_of("parse_safetensors", name), bytes));
}

void write_safetensors(const std::string& path, const NamedTensors& tensors,
                       const std::map<std::string, std::string>& metadata) {
  const std::string label = io::label_of("write_safetensors", path);
  const std::string text = header_text(label, tensors, metadata);
  const uint64_t length = text.size();
  std::vector<std::span<const std::byte>> parts = {std::as_bytes(std::span(&length, 1)),
                                                   std::as_bytes(std::span(text))};
  for (const auto& [name, tensor] : tensors) {
    parts.emplace_back(static_cast<const std::byte*>(tensor.data()), tensor.bytes());
  }
  io::write_file_atomically(label, path, parts);
}

}  // namespace aicf
