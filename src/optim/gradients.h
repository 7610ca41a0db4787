// Between backward and optimizer: gradients are unscaled, checked and clipped, in this order, all on the device.
#pragma once

#include <string>
#include <vector>

#include "aicf/optim.h"
#include "aicf/value.h"
#include "ir/graph.h"
#include "optim/optimizer.h"

namespace aicf::optim {

// Throws Error naming a field out of its domain.
void validate(const LossScale& options);

// The states of the loss scale (f32, and i32 for the counts): `loss_scale.value` and what it moves by.
class ScaleStates {
 public:
  // Throws Error as validate() does.
  static void declare(ir::Graph& graph, const LossScale& options);

  explicit ScaleStates(ir::Graph& graph) : graph_(graph) {}  // REQUIRES: declared
  Value value() const { return field("value"); }
  // After a step with finite gradients one more good step, and after `interval` of them a larger scale; else a smaller
  // one.
  void add_updates(Value finite) const;

 private:
  Value field(const std::string& name) const;

  ir::Graph& graph_;
};

// √Σ g², over all of them, in their order.
Value global_norm(const std::vector<Trained>& trained);
// bool[]: every element of every gradient is finite.
Value all_finite(const std::vector<Trained>& trained);

// By the global norm: g·min(1, limit / norm).
void clip_by_norm(std::vector<Trained>& trained, Value norm, Value limit);
// Every element into [-limit, limit].
void clip_by_value(std::vector<Trained>& trained, Value limit);

// Every update so far happens only when `finite`, but for the one of `rng.offset`.
void guard_updates(ir::Graph& graph, Value finite);

}  // namespace aicf::optim
