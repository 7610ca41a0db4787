// SGD with momentum, dampening, decay and Nesterov's look-ahead: Sutskever et al., "On the importance of initialization
// and momentum in deep learning" (2013), in the form that PyTorch documents.
#include "aicf/error.h"
#include "aicf/ops.h"
#include "optim/states.h"

namespace aicf::optim {
namespace {

constexpr const char* kName = "sgd";

class SgdImpl : public Optimizer::Impl {
 public:
  explicit SgdImpl(const SGD& options) : o_(options) {
    check_common(defaults());
    check_not_negative(kName, "momentum", o_.momentum);
    check_not_negative(kName, "dampening", o_.dampening);
    if (o_.nesterov && (o_.momentum == 0 || o_.dampening != 0)) {
      throw Error("sgd: expected momentum > 0 and dampening 0 with nesterov");
    }
  }

  const std::string& name() const override {
    static const std::string name = kName;
    return name;
  }
  const Schedule& schedule() const override { return o_.schedule; }
  const std::vector<Group>& groups() const override { return o_.groups; }

  void emit(ir::Graph& graph, const std::vector<Trained>& trained) const override {
    const DType scalar = scalar_dtype(trained);
    const std::vector<GroupStep> groups = begin_step(graph, scalar, defaults(), trained);
    const bool buffered = o_.momentum != 0 && !groups.empty();
    Value momentum, gain;
    if (buffered) {
      momentum = scalar_state(graph, "momentum", scalar, o_.momentum);
      gain = 1.0 - scalar_state(graph, "dampening", scalar, o_.dampening);
    }
    for (const GroupStep& group : groups) {
      // The first buffer is the gradient itself, whatever the dampening.
      Value keep, take;
      if (buffered) {
        const Value first = equal(group.step, literal(group.step, 0));
        keep = select(first, literal(momentum, 0), momentum);
        take = select(first, literal(gain, 1), gain);
      }
      for (const Trained& t : group.members) {
        const Value p = in_dtype(t.param, scalar);
        Value g = in_dtype(t.grad, scalar) + p * group.weight_decay;
        if (buffered) {
          const Value buffer = zeros_state(graph, "momentum/" + t.param.name(), {scalar, p.shape()});
          const Value next = buffer * keep + g * take;
          update(graph, buffer, next);
          g = o_.nesterov ? g + next * momentum : next;
        }
        update(graph, t.param, p - g * group.lr);
      }
    }
  }

 private:
  GroupDefaults defaults() const { return {kName, o_.lr, o_.weight_decay, o_.schedule, o_.groups}; }

  SGD o_;
};

}  // namespace

Optimizer::Optimizer(const SGD& options) : impl_(std::make_shared<SgdImpl>(options)) {}

}  // namespace aicf::optim
