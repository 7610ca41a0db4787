// The safetensors header through a SAX parser: repeated keys are seen, and nothing is built but the entries.
#include "io/safetensors_header.h"

#include <fmt/format.h>

#include <algorithm>
#include <iterator>
#include <nlohmann/json.hpp>
#include <span>

#include "aicf/error.h"
#include "io/bytes.h"

namespace aicf::io {
namespace {

struct DTypeName {
  const char* name;
  DType dtype;
};
constexpr DTypeName kNames[kDTypeCount] = {{"F64", DType::f64}, {"F32", DType::f32},     {"BF16", DType::bf16},
                                           {"F16", DType::f16}, {"I64", DType::i64},     {"I32", DType::i32},
                                           {"U8", DType::u8},   {"BOOL", DType::boolean}};

// Receives the parser's events. What is not expected is refused at once, so nesting never goes deeper than three.
class Handler {
 public:
  Handler(uint64_t data_bytes, const std::string& label) : data_bytes_(data_bytes), label_(label) {}

  SafetensorsHeader take() { return std::move(header_); }

  bool null() { refuse("null"); }
  bool boolean(bool value) { refuse(value ? "true" : "false"); }
  bool number_integer(int64_t value) { refuse(std::to_string(value)); }  // negative, or "-0"
  bool number_float(double, const std::string& text) { refuse(text.substr(0, 40)); }
  template <class Binary>
  bool binary(Binary&) {
    refuse("binary data");
  }

  bool number_unsigned(uint64_t value) {
    if (at_ == At::dims) {
      if (dim_count_ == kMaxRank) refuse_tensor(fmt::format("expected a rank of at most {}, got more", kMaxRank));
      dims_[dim_count_++] = value;
    } else if (at_ == At::offsets && offset_count_ < 2) {
      offsets_[offset_count_++] = value;
    } else {
      refuse(at_ == At::offsets ? "a third" : std::to_string(value));
    }
    return true;
  }

  bool string(std::string& value) {
    if (at_ == At::metadata_value) {
      header_.metadata[key_] = value;
      at_ = At::metadata;
    } else if (at_ == At::dtype) {
      const auto* found = std::find_if(std::begin(kNames), std::end(kNames), [&](auto& n) { return value == n.name; });
      if (found == std::end(kNames)) refuse(quote(value));
      dtype_ = found->dtype;
      at_ = At::tensor;
    } else {
      refuse(quote(value));
    }
    return true;
  }

  bool start_object(size_t) {
    if (at_ == At::start) {
      at_ = At::root;
    } else if (at_ == At::metadata_start) {
      at_ = At::metadata;
    } else if (at_ == At::tensor_start) {
      at_ = At::tensor;
      seen_ = 0;
      dim_count_ = offset_count_ = 0;
    } else {
      refuse("an object");
    }
    return true;
  }

  bool key(std::string& name) {
    if (at_ == At::root) {
      key_ = name;
      const bool metadata = name == kMetadataKey;
      if (metadata && std::exchange(metadata_seen_, true)) repeated(name);
      at_ = metadata ? At::metadata_start : At::tensor_start;
    } else if (at_ == At::metadata) {
      if (header_.metadata.count(name)) repeated(name);
      key_ = name;
      at_ = At::metadata_value;
    } else {
      tensor_key(name);
    }
    return true;
  }

  bool end_object() {
    if (at_ == At::tensor) add_tensor();
    at_ = At::root;  // or the end of the header
    return true;
  }

  bool start_array(size_t) {
    if (at_ == At::dims_start) {
      at_ = At::dims;
    } else if (at_ == At::offsets_start) {
      at_ = At::offsets;
    } else {
      refuse("an array");
    }
    return true;
  }

  bool end_array() {
    if (at_ == At::offsets && offset_count_ != 2) {
      refuse_tensor(fmt::format("expected two data_offsets, got {}", offset_count_));
    }
    at_ = At::tensor;
    return true;
  }

  // The parser's own message may quote megabytes.
  template <class Exception>
  bool parse_error(size_t position, const std::string&, const Exception&) {
    throw Error(fmt::format("{}: expected a JSON header, got malformed JSON at byte {} of it", label_, position));
  }

 private:
  enum class At : uint8_t {
    start,
    root,
    metadata_start,
    metadata,
    metadata_value,
    tensor_start,
    tensor,
    dtype,
    dims_start,
    dims,
    offsets_start,
    offsets
  };
  enum Seen : unsigned { kDType = 1, kShape = 2, kOffsets = 4, kAll = 7 };

  const char* expected() const {
    switch (at_) {
      case At::start:
      case At::metadata_start:
      case At::tensor_start:
        return "an object";
      case At::root:
      case At::metadata:
      case At::tensor:
        return "a key";
      case At::metadata_value:
        return "a string";
      case At::dtype:
        return "dtype F64, F32, BF16, F16, I64, I32, U8 or BOOL";
      case At::dims_start:
        return "shape as an array of integers";
      case At::dims:
        return "an extent from 0 to 2^62";
      case At::offsets_start:
        return "data_offsets as an array of two integers";
      case At::offsets:
        return "two non-negative integers as data_offsets";
    }
    return "";
  }

