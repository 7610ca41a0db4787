// What an optimizer sees at compile time, and the interface each one implements.
#pragma once

#include <string>
#include <vector>

#include "aicf/optim.h"
#include "aicf/value.h"
#include "ir/graph.h"

namespace aicf::optim {

struct Trained {
  Value param;
  Value grad;
};

class Optimizer::Impl {
 public:
  virtual ~Impl() = default;
  virtual const std::string& name() const = 0;
  virtual const Schedule& schedule() const = 0;
  virtual const std::vector<Group>& groups() const = 0;
  // Appends the states, ops and updates of one step over these parameters (unguarded: guards are added later). The
  // value given to parameter P is labelled P.next, and to its state S S.next.
  virtual void emit(ir::Graph& graph, const std::vector<Trained>& trained) const = 0;
};

}  // namespace aicf::optim
