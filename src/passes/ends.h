// Where everything that is computed from a value ends: what a guard may skip.
#pragma once

#include <vector>

#include "ir/graph.h"

namespace aicf::passes {

struct Ends {
  enum class Kind : uint8_t { nowhere, guarded, anywhere } kind = Kind::nowhere;
  ir::ValueId guard = ir::kNoValue;  // guarded: in updates under this guard and nowhere else

  void join(Ends other);
  bool operator==(const Ends&) const = default;
};

// By value.
std::vector<Ends> ends_of(const ir::Graph& graph);

// A launch with these results can be skipped by the guard of the updates that it computes, which may then be written in
// place. Also true when it computes no guarded update.
bool keeps_updates_in_place(const ir::Graph& graph, const std::vector<Ends>& ends,
                            const std::vector<ir::ValueId>& results);

}  // namespace aicf::passes
