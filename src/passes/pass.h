// A pass: a function from graph to graph, and how it may change bits.
#pragma once

#include <functional>
#include <span>
#include <string>
#include <vector>

#include "ir/graph.h"

namespace aicf::passes {

// required: always runs. exact: switching it off changes no bit; so those that reorder, within a stated bound, stand
// before all of them, lest an exact pass decide what they do.
enum class Effect : uint8_t { required, exact, reorders };

// What switching a pass that reorders off may change: the order of the sums of products, or one rounding of a value to
// the narrow dtype it was cast to. api/verify.cc turns both into numbers.
enum class Bound : uint8_t { none, sums, rounding };

// The results of an op, with the bits that the backends' kernels give (lower/evaluate.h). Null: nothing is computed at
// compile time.
using Evaluate = std::vector<Tensor> (*)(const ir::OpDef& def, const ir::Attrs& attrs,
                                         std::span<const Tensor* const> operands);

class Pass {
 public:
  // The function returns true when it changed the graph.
  constexpr Pass(const char* name, Effect effect, bool (*run)(ir::Graph&), Bound bound = Bound::none)
      : name(name), effect(effect), bound(bound), run_(run) {}
  constexpr Pass(const char* name, Effect effect, bool (*run)(ir::Graph&, Evaluate))
      : name(name), effect(effect), bound(Bound::none), evaluating_(run) {}

  bool run(ir::Graph& graph, Evaluate evaluate) const {
    return run_ != nullptr ? run_(graph) : evaluating_(graph, evaluate);
  }

  const char* name;
  Effect effect;
  Bound bound;

 private:
  bool (*run_)(ir::Graph&) = nullptr;
  bool (*evaluating_)(ir::Graph&, Evaluate) = nullptr;
};

// In order; pipeline.cc says why each stands where it does. A name may stand twice: it is one pass to switch off.
std::span<const Pass> pipeline();

// Called with each pass's name and the graph after it (also "input" before the first).
using DumpFn = std::function<void(const std::string& pass, const ir::Graph& graph, bool changed)>;

// Runs the pipeline, verifying after each pass; an error ends "after pass NAME". Throws Error on a disabled name that
// is unknown or required.
void run_pipeline(ir::Graph& graph, const std::vector<std::string>& disabled, Evaluate evaluate,
                  const DumpFn& dump = nullptr);

// First of all, in a program that does not train: an op that is something else there, by its record, becomes it.
// Returns true when it changed the graph.
bool inference_mode(ir::Graph& graph);

// Before differentiation: the casts of a precision policy. "f32": none. "tf32", "bf16", "f16": matmul's factors are
// rounded to it, and for the 16-bit ones the values between products are kept in it, as each op's record says
// (ir::PrecisionClass); inputs, params, states, outputs and the loss stay f32. Throws Error on another name.
void apply_precision(ir::Graph& graph, const std::string& precision);
// After it: an op that asks for 16-bit factors reads operands of that dtype. Of a param it reads the compute copy, a
// derived state NAME.bf16 or NAME.f16; of any other value one cast. Returns true when it changed the graph. Throws
// Error when the model has another external of a copy's name.
bool compute_casts(ir::Graph& graph);

// Expands only composites that have no gradient rule of their own: what differentiate() needs.
bool expand_undifferentiable(ir::Graph& graph);

// The passes, one file each.
bool expand(ir::Graph& graph);
// All composites but `after`.
bool expand_values(ir::Graph& graph);
bool derive(ir::Graph& graph);
// The value of an expression over externals after the step's updates: re-emitted from their new values; `value` itself
// when it depends on nothing that is updated.
ir::ValueId next_value(ir::Graph& graph, ir::ValueId value);
bool input_checks(ir::Graph& graph);
bool canonicalize(ir::Graph& graph);
bool constant_folding(ir::Graph& graph, Evaluate evaluate);
bool simplify(ir::Graph& graph);
bool fold_transposes(ir::Graph& graph);
bool layout(ir::Graph& graph);
bool cse(ir::Graph& graph);
bool drop_roundtrip_casts(ir::Graph& graph);
bool dce(ir::Graph& graph);
bool scalar_guards(ir::Graph& graph);
bool fuse(ir::Graph& graph);
bool epilogues(ir::Graph& graph);
bool group_updates(ir::Graph& graph);
bool merge_launches(ir::Graph& graph);
// By op id: whether an output or an update needs it.
std::vector<char> live_ops(const ir::Graph& graph);

}  // namespace aicf::passes
