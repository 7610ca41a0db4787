// Value: a handle to one tensor of a model's graph.
#pragma once

#include <cstdint>
#include <string>

#include "aicf/shape.h"

namespace aicf {

namespace ir {
class Graph;
}

// Cheap to copy. REQUIRES: the Model (or Graph) it came from outlives it.
class Value {
 public:
  Value() = default;
  Value(ir::Graph* graph, int32_t id) : graph_(graph), id_(id) {}

  bool valid() const { return graph_ != nullptr; }
  TensorType type() const;  // by value: appending ops moves the graph's own
  DType dtype() const { return type().dtype; }
  Shape shape() const { return type().shape; }
  // The key of an external, or the display label of a temporary (which may be empty).
  std::string name() const;
  // Sets the display label of a temporary and returns the value; an external keeps its key.
  Value named(const std::string& label) const;

  bool operator==(const Value&) const = default;

  // For the library's own use: ids do not leave it.
  ir::Graph* graph() const { return graph_; }
  int32_t id() const { return id_; }

 private:
  ir::Graph* graph_ = nullptr;
  int32_t id_ = -1;
};

}  // namespace aicf
