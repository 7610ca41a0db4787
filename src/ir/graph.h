// The SSA graph of a whole training step. Append-only: ids are stable for the life of a graph, and every pass
// that changes one goes through the Rewriter (rewriter.h), which keeps the old → new map.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "aicf/tensor.h"
#include "aicf/value.h"
#include "ir/attrs.h"

namespace aicf::ir {

struct OpDef;

using ValueId = int32_t;
using OpId = int32_t;
inline constexpr ValueId kNoValue = -1;
inline constexpr OpId kNoOp = -1;

// input: fed each step. param: trained. state: moments, counters, hyper-parameters, metrics. constant: baked.
// tmp: everything an op produces. External = input + param + state: one fixed address for life.
enum class Role : uint8_t { input, param, state, constant, tmp };
std::string_view name_of(Role role);

struct ValueInfo {
  TensorType type;
  Role role = Role::tmp;
  OpId producer = kNoOp;  // of a tmp
  int result = 0;         // which output of the producer
  // External and constant: the unique key. Tmp: a free display label, possibly empty or shared.
  std::string name;
  // Externals: `init` ("zeros", "uniform(-0.1,0.1)", …: aicf/model.h), `group`, `trainable` (params; default true).
  Attrs attrs;
  // Constants only: the baked elements.
  std::shared_ptr<const Tensor> data;
};

struct Op {
  const OpDef* def = nullptr;
  std::vector<ValueId> inputs;
  std::vector<ValueId> outputs;
  Attrs attrs;
  // The body of an op that has one (`with_gradient`, `fused`): inputs are its `input` values in order,
  // results its outputs in order. Shared because bodies are immutable once attached.
  std::shared_ptr<const Graph> region;
};

// `target := value [when guard]`. All updates of a step are one parallel assignment of old values; with the guard
// false every bit of the target stays. Guards are bool scalars.
struct Update {
  ValueId target = kNoValue;
  ValueId value = kNoValue;
  ValueId guard = kNoValue;  // kNoValue: unconditional
};

// `derive state := value`: at every moment the state equals this expression of other externals (a transposed weight, a
// compute copy). It is not saved and not user-writable; load, write and reset refresh it, and a step that updates one
// of those externals updates it with them.
struct Derivation {
  ValueId state = kNoValue;
  ValueId value = kNoValue;
};

struct Output {
  std::string name;
  ValueId value = kNoValue;
};

class Graph {
 public:
  Graph() = default;
  Graph(const Graph&) = default;
  Graph(Graph&&) = default;
  Graph& operator=(const Graph&) = default;
  Graph& operator=(Graph&&) = default;

  // --- building -------------------------------------------------------------------------------------------
  // Throw Error on a key already taken by another external or constant, or an empty key.
  ValueId add_external(Role role, const std::string& key, TensorType type, Attrs attrs = {});
  // Anonymous constants (empty key) with equal contents are shared.
  ValueId add_constant(Tensor data, const std::string& key = {});
  ValueId add_constant(std::shared_ptr<const Tensor> data, const std::string& key = {});
  // Infers the result types through the op's record, which throws Error on operands that do not fit.
  OpId add_op(const OpDef& def, std::vector<ValueId> inputs, Attrs attrs = {},
              std::shared_ptr<const Graph> region = nullptr);
  // Throw Error when the target already has an update, or is not a param or state, or the types differ.
  void add_update(ValueId target, ValueId value, ValueId guard = kNoValue);
  void set_guard(size_t update_index, ValueId guard);
  // Throws Error when the state is not a state, has a derivation already, or the types differ.
  void add_derivation(ValueId state, ValueId value);
  // Throws Error on a name already taken.
  void add_output(const std::string& name, ValueId value);
  void set_label(ValueId tmp, const std::string& label);
  void set_attr(ValueId external, std::string_view name, AttrValue value);

  // --- reading --------------------------------------------------------------------------------------------
  int num_values() const { return static_cast<int>(values_.size()); }
  int num_ops() const { return static_cast<int>(ops_.size()); }
  const ValueInfo& value(ValueId id) const { return values_[id]; }
  const TensorType& type(ValueId id) const { return values_[id].type; }
  const Op& op(OpId id) const { return ops_[id]; }
  std::span<const ValueInfo> values() const { return values_; }
  std::span<const Op> ops() const { return ops_; }
  std::span<const Update> updates() const { return updates_; }
  std::span<const Output> outputs() const { return outputs_; }
  std::span<const Derivation> derivations() const { return derivations_; }

  bool is_external(ValueId id) const;
  // The external or constant of this key, or kNoValue.
  ValueId find_external(std::string_view key) const;
  // The external of this key, else the output, else the last tmp so labelled, or kNoValue.
  ValueId find(std::string_view name) const;
  ValueId find_output(std::string_view name) const;
  // Index into updates(), or -1.
  int find_update(ValueId target) const;
  const Derivation* find_derivation(ValueId state) const;
  // Ops that read each value, in op order; built on demand by the caller.
  std::vector<std::vector<OpId>> readers() const;

  Value handle(ValueId id) { return Value(this, id); }

 private:
  friend struct GraphTestAccess;  // tests plant faults that no call here lets through

  std::vector<ValueInfo> values_;
  std::vector<Op> ops_;
  std::vector<Update> updates_;
  std::vector<Output> outputs_;
  std::vector<Derivation> derivations_;
  std::map<std::string, ValueId, std::less<>> keys_;
};

// A short name of a value for messages: "%fc1.weight", or "%12" for an unlabelled tmp.
std::string value_name(const Graph& graph, ValueId id);

// The externals that `id` is computed from, through derived states down to what they derive from.
std::vector<ValueId> externals_of(const Graph& graph, ValueId id);

}  // namespace aicf::ir
