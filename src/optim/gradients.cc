#include "optim/gradients.h"

#include <fmt/format.h>

#include <cmath>

#include "aicf/error.h"
#include "aicf/ops.h"
#include "ops/numeric.h"
#include "ops/rng_bits.h"
#include "optim/states.h"

namespace aicf::optim {
namespace {

// So that multiplying by it and by its reciprocal rounds nothing.
void check_power_of_two(const char* field, double value, double low, double high) {
  int exponent = 0;
  if (value >= low && value <= high && std::frexp(value, &exponent) == 0.5) return;
  throw Error(fmt::format("loss_scale: expected {} a power of two from {} to {}, got {}", field, low, high, value));
}

}  // namespace

void validate(const LossScale& o) {
  constexpr double kSmallest = 0x1p-24, kLargest = 0x1p100;
  check_power_of_two("min", o.min, kSmallest, kLargest);
  check_power_of_two("max", o.max, o.min, kLargest);
  check_power_of_two("initial", o.initial, o.min, o.max);
  check_power_of_two("growth", o.growth, 1, kLargest);
  check_power_of_two("backoff", o.backoff, kSmallest, 1);
  if (o.interval < 1 || o.interval > INT32_MAX) {
    throw Error(fmt::format("loss_scale: expected interval 1 or more, got {}", o.interval));
  }
}

namespace {

std::string field_name(const std::string& field) { return "loss_scale." + field; }

}  // namespace

void ScaleStates::declare(ir::Graph& graph, const LossScale& o) {
  validate(o);
  const auto declare = [&](const char* field, DType dtype, double value) {
    state(graph, field_name(field), {dtype, {}}, {ir::InitKind::value, {value}});
  };
  declare("value", f32, o.initial);
  declare("good_steps", i32, 0);
  declare("interval", i32, static_cast<double>(o.interval));
  declare("growth", f32, o.growth);
  declare("backoff", f32, o.backoff);
  declare("min", f32, o.min);
  declare("max", f32, o.max);
}

Value ScaleStates::field(const std::string& name) const {
  return graph_.handle(graph_.find_external(field_name(name)));
}

void ScaleStates::add_updates(Value finite) const {
  const Value now = value(), good_steps = field("good_steps");
  const Value good = good_steps + 1;
  const Value grows = greater_equal(good, field("interval"));
  const Value larger = minimum(now * field("growth"), field("max"));
  const Value smaller = maximum(now * field("backoff"), field("min"));
  update(graph_, now, select(finite, select(grows, larger, now), smaller));
  update(graph_, good_steps, select(logical_and(finite, logical_not(grows)), good, literal(good, 0)));
}

namespace {

// The sum of one scalar for each gradient.
template <class F>
Value total(const std::vector<Trained>& trained, F&& of) {
  const DType scalar = scalar_dtype(trained);
  Value sum;
  for (const Trained& t : trained) {
    const Value one = of(in_dtype(t.grad, scalar));
    sum = sum.valid() ? sum + one : one;
  }
  return sum;
}

}  // namespace

Value global_norm(const std::vector<Trained>& trained) {
  return sqrt(total(trained, [](Value g) { return sum(square(g)); }));
}

// 0·x is 0 for a finite x and NaN for another, and a sum with a NaN in it is NaN.
Value all_finite(const std::vector<Trained>& trained) {
  return isfinite(total(trained, [](Value g) { return sum(g * 0.0); }));
}

// No less-than holds for a NaN, and a norm of 0 is below no limit: neither divides.
void clip_by_norm(std::vector<Trained>& trained, Value norm, Value limit) {
  const Value factor = select(less(limit, norm), limit / norm, literal(norm, 1));
  for (Trained& t : trained) {
    const Value g = ops::widen(t.grad);
    t.grad = g * in_dtype(factor, g.dtype());
  }
}

void clip_by_value(std::vector<Trained>& trained, Value limit) {
  for (Trained& t : trained) {
    const Value g = ops::widen(t.grad), most = in_dtype(limit, g.dtype());
    t.grad = maximum(minimum(g, most), -most);
  }
}

void guard_updates(ir::Graph& graph, Value finite) {
  for (size_t i = 0; i < graph.updates().size(); ++i) {
    const ir::Update u = graph.updates()[i];
    if (graph.value(u.target).name == ops::kRngOffset) continue;
    graph.set_guard(i, u.guard == ir::kNoValue ? finite.id() : logical_and(graph.handle(u.guard), finite).id());
  }
}

}  // namespace aicf::optim
