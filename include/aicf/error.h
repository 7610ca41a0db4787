// The two kinds of exception AICF throws. Nothing else leaves the library, std::bad_alloc excepted.
#pragma once

#include <stdexcept>
#include <string>

namespace aicf {

// The caller's mistake: a wrong shape, a missing feed, a malformed file. `what()` is one line naming the
// thing, what was expected and what was found; `hint()` says what to do about it, and may be empty.
class Error : public std::runtime_error {
 public:
  explicit Error(const std::string& message, std::string hint = {})
      : std::runtime_error(message), hint_(std::move(hint)) {}
  const std::string& hint() const noexcept { return hint_; }

 private:
  std::string hint_;
};

// A broken invariant of AICF itself: a bug to report.
class InternalError : public std::logic_error {
 public:
  explicit InternalError(const std::string& message) : std::logic_error(message) {}
};

}  // namespace aicf
