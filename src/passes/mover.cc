#include "passes/mover.h"

#include <algorithm>

#include "ops/defs.h"
#include "ops/reduce.h"
#include "ops/structural.h"
#include "passes/pass.h"

namespace aicf::passes {
namespace {

using ir::kNoOp;
using ir::kNoValue;
using ir::ValueId;
using Ints = std::vector<int64_t>;
using Kind = Wanted::Kind;

// Bounds the search: longer chains are left alone.
constexpr size_t kMaxChoices = 256;

bool is_identity(const Ints& perm) { return std::is_sorted(perm.begin(), perm.end()); }

Ints permuted(const Ints& list, const Ints& perm) {
  Ints result;
  for (int64_t axis : perm) result.push_back(list[static_cast<size_t>(axis)]);
  return result;
}

// Whether a transpose leaves the elements in order: only axes of extent 1 change places.
bool keeps_order(const Ints& dims, Ints perm) {
  std::erase_if(perm, [&](int64_t axis) { return dims[static_cast<size_t>(axis)] == 1; });
  return is_identity(perm);
}

std::vector<int> reader_counts(const ir::Graph& graph) {
  std::vector<int> counts(static_cast<size_t>(graph.num_values()), 0);
  const std::vector<char> live = live_ops(graph);
  for (ir::OpId id = 0; id < graph.num_ops(); ++id) {
    if (!live[static_cast<size_t>(id)]) continue;
    Ints once(graph.op(id).inputs.begin(), graph.op(id).inputs.end());
    std::sort(once.begin(), once.end());
    once.erase(std::unique(once.begin(), once.end()), once.end());
    for (int64_t v : once) ++counts[static_cast<size_t>(v)];
  }
  for (const ir::Output& o : graph.outputs()) ++counts[static_cast<size_t>(o.value)];
  for (const ir::Update& u : graph.updates()) {
    ++counts[static_cast<size_t>(u.value)];
    if (u.guard != kNoValue) ++counts[static_cast<size_t>(u.guard)];
  }
  return counts;
}

bool is_reduction(const ir::Op& op) {
  return op.def == &ops::reduce_sum_def || op.def == &ops::reduce_prod_def || op.def == &ops::reduce_max_def ||
         op.def == &ops::reduce_min_def;
}

}  // namespace

Wanted swapped_last(int rank) {
  Ints perm;
  for (int i = 0; i < rank; ++i) perm.push_back(i);
  if (rank >= 2) std::swap(perm[static_cast<size_t>(rank - 1)], perm[static_cast<size_t>(rank - 2)]);
  return {Kind::permuted, perm};
}

Mover::Mover(const ir::Graph& graph) : graph_(graph), readers_(reader_counts(graph)) {}

const ir::Op* Mover::producer(ValueId v) const {
  const ir::OpId id = graph_.value(v).producer;
  return id == kNoOp ? nullptr : &graph_.op(id);
}

int Mover::growth(ValueId v, const Wanted& wanted, bool last) {
  choices_.clear();
  order_.clear();
  root_ = {v, wanted};
  return decide(root_, last);
}

// What is wanted twice is paid for once.
int Mover::decide(const Key& key, bool last) {
  if (choices_.contains(key)) return 0;
  Choice choice;
  order_.push_back(key);
  choices_[key] = {};
  if (choices_.size() < kMaxChoices) choice = choose(key, last);
  const int growth = choice.growth;
  choices_[key] = std::move(choice);
  return growth;
}

Mover::Choice Mover::choose(const Key& key, bool last) {
  const auto& [v, wanted] = key;
  const Ints dims = ops::to_vector(graph_.type(v).shape);
  const bool same = wanted.kind == Kind::permuted ? is_identity(wanted.of) : wanted.of == dims;
  if (same) return {Choice::Kind::as_is, 0};
  const ir::Op* op = producer(v);
  if (op == nullptr) return {};
  Choice choice;
  if (meets(choice, *op, wanted)) {
    choice.kind = Choice::Kind::other;
    // The op that is met goes when nothing else reads it.
    choice.growth = grown(choice, last) - (last ? 1 : 0);
    return choice;
  }
  if (!last || !passes(choice, *op, wanted)) return {};
  choice.kind = Choice::Kind::through;
  const size_t before = order_.size();
  choice.growth = grown(choice, last);
  if (choice.growth <= 1) return choice;
  for (; order_.size() > before; order_.pop_back()) choices_.erase(order_.back());
  return {};
}

int Mover::grown(Choice& choice, bool last) {
  int growth = 0;
  for (const Key& operand : choice.operands) growth += decide(operand, last && readers(operand.first) == 1);
  return growth;
}

// A transpose wanted permuted is its operand permuted another way; a reshape wanted in a shape is its operand so.
bool Mover::meets(Choice& choice, const ir::Op& op, const Wanted& wanted) const {
  if (wanted.kind == Kind::permuted && op.def == &ops::transpose_def) {
    choice.operands = {{op.inputs[0], {Kind::permuted, permuted(op.attrs.get_ints("perm"), wanted.of)}}};
    return true;
  }
  if (wanted.kind == Kind::reshaped && op.def == &ops::reshape_def) {
    choice.operands = {{op.inputs[0], wanted}};
    return true;
  }
  return false;
}

bool Mover::passes(Choice& choice, const ir::Op& op, const Wanted& wanted) const {
  choice.attrs = op.attrs;
  if (op.def->is(ir::kPointwise)) return passes_pointwise(choice, op, wanted);
  if (wanted.kind != Kind::permuted) return false;
  if (is_reduction(op)) return passes_reduction(choice, op, wanted);
  return op.def == &ops::reshape_def && passes_reshape(choice, op, wanted);
}

// Element by element: the operands go the way of the result. One element broadcasts to any shape.
bool Mover::passes_pointwise(Choice& choice, const ir::Op& op, const Wanted& wanted) const {
  const TensorType& result = graph_.type(op.outputs[0]);
  for (ValueId v : op.inputs) {
    const Shape& shape = graph_.type(v).shape;
    if (shape.elements() == 1 && shape.rank() <= static_cast<int>(wanted.of.size()) && result.shape.elements() != 1) {
      choice.operands.push_back({v, {Kind::reshaped, ops::to_vector(shape)}});
    } else if (wanted.kind == Kind::permuted) {
      if (!operand_of_permuted(choice, v, wanted.of)) return false;
    } else {
      if (shape != result.shape) return false;
      choice.operands.push_back({v, wanted});
    }
  }
  return true;
}

// An operand of fewer axes than the result has axes of extent 1 in front.
bool Mover::operand_of_permuted(Choice& choice, ValueId v, const Ints& perm) const {
  const Ints dims = ops::to_vector(graph_.type(v).shape);
  if (dims.size() == perm.size()) {
    choice.operands.push_back({v, {Kind::permuted, perm}});
    return true;
  }
  Ints whole(perm.size() - dims.size(), 1);
  whole.insert(whole.end(), dims.begin(), dims.end());
  if (!keeps_order(whole, perm)) return false;
  choice.operands.push_back({v, {Kind::reshaped, permuted(whole, perm)}});
  return true;
}

bool Mover::vanishes(ValueId v, const Ints& perm) const {
  const ir::Op* op = producer(v);
  const bool met = op != nullptr && op->def == &ops::transpose_def;
  return is_identity(met ? permuted(op->attrs.get_ints("perm"), perm) : perm);
}

// The result's axes are permuted and the reduced ones put between them, in order, where the axis kind stays: then each
// result is the same elements reduced along the same tree. Of several places one where nothing is left to permute.
bool Mover::passes_reduction(Choice& choice, const ir::Op& op, const Wanted& wanted) const {
  if (op.attrs.get_bool("keepdims")) return false;
  const ValueId x = op.inputs[0];
  const Shape& shape = graph_.type(x).shape;
  const Ints axes = op.attrs.get_ints("axes");
  const bool row = ops::reduce_dims(shape, op.attrs).inner == 1;
  Ints kept;
  for (int64_t i = 0; i < shape.rank(); ++i) {
    if (std::find(axes.begin(), axes.end(), i) == axes.end()) kept.push_back(i);
  }
  kept = permuted(kept, wanted.of);
  choice.operands.clear();
  for (size_t at = 0; at <= kept.size(); ++at) {
    int64_t inner = 1;
    for (size_t i = at; i < kept.size(); ++i) inner *= shape[static_cast<int>(kept[i])];
    if ((inner == 1) != row) continue;
    Ints perm = kept;
    perm.insert(perm.begin() + static_cast<std::ptrdiff_t>(at), axes.begin(), axes.end());
    if (!choice.operands.empty() && !vanishes(x, perm)) continue;
    Ints place;
    for (size_t i = 0; i < axes.size(); ++i) place.push_back(static_cast<int64_t>(at + i));
    choice.operands = {{x, {Kind::permuted, perm}}};
    choice.attrs.set("axes", place);
  }
  return !choice.operands.empty();
}

// Matrices swapped, and their leading axes in another shape: either first.
bool Mover::passes_reshape(Choice& choice, const ir::Op& op, const Wanted& wanted) const {
  const ValueId x = op.inputs[0];
  const Ints from = ops::to_vector(graph_.type(x).shape);
  Ints to = ops::to_vector(graph_.type(op.outputs[0]).shape);
  const bool matrices = from.size() >= 2 && to.size() >= 2 && std::equal(from.end() - 2, from.end(), to.end() - 2);
  if (!matrices || wanted != swapped_last(static_cast<int>(to.size()))) return false;
  std::swap(to[to.size() - 1], to[to.size() - 2]);
  choice.operands = {{x, swapped_last(static_cast<int>(from.size()))}};
  choice.attrs.set("shape", to);
  return true;
}

ValueId Mover::emit(ir::Rewriter& rewriter) {
  built_.clear();
  return build(rewriter, root_);
}

ValueId Mover::build(ir::Rewriter& rewriter, const Key& key) {
  if (const auto it = built_.find(key); it != built_.end()) return it->second;
  const auto& [v, wanted] = key;
  const Choice& choice = choices_.at(key);
  ir::Graph& target = rewriter.target();
  const auto add = [&](const ir::OpDef& def, std::vector<ValueId> in, ir::Attrs attrs) {
    return target.op(target.add_op(def, std::move(in), std::move(attrs))).outputs[0];
  };
  ValueId result = kNoValue;
  switch (choice.kind) {
    case Choice::Kind::as_is:
      result = rewriter.map(v);
      break;
    case Choice::Kind::other:
      result = build(rewriter, choice.operands[0]);
      break;
    case Choice::Kind::through: {
      std::vector<ValueId> in;
      for (const Key& operand : choice.operands) in.push_back(build(rewriter, operand));
      result = add(*producer(v)->def, std::move(in), choice.attrs);
      break;
    }
    case Choice::Kind::moved: {
      const Ints dims = ops::to_vector(graph_.type(v).shape);
      const bool permutes = wanted.kind == Kind::permuted && !keeps_order(dims, wanted.of);
      const Ints shape = wanted.kind == Kind::permuted ? permuted(dims, wanted.of) : wanted.of;
      result = permutes ? add(ops::transpose_def, {rewriter.map(v)}, {{"perm", wanted.of}})
                        : add(ops::reshape_def, {rewriter.map(v)}, {{"shape", shape}});
      break;
    }
  }
  built_[key] = result;
  return result;
}

}  // namespace aicf::passes