  [[noreturn]] void refuse(const std::string& got) const {
    const std::string where = at_ == At::start ? "header" : quote(key_);
    throw Error(fmt::format("{}: {}: expected {}, got {}", label_, where, expected(), got));
  }
  [[noreturn]] void refuse_tensor(const std::string& message) const {
    throw Error(fmt::format("{}: tensor {}: {}", label_, quote(key_), message));
  }
  [[noreturn]] void repeated(const std::string& name) const {
    throw Error(fmt::format("{}: expected unique keys, got {} twice", label_, quote(name)));
  }

  void tensor_key(const std::string& name) {
    Seen bit;
    if (name == "dtype") {
      bit = kDType;
      at_ = At::dtype;
    } else if (name == "shape") {
      bit = kShape;
      at_ = At::dims_start;
    } else if (name == "data_offsets") {
      bit = kOffsets;
      at_ = At::offsets_start;
    } else {
      refuse_tensor(fmt::format("expected the keys dtype, shape and data_offsets, got {}", quote(name)));
    }
    if (seen_ & bit) refuse_tensor(fmt::format("expected unique keys, got {} twice", name));
    seen_ |= bit;
  }

  void add_tensor() {
    if (seen_ != kAll) {
      const char* missing = !(seen_ & kDType) ? "dtype" : !(seen_ & kShape) ? "shape" : "data_offsets";
      refuse_tensor(fmt::format("expected the keys dtype, shape and data_offsets, got no {}", missing));
    }
    const std::span<const uint64_t> dims(dims_, dim_count_);
    const uint64_t begin = offsets_[0], end = offsets_[1];
    uint64_t bytes;
    if (!checked_bytes(dims, dtype_, bytes)) {
      refuse_tensor(fmt::format("expected a shape of at most 2^62 bytes, got [{}]", fmt::join(dims, ",")));
    }
    if (begin > end || end > data_bytes_) {
      refuse_tensor(
          fmt::format("expected data_offsets in order and within {} bytes, got [{},{}]", data_bytes_, begin, end));
    }
    if (end - begin != bytes) {
      refuse_tensor(fmt::format("expected {} bytes for {}[{}], got data_offsets [{},{}], {} bytes", bytes,
                                safetensors_name(dtype_), fmt::join(dims, ","), begin, end, end - begin));
    }
    const std::vector<int64_t> extents(dims.begin(), dims.end());
    header_.entries.push_back({key_, {dtype_, Shape(extents)}, begin, end});
  }

  const uint64_t data_bytes_;
  const std::string& label_;
  SafetensorsHeader header_;
  At at_ = At::start;
  bool metadata_seen_ = false;
  std::string key_;  // of the tensor, or of the metadata's string
  // The tensor being read.
  unsigned seen_ = 0;
  DType dtype_ = DType::f32;
  uint64_t dims_[kMaxRank] = {};
  size_t dim_count_ = 0;
  uint64_t offsets_[2] = {};
  size_t offset_count_ = 0;
};

using EntryRefs = std::vector<const SafetensorsEntry*>;

void check_unique(EntryRefs& entries, const std::string& label) {
  std::sort(entries.begin(), entries.end(), [](auto* a, auto* b) { return a->name < b->name; });
  const auto same =
      std::adjacent_find(entries.begin(), entries.end(), [](auto* a, auto* b) { return a->name == b->name; });
  if (same != entries.end()) {
    throw Error(fmt::format("{}: expected unique names, got tensor {} twice", label, quote((*same)->name)));
  }
}

// An empty range covers nothing, wherever it lies; the others must follow one another without gap or overlap.
void check_tiling(EntryRefs& entries, uint64_t data_bytes, const std::string& label) {
  std::sort(entries.begin(), entries.end(), [](auto* a, auto* b) { return a->begin < b->begin; });
  uint64_t covered = 0;
  for (const auto* entry : entries) {
    if (entry->begin == entry->end) continue;
    if (entry->begin != covered) {
      throw Error(fmt::format("{}: tensor {}: expected it to begin at byte {} of the data, got {}: the ranges {}",
                              label, quote(entry->name), covered, entry->begin,
                              entry->begin < covered ? "overlap" : "leave a gap"));
    }
    covered = entry->end;
  }
  if (covered != data_bytes) {
    throw Error(fmt::format("{}: expected {} bytes of data, got {}", label, covered, data_bytes));
  }
}

}  // namespace

const char* safetensors_name(DType dtype) {
  return std::find_if(std::begin(kNames), std::end(kNames), [&](auto& n) { return n.dtype == dtype; })->name;
}

SafetensorsHeader parse_safetensors_header(std::string_view text, uint64_t data_bytes, const std::string& label) {
  if (text.empty() || text[0] != '{') throw Error(fmt::format("{}: expected a header beginning with '{{'", label));
  // The parser takes a zero byte for the end of the text.
  if (const size_t zero = text.find('\0'); zero != std::string_view::npos) {
    throw Error(fmt::format("{}: expected a JSON header, got a zero byte at byte {} of it", label, zero));
  }
  Handler handler(data_bytes, label);
  nlohmann::json::sax_parse(text.begin(), text.end(), &handler);
  SafetensorsHeader header = handler.take();
  EntryRefs entries;
  entries.reserve(header.entries.size());
  for (const auto& entry : header.entries) entries.push_back(&entry);
  check_unique(entries, label);
  check_tiling(entries, data_bytes, label);
  return header;
}

}  // namespace aicf::io
