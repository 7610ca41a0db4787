// Sequential as a layer, and as a model of its own. (Compiling and running it: api/sequential.cc.)
#include "nn/sequential.h"

#include "aicf/error.h"
#include "nn/layer.h"

namespace aicf::nn {
namespace {

class SequentialImpl : public Layer::Impl {
 public:
  explicit SequentialImpl(std::vector<Sequential::Entry> entries) : entries_(std::move(entries)) {
    if (entries_.empty()) throw Error("sequential: expected one layer or more, got none");
    for (const Sequential::Entry& e : entries_) {
      if (e.layer.impl() == nullptr) throw Error("sequential: an empty layer");
    }
  }
  std::string kind() const override { return "sequential"; }

  Value emit(const LayerContext& context, const std::vector<Value>& inputs) const override {
    Value x = only_input(*this, context, inputs);
    for (size_t i = 0; i < entries_.size(); ++i) x = context.model.add(entries_[i].layer, x, name_of(context, i));
    return x;
  }

 private:
  // A layer that the model knows already, and that was given no name here, keeps the one it has.
  std::string name_of(const LayerContext& context, size_t i) const {
    const Sequential::Entry& entry = entries_[i];
    if (entry.name.empty()) {
      const std::string known = context.model.name_of(entry.layer);
      if (!known.empty()) return known;
    }
    const std::string own = entry.name.empty() ? std::to_string(i) + "." + entry.layer.impl()->kind() : entry.name;
    return inner_name(context, own);
  }

  std::vector<Sequential::Entry> entries_;
};

}  // namespace

Sequential::Sequential(std::vector<Entry> layers)
    : Layer(std::make_shared<SequentialImpl>(std::move(layers))), state_(std::make_shared<State>()) {}

Value Sequential::build(TensorType input, const std::string& input_name, uint64_t seed) {
  if (state_->model) throw Error("sequential: built already");
  Model model(seed);
  const Value x = model.input(input_name, input);
  const Value y = impl()->emit(LayerContext{model, ""}, {x});
  model.output("output", y);
  state_->model.emplace(std::move(model));
  return y;
}

Model& Sequential::model() const {
  if (!state_->model) throw Error("sequential: expected a built model", "call build(input type) first");
  return *state_->model;
}

}  // namespace aicf::nn
