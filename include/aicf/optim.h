// Optimizers and learning-rate schedules. Every float here becomes `state` on the device: Program::write changes it.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

namespace aicf::optim {

// A factor on the base learning rate, computed on the device from the count of steps done before this one (t = 0, 1,
// …).
class Schedule {
 public:
  static Schedule constant();
  // (t + 1) / steps for t < steps, then 1.
  static Schedule linear_warmup(int64_t steps);
  // Linear warm-up over `warmup` steps as above, then min + (1 - min)(1 + cos(π (t - warmup) / (total - warmup))) / 2,
  // and `min` from t = total on. Throws Error unless 0 <= warmup < total and 0 <= min <= 1.
  static Schedule cosine(int64_t total, int64_t warmup = 0, double min_factor = 0);
  // factors[min(t, size - 1)]. Throws Error when empty.
  static Schedule table(std::vector<double> factors);

  Schedule() = default;  // constant

  enum class Kind : uint8_t { constant, warmup, cosine, table };
  Kind kind = Kind::constant;
  int64_t warmup_steps = 0;
  int64_t total_steps = 0;
  double min_factor = 0;
  std::vector<double> factors;
};

// Overrides for the parameters declared with this group name. Unset: as the optimizer says. A group that parameters
// name but the optimizer does not list has the optimizer's values, in scalars of its own.
struct Group {
  std::string name;
  std::optional<double> lr;
  std::optional<double> weight_decay;
};

// g += weight_decay·p; buf = momentum·buf + (1 - dampening)·g, the first buf = g;
// g = nesterov ? g + momentum·buf : buf; p -= lr·g. With momentum 0 there is no buffer, dampening plays no part, and
// momentum cannot be written later. nesterov needs momentum > 0 and dampening 0.
struct SGD {
  double lr = 1e-2;
  double momentum = 0;
  double dampening = 0;
  double weight_decay = 0;
  bool nesterov = false;
  Schedule schedule = {};
  std::vector<Group> groups = {};
};

// g += weight_decay·p; m = β1·m + (1-β1)·g; v = β2·v + (1-β2)·g²; p -= lr·m̂ / (√v̂ + eps), m̂ = m/(1-β1ᵗ), v̂ = v/(1-β2ᵗ).
// Kingma & Ba 2015, algorithm 1.
struct Adam {
  double lr = 1e-3;
  double beta1 = 0.9;
  double beta2 = 0.999;
  double eps = 1e-8;
  double weight_decay = 0;
  Schedule schedule = {};
  std::vector<Group> groups = {};
};

// As Adam with decoupled decay: p = p·(1 - lr·weight_decay) - lr·m̂ / (√v̂ + eps). Loshchilov & Hutter 2019, algorithm 2.
struct AdamW {
  double lr = 1e-3;
  double beta1 = 0.9;
  double beta2 = 0.999;
  double eps = 1e-8;
  double weight_decay = 1e-2;
  Schedule schedule = {};
  std::vector<Group> groups = {};
};

// The loss is multiplied by a scale before it is differentiated, and the gradients are divided by it, so that what is
// small in f16 is not lost: Micikevicius et al., "Mixed precision training" (ICLR 2018). A step with a gradient that is
// not finite multiplies the scale by `backoff`, down to `min`; `interval` steps without one multiply it by `growth`, up
// to `max`. Powers of two, all but `interval`: scaling rounds nothing. Each field is a state of its name,
// loss_scale.growth and so on, and `initial` that of loss_scale.value (f32); loss_scale.good_steps (i32) counts the
// steps since the scale last changed.
struct LossScale {
  double initial = 65536;
  double growth = 2;
  double backoff = 0.5;
  int64_t interval = 2000;
  double min = 1;
  double max = 16777216;
};

// Any of them, or none. States it declares, g being "" for the default group and "NAME." for a named one:
// optimizer.{g}lr, optimizer.{g}weight_decay, optimizer.{g}step (i32), optimizer.{g}lr_effective, the optimizer's own
// scalars (optimizer.beta1, …), the schedule's (optimizer.schedule.warmup_steps, .total_steps, .min_factor, .table),
// and one tensor a parameter (optimizer.m/NAME, optimizer.v/NAME, optimizer.momentum/NAME). Floats are f64 when a
// trained parameter is, else f32.
class Optimizer {
 public:
  Optimizer() = default;
  // Throw Error on a value out of its domain, naming it.
  Optimizer(const SGD& options);
  Optimizer(const Adam& options);
  Optimizer(const AdamW& options);

  bool empty() const { return impl_ == nullptr; }
  const std::string& name() const;  // "sgd", "adam", "adamw"

  class Impl;
  const std::shared_ptr<const Impl>& impl() const { return impl_; }

 private:
  std::shared_ptr<const Impl> impl_;
};

}  // namespace aicf::optim
