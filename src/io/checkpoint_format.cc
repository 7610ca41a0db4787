// Metadata keys that begin with "aicf." are the format's, all others the caller's notes.
#include "io/checkpoint_format.h"

#include <fmt/format.h>
#include <zlib.h>

#include <algorithm>
#include <charconv>
#include <string_view>
#include <utility>

#include "aicf/error.h"
#include "io/bytes.h"

namespace aicf::io {
namespace {

constexpr std::string_view kOurs = "aicf.";
constexpr std::string_view kKernel = "aicf.kernel.";
constexpr const char* kChecksum = "aicf.checksum";
constexpr const char* kStep = "aicf.step";
constexpr const char* kStructure = "aicf.structure";
constexpr const char* kBackend = "aicf.backend";
constexpr const char* kSeed = "aicf.data.seed";
constexpr const char* kEpoch = "aicf.data.epoch";
constexpr const char* kPosition = "aicf.data.position";
constexpr const char* kExamples = "aicf.data.examples";
constexpr const char* kPositionKeys[] = {kSeed, kEpoch, kPosition, kExamples};
constexpr std::string_view kFormat = "1";
constexpr uint64_t kMost = uint64_t{1} << 62;

using Metadata = std::map<std::string, std::string>;

class Crc {
 public:
  void add(std::string_view text) {
    const uint64_t size = text.size();  // before the text, so that two texts cannot pass for one
    add(&size, sizeof size);
    add(text.data(), text.size());
  }
  void add(const void* data, size_t size) {
    if (size > 0) value_ = crc32_z(value_, static_cast<const Bytef*>(data), size);
  }
  std::string text() const { return fmt::format("{:08x}", value_); }

 private:
  uLong value_ = crc32_z(0, nullptr, 0);
};

std::string checksum(const Metadata& metadata, const NamedTensors& tensors) {
  Crc crc;
  for (const auto& [key, value] : metadata) {
    if (key == kChecksum) continue;
    crc.add(key);
    crc.add(value);
  }
  for (const auto& [name, tensor] : tensors) {
    crc.add(name);
    crc.add(to_string(tensor.type()));
    crc.add(tensor.data(), tensor.bytes());
  }
  return crc.text();
}

class Reader {
 public:
  Reader(const Metadata& metadata, const std::string& label) : metadata_(metadata), label_(label) {}

  const std::string* find(const char* key) const {
    const auto it = metadata_.find(key);
    return it == metadata_.end() ? nullptr : &it->second;
  }
  std::optional<uint64_t> number(const char* key, uint64_t most, int base = 10) const {
    const std::string* text = find(key);
    if (text == nullptr) return std::nullopt;
    uint64_t value = 0;
    const char* end = text->data() + text->size();
    const auto [stop, error] = std::from_chars(text->data(), end, value, base);
    if (error != std::errc() || stop != end || value > most) {
      throw Error(fmt::format("{}: metadata {}: expected {} number of at most {}, got {}", label_, key,
                              base == 16 ? "a hexadecimal" : "a", most, quote(*text)));
    }
    return value;
  }
  std::optional<DataPosition> data() const {
    const auto given = [&](const char* key) { return find(key) != nullptr; };
    if (std::none_of(std::begin(kPositionKeys), std::end(kPositionKeys), given)) return std::nullopt;
    for (const char* key : kPositionKeys) {
      if (!given(key)) throw Error(fmt::format("{}: metadata {} is missing", label_, key));
    }
    DataPosition data;
    data.next.seed = *number(kSeed, UINT64_MAX);
    data.next.epoch = static_cast<int64_t>(*number(kEpoch, kMost));
    data.next.position = static_cast<int64_t>(*number(kPosition, kMost));
    data.examples = static_cast<int64_t>(*number(kExamples, kMost));
    return data;
  }
  // The format's keys are known, all of them: what a later one means cannot be guessed.
  void check_known() const {
    for (const auto& [key, value] : metadata_) {
      if (!key.starts_with(kOurs) || key.starts_with(kKernel)) continue;
      const auto same = [&key = key](std::string_view known) { return key == known; };
      const bool known = std::any_of(std::begin(kPositionKeys), std::end(kPositionKeys), same) ||
                         std::any_of(std::begin(kOthers), std::end(kOthers), same);
      if (!known) throw Error(fmt::format("{}: metadata {}: not a key of a checkpoint", label_, quote(key)));
    }
  }

