// The nearest known name to a mistyped one, for "did you mean" hints.
#pragma once

#include <span>
#include <string>
#include <string_view>

namespace aicf::base {

// The candidate of the smallest edit distance (insert, delete, replace, swap of neighbours; the first of equals), or ""
// when every one differs in more than a third of the name's letters.
std::string nearest(std::string_view name, std::span<const std::string> candidates);

// "did you mean NAME?", or "" when nothing is near.
std::string did_you_mean(std::string_view name, std::span<const std::string> candidates);

}  // namespace aicf::base
