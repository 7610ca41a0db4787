// Plants faults that Graph's own functions refuse, so that verify() and check_plan have something to catch.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "ir/graph.h"

namespace aicf::ir {

struct GraphTestAccess {
  Graph& graph;
  std::vector<ValueInfo>& values() { return graph.values_; }
  std::vector<Op>& ops() { return graph.ops_; }
  std::vector<Update>& updates() { return graph.updates_; }
  std::vector<Output>& outputs() { return graph.outputs_; }
  std::vector<Derivation>& derivations() { return graph.derivations_; }
  std::map<std::string, ValueId, std::less<>>& keys() { return graph.keys_; }
};

}  // namespace aicf::ir