 private:
  static constexpr const char* kOthers[] = {kCheckpointVersion, kChecksum, kStep, kStructure, kBackend};
  const Metadata& metadata_;
  const std::string& label_;
};

}  // namespace

Metadata checkpoint_metadata(const Checkpoint& c, const std::string& label) {
  Metadata metadata = {{kCheckpointVersion, std::string(kFormat)}};
  for (const auto& [key, value] : c.notes) {
    if (key.starts_with(kOurs)) {
      throw Error(fmt::format("{}: note {}: expected a key that does not begin with {}", label, quote(key), kOurs));
    }
    metadata.emplace(key, value);
  }
  const auto number = [&](const char* key, int64_t value) {
    if (value < 0 || static_cast<uint64_t>(value) > kMost) {
      throw Error(fmt::format("{}: {}: expected a number from 0 to 2^62, got {}", label, key, value));
    }
    metadata.emplace(key, std::to_string(value));
  };
  if (c.step) number(kStep, *c.step);
  if (c.data) {
    metadata.emplace(kSeed, std::to_string(c.data->next.seed));
    number(kEpoch, c.data->next.epoch);
    number(kPosition, c.data->next.position);
    number(kExamples, c.data->examples);
  }
  if (c.structure) metadata.emplace(kStructure, fmt::format("{:016x}", *c.structure));
  if (!c.backend.empty()) metadata.emplace(kBackend, c.backend);
  for (const auto& [key, variant] : c.kernels) metadata.emplace(std::string(kKernel) + key, variant);
  metadata.emplace(kChecksum, checksum(metadata, c.tensors));
  return metadata;
}

Checkpoint checkpoint_of(Safetensors file, const std::string& label, std::span<const std::string> waive) {
  const Reader reader(file.metadata, label);
  const std::string* version = reader.find(kCheckpointVersion);
  if (version == nullptr) {
    throw Error(fmt::format("{}: not a checkpoint: its metadata has no {}", label, kCheckpointVersion),
                "Program::load takes tensors from any safetensors file");
  }
  if (*version != kFormat) {
    const std::string message =
        fmt::format("{}: expected a checkpoint of version {}, got {}", label, kFormat, quote(*version));
    if (std::strtol(version->c_str(), nullptr, 10) > std::strtol(kFormat.data(), nullptr, 10))
      throw LaterVersion(message);
    throw Error(message);
  }
  if (std::find(waive.begin(), waive.end(), kWaiveChecksum) == waive.end()) {
    const std::string* expected = reader.find(kChecksum);
    if (expected == nullptr) throw Error(fmt::format("{}: metadata {} is missing", label, kChecksum));
    const std::string got = checksum(file.metadata, file.tensors);
    if (*expected != got) {
      throw Error(fmt::format("{}: expected contents of checksum {}, got {}: the file is damaged", label,
                              quote(*expected), got));
    }
  }
  reader.check_known();
  Checkpoint c;
  if (const auto step = reader.number(kStep, kMost)) c.step = static_cast<int64_t>(*step);
  c.data = reader.data();
  c.structure = reader.number(kStructure, UINT64_MAX, 16);
  if (const std::string* backend = reader.find(kBackend)) c.backend = *backend;
  for (const auto& [key, value] : file.metadata) {
    if (key.starts_with(kKernel)) {
      c.kernels.emplace(key.substr(kKernel.size()), value);
    } else if (!key.starts_with(kOurs)) {
      c.notes.emplace(key, value);
    }
  }
  c.tensors = std::move(file.tensors);
  return c;
}

}  // namespace aicf::io
