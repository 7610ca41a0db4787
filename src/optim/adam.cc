// Adam: Kingma & Ba, "Adam: a method for stochastic optimization" (ICLR 2015).
#include "optim/adam.h"

#include "aicf/ops.h"
#include "optim/states.h"

namespace aicf::optim {
namespace {

// 1 - βᵗ without cancellation: -expm1(t·ln β).
Value correction(Value beta, Value t) { return -expm1(t * log(beta)); }

class AdamImpl : public Optimizer::Impl {
 public:
  AdamImpl(const char* name, const Adam& options, Decay decay) : name_(name), o_(options), decay_(decay) {
    check_common(defaults());
    check_fraction(name, "beta1", o_.beta1);
    check_fraction(name, "beta2", o_.beta2);
    check_not_negative(name, "eps", o_.eps);
  }

  const std::string& name() const override { return name_; }
  const Schedule& schedule() const override { return o_.schedule; }
  const std::vector<Group>& groups() const override { return o_.groups; }

  void emit(ir::Graph& graph, const std::vector<Trained>& trained) const override {
    const DType scalar = scalar_dtype(trained);
    const std::vector<GroupStep> groups = begin_step(graph, scalar, defaults(), trained);
    if (groups.empty()) return;
    const Value beta1 = scalar_state(graph, "beta1", scalar, o_.beta1);
    const Value beta2 = scalar_state(graph, "beta2", scalar, o_.beta2);
    const Value eps = scalar_state(graph, "eps", scalar, o_.eps);
    const Value rate1 = 1.0 - beta1;
    const Value rate2 = 1.0 - beta2;
    for (const GroupStep& group : groups) {
      // The paper's section 2 order, with the corrections moved to the scalars: lr·m̂ / (√v̂ + eps) =
      // (lr·√c2 / c1)·m / (√v + eps·√c2).
      const Value t = cast(group.next_step, scalar);
      const Value root = sqrt(correction(beta2, t));
      const Value size = group.lr * root / correction(beta1, t);
      const Value margin = eps * root;
      const Value shrink = decay_ == Decay::decoupled ? 1.0 - group.lr * group.weight_decay : Value();
      for (const Trained& trained_param : group.members) {
        const std::string key = trained_param.param.name();
        const Value p = in_dtype(trained_param.param, scalar);
        Value g = in_dtype(trained_param.grad, scalar);
        if (decay_ == Decay::coupled) g = g + p * group.weight_decay;
        const Value m = zeros_state(graph, "m/" + key, {scalar, p.shape()});
        const Value v = zeros_state(graph, "v/" + key, {scalar, p.shape()});
        // m + (1-β1)(g-m): as β1·m + (1-β1)·g, and the last op reads m, so that it can be written in place.
        const Value next_m = m + (g - m) * rate1;
        const Value next_v = v + (square(g) - v) * rate2;
        const Value step = next_m / (sqrt(next_v) + margin) * size;
        update(graph, m, next_m);
        update(graph, v, next_v);
        update(graph, trained_param.param, (decay_ == Decay::decoupled ? p * shrink : p) - step);
      }
    }
  }

 private:
  GroupDefaults defaults() const { return {name_.c_str(), o_.lr, o_.weight_decay, o_.schedule, o_.groups}; }

  std::string name_;
  Adam o_;
  Decay decay_;
};

}  // namespace

std::shared_ptr<const Optimizer::Impl> make_adam(const char* name, const Adam& options, Decay decay) {
  return std::make_shared<AdamImpl>(name, options, decay);
}

Optimizer::Optimizer(const Adam& options) : impl_(make_adam("adam", options, Decay::coupled)) {}

}  // namespace aicf::optim
