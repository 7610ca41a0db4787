// The one way to change a graph: copy it op by op into a new one, replacing on the way.
#pragma once

#include <vector>

#include "ir/graph.h"

namespace aicf::ir {

class Rewriter {
 public:
  explicit Rewriter(const Graph& source);

  const Graph& source() const { return source_; }
  Graph& target() { return target_; }

  // The new value of an old one. Externals and constants are mapped from the start.
  // REQUIRES: the old value has been copied or replaced already.
  ValueId map(ValueId old_value) const;
  bool has(ValueId old_value) const { return map_[old_value] != kNoValue; }
  // Copies the op with mapped operands and maps its results.
  void copy(OpId old_op);
  // The old result now means this new value. The label is carried over when the new value has none.
  void replace(ValueId old_value, ValueId new_value);
  // Copies the updates, derivations and outputs, and returns the new graph. Call once.
  struct Keep {
    bool updates = true;
    bool outputs = true;
    bool derivations = true;
  };
  Graph finish(Keep keep);
  Graph finish() { return finish(Keep()); }

  // old id → new id after finish(); kNoValue where the value is gone.
  const std::vector<ValueId>& mapping() const { return map_; }

 private:
  const Graph& source_;
  Graph target_;
  std::vector<ValueId> map_;
};

}  // namespace aicf::ir
