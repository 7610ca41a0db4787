// The process-wide cache of compiled plans, keyed by content: the whole text of the program and all that is baked with
// it.
#pragma once

#include <functional>
#include <memory>
#include <string>

#include "runtime/executable.h"

namespace aicf::api {

// The entry of this key, made by `make` if there is none. Keys are compared whole: equal hashes are not enough.
std::shared_ptr<const runtime::Compiled> cached(const std::string& key,
                                                const std::function<std::shared_ptr<const runtime::Compiled>()>& make);

}  // namespace aicf::api
