// Compile-time attributes of ops and externals: a small map sorted by name.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include "aicf/dtype.h"

namespace aicf::ir {

using AttrValue = std::variant<bool, int64_t, double, std::string, std::vector<int64_t>, DType>;

// Text: true/false, 3, 0x1.8p+1, "text", [0,2], f32 (floats always in hex, so the bits survive).
std::string to_string(const AttrValue& value);

class Attrs {
 public:
  using Entry = std::pair<std::string, AttrValue>;

  Attrs() = default;
  Attrs(std::initializer_list<Entry> entries);

  void set(std::string_view name, AttrValue value);
  bool erase(std::string_view name);
  const AttrValue* find(std::string_view name) const;
  bool has(std::string_view name) const { return find(name) != nullptr; }

  // Return the attribute, or `fallback` when it is absent. Throw Error when it has another type.
  bool get_bool(std::string_view name, bool fallback = false) const;
  int64_t get_int(std::string_view name, int64_t fallback = 0) const;
  double get_float(std::string_view name, double fallback = 0) const;
  std::string get_string(std::string_view name, std::string_view fallback = {}) const;
  std::vector<int64_t> get_ints(std::string_view name) const;  // empty when absent
  DType get_dtype(std::string_view name, DType fallback = DType::f32) const;

  bool empty() const { return entries_.empty(); }
  size_t size() const { return entries_.size(); }
  auto begin() const { return entries_.begin(); }
  auto end() const { return entries_.end(); }
  bool operator==(const Attrs&) const = default;

 private:
  std::vector<Entry> entries_;  // sorted by name
};

// "{a=1, tb=true}", or "" when there are none.
std::string to_string(const Attrs& attrs);

}  // namespace aicf::ir
