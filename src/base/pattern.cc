#include "base/pattern.h"

#include <fnmatch.h>

namespace aicf::base {

bool matches(std::string_view pattern, const std::string& name) {
  std::string plain;
  for (const char c : pattern) plain += c == '[' || c == '\\' ? std::string{'\\', c} : std::string{c};
  return fnmatch(plain.c_str(), name.c_str(), 0) == 0;
}

}  // namespace aicf::base
