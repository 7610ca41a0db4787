// toml++, whose 3.3 asserts, or under NDEBUG assumes, that some malformed text ("[#") cannot be: its assertions throw
// here. Everything includes toml++ through this file.
#pragma once

namespace aicf::io {

// Throws Error.
[[noreturn]] void malformed_toml();

}  // namespace aicf::io

#pragma push_macro("NDEBUG")
#undef NDEBUG
#define TOML_ASSERT(expr) ((expr) ? static_cast<void>(0) : ::aicf::io::malformed_toml())
#include <toml++/toml.h>
#pragma pop_macro("NDEBUG")
