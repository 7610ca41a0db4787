// Names of another program's tensors, mapped to ours.
#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <optional>

#include "aicf/error.h"
#include "aicf/safetensors.h"
#include "io/bytes.h"

namespace aicf {
namespace {

// The new name, or none when the entry is not about this one.
std::optional<std::string> renamed(const std::string& name, const std::string& from, const std::string& to) {
  const size_t star = from.find('*');
  if (star == std::string::npos) return name == from ? std::optional(to) : std::nullopt;
  const size_t after = from.size() - star - 1;
  if (name.size() < star + after || name.compare(0, star, from, 0, star) != 0 ||
      name.compare(name.size() - after, after, from, star + 1, after) != 0) {
    return std::nullopt;
  }
  std::string result = to;
  if (const size_t place = to.find('*'); place != std::string::npos) {
    result.replace(place, 1, name, star, name.size() - star - after);
  }
  return result;
}

void check(const NameMap& names) {
  const auto stars = [](const std::string& text) { return std::count(text.begin(), text.end(), '*'); };
  for (const auto& [from, to] : names) {
    if (stars(from) > 1 || stars(to) > stars(from)) {
      throw Error(
          fmt::format("rename_tensors: {} -> {}: expected at most one *, and one in the new name only with one "
                      "in the old",
                      io::quote(from), io::quote(to)));
    }
  }
}

}  // namespace

NamedTensors rename_tensors(NamedTensors tensors, const NameMap& names) {
  check(names);
  std::vector<bool> used(names.size(), false);
  std::map<std::string, std::string> taken;  // new name → old one
  NamedTensors result;
  for (auto& entry : tensors) {
    const std::string& name = entry.first;
    std::string now = name;
    bool kept = true;
    for (size_t i = 0; i < names.size(); ++i) {
      const std::optional<std::string> other = renamed(name, names[i].first, names[i].second);
      if (!other) continue;
      used[i] = true;
      kept = !names[i].second.empty();
      now = *other;
      break;
    }
    if (!kept) continue;
    const auto [other, fresh] = taken.emplace(now, name);
    if (!fresh) {
      throw Error(fmt::format("rename_tensors: {} and {} would both be named {}", io::quote(other->second),
                              io::quote(name), io::quote(now)));
    }
    result.emplace_back(std::move(now), std::move(entry.second));
  }
  for (size_t i = 0; i < names.size(); ++i) {
    if (!used[i]) throw Error(fmt::format("rename_tensors: no tensor is named {}", io::quote(names[i].first)));
  }
  return result;
}

}  // namespace aicf
