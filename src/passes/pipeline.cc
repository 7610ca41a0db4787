// The passes in order, and the runner that verifies after each.
#include <algorithm>
#include <set>

#include "aicf/error.h"
#include "ir/text.h"
#include "passes/pass.h"

namespace aicf::passes {
namespace {

constexpr Pass kPipeline[] = {
    // First, while the expressions of derived states are still there.
    {"derive", Effect::required, derive},
    // What this program does not need is not checked, lowered or fed.
    {"prune", Effect::required, dce},
    // Before expand: messages name the op and tensor the user wrote, not a gather inside an expansion.
    {"input_checks", Effect::required, input_checks},
    // After differentiation (done before the pipeline) and before anything that looks at primitives.
    {"expand", Effect::required, expand_values},
    // Before every exact pass, so that none of them, on or off, decides what these do. Casts first: with one less
    // between
    // them a transpose and a product are nearer.
    {"drop_roundtrip_casts", Effect::reorders, drop_roundtrip_casts, Bound::rounding},
    {"fold_transposes", Effect::reorders, fold_transposes, Bound::sums},
    // First of the exact ones: every later pass meets one form of equal things.
    {"canonicalize", Effect::exact, canonicalize},
    // Before simplify, whose rules look for constants.
    {"constant_folding", Effect::exact, constant_folding},
    {"simplify", Effect::exact, simplify},
    // Before layout, which looks at the readers of a value: two values that are one have the readers of both.
    {"cse", Effect::exact, cse},
    // Among primitives, whose axes it understands.
    {"layout", Effect::exact, layout},
    // Again: what the passes since then left together (reshapes of reshapes, broadcasts below pointwise ops, twins).
    {"canonicalize", Effect::exact, canonicalize},
    {"cse", Effect::exact, cse},
    // Expansions leave results that nobody reads.
    {"dce", Effect::exact, dce},
    // Before fuse, which merges the selects with what is around them.
    {"scalar_guards", Effect::exact, scalar_guards},
    // After all that rewrites single ops: a region is closed to them.
    {"fuse", Effect::exact, fuse},
    // What follows a product is a region by now.
    {"epilogues", Effect::exact, epilogues},
    // Of whole launches, so after fuse.
    {"group_updates", Effect::exact, group_updates},
    // Last of the exact ones: it counts launches.
    {"merge_launches", Effect::exact, merge_launches},
    // What says in which order others run has done so.
    {"expand", Effect::required, expand},
};

}  // namespace

std::span<const Pass> pipeline() { return kPipeline; }

void run_pipeline(ir::Graph& graph, const std::vector<std::string>& disabled, Evaluate evaluate, const DumpFn& dump) {
  for (const std::string& name : disabled) {
    const auto pass =
        std::find_if(std::begin(kPipeline), std::end(kPipeline), [&](const Pass& p) { return name == p.name; });
    std::string known;
    std::set<std::string> seen;
    for (const Pass& p : kPipeline) {
      if (p.effect == Effect::required || !seen.insert(p.name).second) continue;
      known += (known.empty() ? "" : ", ") + std::string(p.name);
    }
    if (pass == std::end(kPipeline))
      throw Error("no pass named '" + name + "'", "passes that can be disabled: " + known);
    if (pass->effect == Effect::required) {
      throw Error("the pass '" + name + "' is required", "passes that can be disabled: " + known);
    }
  }
  ir::verify(graph);
  if (dump) dump("input", graph, false);
  for (const Pass& pass : kPipeline) {
    if (std::find(disabled.begin(), disabled.end(), pass.name) != disabled.end()) continue;
    const bool changed = pass.run(graph, evaluate);
    try {
      ir::verify(graph);
    } catch (const Error& e) {
      throw InternalError(std::string(e.what()) + " (after pass " + pass.name + ")");
    }
    if (dump) dump(pass.name, graph, changed);
  }
}

}  // namespace aicf::passes
