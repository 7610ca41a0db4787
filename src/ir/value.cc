#include "aicf/value.h"

#include "aicf/error.h"
#include "ir/graph.h"

namespace aicf {

TensorType Value::type() const {
  if (graph_ == nullptr) throw Error("use of an empty Value");
  return graph_->type(id_);
}

std::string Value::name() const {
  if (graph_ == nullptr) throw Error("use of an empty Value");
  return graph_->value(id_).name;
}

Value Value::named(const std::string& label) const {
  if (graph_ == nullptr) throw Error("use of an empty Value");
  graph_->set_label(id_, label);
  return *this;
}

}  // namespace aicf
