// Schedules: constant, linear warm-up, cosine, table.
#include "optim/schedule.h"

#include <fmt/format.h>

#include <cmath>
#include <numbers>

#include "aicf/error.h"
#include "aicf/ops.h"
#include "optim/states.h"

namespace aicf::optim {

void validate(const Schedule& s) {
  switch (s.kind) {
    case Schedule::Kind::constant:
      return;
    case Schedule::Kind::warmup:
      if (s.warmup_steps < 0) {
        throw Error(fmt::format("linear_warmup: expected 0 steps or more, got {}", s.warmup_steps));
      }
      return;
    case Schedule::Kind::cosine:
      if (s.warmup_steps < 0 || s.warmup_steps >= s.total_steps) {
        throw Error(fmt::format("cosine: expected 0 <= warmup < total, got warmup {} and total {}", s.warmup_steps,
                                s.total_steps));
      }
      if (!(s.min_factor >= 0 && s.min_factor <= 1)) {
        throw Error(fmt::format("cosine: expected min_factor in [0, 1], got {}", s.min_factor));
      }
      return;
    case Schedule::Kind::table:
      if (s.factors.empty()) throw Error("table: expected one factor or more, got none");
      for (double f : s.factors) {
        if (!(f >= 0) || std::isinf(f)) throw Error(fmt::format("table: expected finite factors >= 0, got {}", f));
      }
      return;
  }
}

Schedule Schedule::constant() { return {}; }

Schedule Schedule::linear_warmup(int64_t steps) {
  Schedule s;
  s.kind = Kind::warmup;
  s.warmup_steps = steps;
  validate(s);
  return s;
}

Schedule Schedule::cosine(int64_t total, int64_t warmup, double min_factor) {
  Schedule s;
  s.kind = Kind::cosine;
  s.total_steps = total;
  s.warmup_steps = warmup;
  s.min_factor = min_factor;
  validate(s);
  return s;
}

Schedule Schedule::table(std::vector<double> factors) {
  Schedule s;
  s.kind = Kind::table;
  s.factors = std::move(factors);
  validate(s);
  return s;
}

ScheduleStates::ScheduleStates(ir::Graph& graph, const Schedule& s, DType scalar) : kind_(s.kind), scalar_(scalar) {
  const auto declare = [&](const char* name, double value) { return scalar_state(graph, name, scalar, value); };
  if (kind_ == Schedule::Kind::warmup || kind_ == Schedule::Kind::cosine) {
    warmup_ = declare("schedule.warmup_steps", static_cast<double>(s.warmup_steps));
  }
  if (kind_ == Schedule::Kind::cosine) {
    total_ = declare("schedule.total_steps", static_cast<double>(s.total_steps));
    min_ = declare("schedule.min_factor", s.min_factor);
  }
  if (kind_ == Schedule::Kind::table) table_ = values_state(graph, "schedule.table", scalar, s.factors);
}

Value ScheduleStates::factor(Value step) const {
  switch (kind_) {
    case Schedule::Kind::constant:
      return literal(step, 1, scalar_);
    case Schedule::Kind::warmup:
      return minimum(warm(step), literal(step, 1, scalar_));
    case Schedule::Kind::cosine:
      return cosine(step);
    case Schedule::Kind::table:
      return table(step);
  }
  throw InternalError("a schedule without a rule");
}

Value ScheduleStates::warm(Value step) const { return cast(step + 1.0, scalar_) / warmup_; }

// Loshchilov & Hutter, "SGDR: stochastic gradient descent with warm restarts" (2017), equation 5, one period. At
// `total` and after it the factor is `min` exactly, however the cosine rounds.
Value ScheduleStates::cosine(Value step) const {
  const Value t = cast(step, scalar_);
  const Value angle = (t - warmup_) * std::numbers::pi / (total_ - warmup_);
  const Value wave = min_ + (1.0 - min_) * ((cos(angle) + 1.0) * 0.5);
  return select(less(t, warmup_), warm(step), select(less(t, total_), wave, min_));
}

// The clamped index is in range by construction.
Value ScheduleStates::table(Value step) const {
  const auto last = static_cast<double>(table_.shape()[0] - 1);
  return gather(table_, minimum(maximum(step, literal(step, 0)), literal(step, last)));
}

}  // namespace aicf::optim
