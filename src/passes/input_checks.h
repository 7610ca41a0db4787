// The range checks of a program's labels and indices, and the states that carry a failure to the host.
#pragma once

#include <string>
#include <vector>

#include "ir/graph.h"

namespace aicf::passes {

// Private to a program: not saved, not user-visible. error: 0, or 1 + the index of the failed check; error_step: the step.
inline constexpr const char* kInputError = "inputs.error";
inline constexpr const char* kInputErrorStep = "inputs.error_step";
// Updates applied so far, i64[].
inline constexpr const char* kStepsApplied = "steps.applied";

struct InputCheck {
  std::string op;      // "cross_entropy"
  std::string tensor;  // the index operand's name
  int64_t extent = 0;
  int64_t ignore = 0;
  bool has_ignore = false;
};

// The checks of a graph, in the order of their codes. REQUIRES: a graph before input_checks().
std::vector<InputCheck> find_input_checks(const ir::Graph& graph);

}  // namespace aicf::passes
