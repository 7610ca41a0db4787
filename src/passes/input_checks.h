// The states that carry a failed range check of a label or index to the host.
#pragma once

namespace aicf::passes {

// Private to a program: not saved, not user-visible. error: 0, or the number of the failed check (from 1); error_step:
// its step. The attribute `checks` of the first holds what to say, a line for each check.
inline constexpr const char* kInputError = "inputs.error";
inline constexpr const char* kInputErrorStep = "inputs.error_step";
// Steps so far, i64[]: those that updated, and those that a gradient which is not finite made skip it.
inline constexpr const char* kStepsApplied = "steps.applied";
inline constexpr const char* kStepsSkipped = "steps.skipped";

}  // namespace aicf::passes
