// Activation: one table from name to op.
#include "aicf/error.h"
#include "aicf/ops.h"
#include "aicf/suggest.h"
#include "nn/layer.h"

namespace aicf::nn {
namespace {

struct Function {
  const char* name;
  Value (*emit)(Value x);
  int min_rank;  // 1: works along the last axis
};

constexpr Function kFunctions[] = {
    {"relu", [](Value x) { return relu(x); }, 0},
    {"tanh", [](Value x) { return tanh(x); }, 0},
    {"sigmoid", [](Value x) { return sigmoid(x); }, 0},
    {"gelu", [](Value x) { return gelu(x); }, 0},
    {"gelu_tanh", [](Value x) { return gelu(x, true); }, 0},
    {"softmax", [](Value x) { return softmax(x); }, 1},
    {"log_softmax", [](Value x) { return log_softmax(x); }, 1},
};

const Function& find_function(const std::string& name) {
  for (const Function& f : kFunctions) {
    if (name == f.name) return f;
  }
  const std::vector<std::string> names = Activation::functions();
  std::string list;
  for (const std::string& n : names) list += (list.empty() ? "" : ", ") + n;
  throw Error("activation: expected one of " + list + ", got \"" + name + "\"", base::did_you_mean(name, names));
}

class ActivationImpl : public Layer::Impl {
 public:
  explicit ActivationImpl(const Function& function) : function_(function) {}
  std::string kind() const override { return function_.name; }
  Value emit(const LayerContext& context, const std::vector<Value>& inputs) const override {
    return function_.emit(float_input(*this, context, inputs, function_.min_rank));
  }

 private:
  const Function& function_;
};

}  // namespace

Activation::Activation(const std::string& function)
    : Layer(std::make_shared<ActivationImpl>(find_function(function))) {}

std::vector<std::string> Activation::functions() {
  std::vector<std::string> names;
  for (const Function& f : kFunctions) names.emplace_back(f.name);
  return names;
}

}  // namespace aicf::nn
