#include "aicf/suggest.h"

#include <algorithm>
#include <cstdlib>
#include <vector>

namespace aicf::base {
namespace {

constexpr size_t kMinLength = 3;   // any two names of one letter are one edit apart
constexpr size_t kMaxLength = 80;  // longer names are not typing slips, and the distance is quadratic

// Optimal string alignment distance: Levenshtein's, with a swap of two neighbours counted once.
size_t edit_distance(std::string_view a, std::string_view b) {
  std::vector<size_t> before(b.size() + 1), previous(b.size() + 1), row(b.size() + 1);
  for (size_t j = 0; j <= b.size(); ++j) row[j] = j;
  for (size_t i = 1; i <= a.size(); ++i) {
    before.swap(previous);
    previous.swap(row);
    row[0] = i;
    for (size_t j = 1; j <= b.size(); ++j) {
      row[j] = std::min({previous[j] + 1, row[j - 1] + 1, previous[j - 1] + (a[i - 1] != b[j - 1])});
      if (i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1]) row[j] = std::min(row[j], before[j - 2] + 1);
    }
  }
  return row[b.size()];
}

}  // namespace

std::string nearest(std::string_view name, std::span<const std::string> candidates) {
  if (name.size() < kMinLength || name.size() > kMaxLength) return {};
  size_t best = name.size() / 3 + 1;
  const std::string* found = nullptr;
  for (const std::string& candidate : candidates) {
    const size_t lengths = std::max(candidate.size(), name.size()) - std::min(candidate.size(), name.size());
    if (lengths >= best) continue;
    const size_t distance = edit_distance(name, candidate);
    if (distance < best) {
      best = distance;
      found = &candidate;
    }
  }
  return found != nullptr ? *found : std::string();
}

std::string did_you_mean(std::string_view name, std::span<const std::string> candidates) {
  const std::string near = nearest(name, candidates);
  return near.empty() ? near : "did you mean " + near + "?";
}

}  // namespace aicf::base
