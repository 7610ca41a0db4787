#include "passes/ends.h"

#include <algorithm>

namespace aicf::passes {

void Ends::join(Ends other) {
  if (other.kind == Kind::nowhere || *this == other) return;
  *this = kind == Kind::nowhere ? other : Ends{Kind::anywhere, ir::kNoValue};
}

std::vector<Ends> ends_of(const ir::Graph& graph) {
  std::vector<Ends> ends(static_cast<size_t>(graph.num_values()));
  const auto at = [&](ir::ValueId v) -> Ends& { return ends[static_cast<size_t>(v)]; };
  const Ends anywhere{Ends::Kind::anywhere, ir::kNoValue};
  for (const ir::Output& o : graph.outputs()) at(o.value).join(anywhere);
  for (const ir::Update& u : graph.updates()) {
    at(u.value).join(u.guard == ir::kNoValue ? anywhere : Ends{Ends::Kind::guarded, u.guard});
    if (u.guard != ir::kNoValue) at(u.guard).join(anywhere);
  }
  for (ir::OpId id = graph.num_ops() - 1; id >= 0; --id) {
    Ends all;
    for (ir::ValueId v : graph.op(id).outputs) all.join(at(v));
    for (ir::ValueId v : graph.op(id).inputs) at(v).join(all);
  }
  return ends;
}

bool keeps_updates_in_place(const ir::Graph& graph, const std::vector<Ends>& ends,
                            const std::vector<ir::ValueId>& results) {
  Ends wanted;
  for (const ir::Update& u : graph.updates()) {
    if (u.guard == ir::kNoValue) continue;
    if (std::find(results.begin(), results.end(), u.value) != results.end()) {
      wanted.join({Ends::Kind::guarded, u.guard});
    }
  }
  if (wanted.kind == Ends::Kind::nowhere) return true;
  return std::all_of(results.begin(), results.end(),
                     [&](ir::ValueId v) { return ends[static_cast<size_t>(v)] == wanted; });
}

}  // namespace aicf::passes
