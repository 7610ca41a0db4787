// A learning-rate schedule as ops: the factor of this step, from the step counter.
#pragma once

#include "aicf/optim.h"
#include "aicf/value.h"
#include "ir/graph.h"

namespace aicf::optim {

// Throws Error naming the schedule and the field out of its domain.
void validate(const Schedule& schedule);

// The schedule's parameters as states of dtype `scalar`, declared once for all groups.
class ScheduleStates {
 public:
  ScheduleStates(ir::Graph& graph, const Schedule& schedule, DType scalar);
  // The factor, a scalar; `step` (i32[]) counts the steps done before this one.
  Value factor(Value step) const;

 private:
  Value warm(Value step) const;
  Value cosine(Value step) const;
  Value table(Value step) const;

  Schedule::Kind kind_;
  DType scalar_;
  Value warmup_, total_, min_, table_;
};

}  // namespace aicf::optim
