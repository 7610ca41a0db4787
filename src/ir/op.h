// The record of one op: every fact about it in one place. The table of all records lives in ops/.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "aicf/tensor.h"
#include "aicf/value.h"
#include "ir/attrs.h"
#include "ir/graph.h"

namespace aicf::ir {

// What a shape rule sees. `region` is null for ops without a body.
struct InferCtx {
  const OpDef& def;
  std::span<const TensorType> in;
  const Attrs& attrs;
  const Graph* region;
};

// What a gradient rule sees. A cotangent is absent when nothing downstream uses that output; at least one is
// present. New ops are appended to `graph`.
struct GradCtx {
  Graph& graph;
  const Op& op;  // a copy: appending ops does not invalidate it
  std::vector<Value> in;
  std::vector<Value> out;
  std::vector<std::optional<Value>> cotangents;  // one per output
  // The cotangent of output i, or zeros of its type.
  Value cotangent(int i) const;
};
// One entry per operand; nullopt: no gradient flows there (an index, say).
using GradResult = std::vector<std::optional<Value>>;

// What an expansion sees: it appends primitives to `graph` and returns one value per output.
struct ExpandCtx {
  Graph& graph;
  const Op& op;
  std::vector<Value> in;
};

// Output `out` may (or must) take the storage of operand `in`. REQUIRES, for the rule to be listed: the kernel reads
// each element of that operand before, or at, the moment it writes the element of the same index.
struct AliasRule {
  int out = 0;
  int in = 0;
  bool must = false;
};

struct Cost {
  double flops = 0;
  double bytes = 0;  // each operand and result counted once
};

// Attribute of an op: its name, an example of its type, and whether it must be given.
struct AttrSpec {
  const char* name;
  enum class Kind : uint8_t { boolean, integer, real, text, ints, dtype } kind;
  bool required = false;
};

// One test case of an op. Drives every test of it: shape rule, kernels, gradient, print and parse, aliasing.
struct Sample {
  std::string name;                     // distinct within the op
  std::vector<TensorType> inputs = {};  // float operands are retyped to each tested dtype
  Attrs attrs = {};
  // Operand values; an operand without an entry is drawn from `low`..`high`. Integer operands draw from
  // [0, index_extent).
  std::vector<std::pair<int, Tensor>> values = {};
  double low = -2, high = 2;
  int64_t index_extent = 4;
  // Operand i is the same value as operand same_as[i] when >= 0 (a repeated operand).
  std::vector<int> same_as = {};
  // False: no finite differences here (a kink or an infinity by design); the reason is the sample's name.
  bool check_grad = true;
  // Expected results by hand, in double, one per output; empty: compared with the reference only.
  std::vector<std::vector<double>> expected = {};
  double tolerance = 0;                           // of `expected`: |got - want| <= tolerance * max(1, |want|)
  int unused_output = -1;                         // an output that no loss reads
  std::shared_ptr<const Graph> region = nullptr;  // the body, for ops that have one
  bool as_typed = false;                          // the operands' dtypes are the point: they are not retyped
};

enum OpFlag : uint32_t {
  kPointwise = 1u << 0,  // one scalar expression per element, numpy broadcasting of operands
  kCommutative = 1u << 1,
  kRandom = 1u << 2,     // draws; never merged by common-subexpression elimination
  kComposite = 1u << 3,  // has `expand`, no kernels
  kView = 1u << 4,       // the result is operand 0's bytes; with the alias granted there is no launch
  kReduction = 1u << 5,
};

// What a 16-bit program makes of an op of f32 values (passes/precision.cc).
enum class PrecisionClass : uint8_t {
  f32,      // computed from operands cast up to f32: norms, losses, sums, and what loses digits in 16 bits
  follow,   // computed in the dtype of its operands
  compute,  // products: factors in the compute dtype, sums in f32 (the attributes of ops/compute.h)
};

// An operand that indexes something: 0 <= element < extent(types, attrs), or == the attribute `ignore_index`.
struct IndexOperand {
  int operand = 0;
  int64_t (*extent)(std::span<const TensorType> in, const Attrs& attrs) = nullptr;
};

using InferFn = std::vector<TensorType> (*)(const InferCtx&);
using GradFn = GradResult (*)(const GradCtx&);
using ExpandFn = std::vector<Value> (*)(const ExpandCtx&);
using CostFn = Cost (*)(std::span<const TensorType> in, std::span<const TensorType> out, const Attrs&);
using SamplesFn = std::vector<Sample> (*)();
using AliasFn = std::vector<AliasRule> (*)(const Op&);

// `grad = not_differentiable`: differentiating through the op is a compile error naming it.
GradResult not_differentiable(const GradCtx&);
// `grad = zero_gradient`: no gradient flows to any operand, by definition (comparisons, argmax, stop_gradient).
GradResult zero_gradient(const GradCtx&);

inline constexpr int kVariadic = -1;

struct OpDef {
  const char* name = nullptr;
  int num_inputs = 0;                           // kVariadic: one or more
  std::vector<const char*> operand_names = {};  // for messages; one entry if variadic
  InferFn infer = nullptr;
  GradFn grad = nullptr;      // null for a composite: its expansion is differentiated
  ExpandFn expand = nullptr;  // composites only
  // What it is in a program that does not train (passes/inference_mode.cc); null: the same.
  ExpandFn inference = nullptr;
  std::vector<AliasRule> alias = {};
  AliasFn alias_of = nullptr;  // where they depend on the op's body; `alias` is empty then
  uint32_t flags = 0;
  std::vector<AttrSpec> attrs = {};
  std::vector<DType> dtypes = {};  // of the floating (or, lacking any, the first) operand, CPU backend
  CostFn cost = nullptr;           // null: zero flops, every operand and result once
  SamplesFn samples = nullptr;
  std::vector<IndexOperand> index_operands = {};
  PrecisionClass precision = PrecisionClass::f32;

  bool is(uint32_t flag) const { return (flags & flag) != 0; }
};

// The table of all records, sorted by name (defined in ops/table.cc).
std::span<const OpDef* const> op_table();
// Null when there is none.
const OpDef* find_op(std::string_view name);

// The alias rules of an op by its record.
std::vector<AliasRule> alias_rules(const Op& op);

// The cost of an op by its record.
Cost cost_of(const Graph& graph, const Op& op);

// "add(f32[3], f32[4])": the head of an op's error messages.
std::string call_text(const OpDef& def, std::span<const TensorType> in);

// Appends an op with one result (emit) or several (emit_all) to the graph of its operands.
// REQUIRES: at least one operand, all of one graph (Error otherwise).
Value emit(const OpDef& def, const std::vector<Value>& inputs, Attrs attrs = {},
           std::shared_ptr<const Graph> region = nullptr);
std::vector<Value> emit_all(const OpDef& def, const std::vector<Value>& inputs, Attrs attrs = {},
                            std::shared_ptr<const Graph> region = nullptr);

}  // namespace aicf::ir
