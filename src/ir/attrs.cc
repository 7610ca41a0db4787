#include "ir/attrs.h"

#include <algorithm>

#include "aicf/error.h"
#include "ir/literal.h"

namespace aicf::ir {
namespace {

const char* kind_name(const AttrValue& value) {
  constexpr const char* kNames[] = {"a bool", "an integer", "a float", "a text", "a list of integers", "a dtype"};
  return kNames[value.index()];
}

template <class T>
T get(const Attrs& attrs, std::string_view name, T fallback) {
  const AttrValue* value = attrs.find(name);
  if (value == nullptr) return fallback;
  if (const T* held = std::get_if<T>(value)) return *held;
  throw Error("attribute " + std::string(name) + ": expected " + kind_name(AttrValue(T())) + ", got " +
              to_string(*value));
}

std::string quoted(const std::string& text) {
  std::string out = "\"";
  for (char c : text) {
    if (c == '"' || c == '\\') out += '\\';
    if (c == '\n') {
      out += "\\n";
    } else {
      out += c;
    }
  }
  return out + "\"";
}

}  // namespace

std::string to_string(const AttrValue& value) {
  struct Visitor {
    std::string operator()(bool v) const { return v ? "true" : "false"; }
    std::string operator()(int64_t v) const { return std::to_string(v); }
    std::string operator()(double v) const { return element_text(DType::f64, &v, 0); }
    std::string operator()(const std::string& v) const { return quoted(v); }
    std::string operator()(const std::vector<int64_t>& v) const {
      std::string out = "[";
      for (size_t i = 0; i < v.size(); ++i) out += (i ? "," : "") + std::to_string(v[i]);
      return out + "]";
    }
    std::string operator()(DType v) const { return std::string(name_of(v)); }
  };
  return std::visit(Visitor{}, value);
}

Attrs::Attrs(std::initializer_list<Entry> entries) {
  for (const Entry& entry : entries) set(entry.first, entry.second);
}

void Attrs::set(std::string_view name, AttrValue value) {
  auto it = std::lower_bound(entries_.begin(), entries_.end(), name,
                             [](const Entry& e, std::string_view n) { return e.first < n; });
  if (it != entries_.end() && it->first == name) {
    it->second = std::move(value);
  } else {
    entries_.insert(it, Entry(std::string(name), std::move(value)));
  }
}

bool Attrs::erase(std::string_view name) {
  return std::erase_if(entries_, [&](const Entry& e) { return e.first == name; }) > 0;
}

const AttrValue* Attrs::find(std::string_view name) const {
  for (const Entry& entry : entries_) {
    if (entry.first == name) return &entry.second;
  }
  return nullptr;
}

bool Attrs::get_bool(std::string_view name, bool fallback) const { return get<bool>(*this, name, fallback); }
int64_t Attrs::get_int(std::string_view name, int64_t fallback) const { return get<int64_t>(*this, name, fallback); }
double Attrs::get_float(std::string_view name, double fallback) const { return get<double>(*this, name, fallback); }
std::string Attrs::get_string(std::string_view name, std::string_view fallback) const {
  return get<std::string>(*this, name, std::string(fallback));
}
std::vector<int64_t> Attrs::get_ints(std::string_view name) const { return get<std::vector<int64_t>>(*this, name, {}); }
DType Attrs::get_dtype(std::string_view name, DType fallback) const { return get<DType>(*this, name, fallback); }

std::string to_string(const Attrs& attrs) {
  if (attrs.empty()) return "";
  std::string out = "{";
  for (const auto& [name, value] : attrs) {
    if (out.size() > 1) out += ", ";
    out += name + "=" + to_string(value);
  }
  return out + "}";
}

}  // namespace aicf::ir
