// Names with wildcards, as users write them.
#pragma once

#include <string>
#include <string_view>

namespace aicf::base {

// In the pattern * stands for any text and ? for any character; brackets and backslashes stand for themselves.
bool matches(std::string_view pattern, const std::string& name);

}  // namespace aicf::base
