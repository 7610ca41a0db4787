// Moves a transpose or a reshape up through the ops above it, to where it meets another and both vanish.
#pragma once

#include <compare>
#include <map>
#include <utility>
#include <vector>

#include "ir/graph.h"
#include "ir/op.h"
#include "ir/rewriter.h"

namespace aicf::passes {

// What a value is wanted as: with axis i its axis of[i], or in the shape `of`.
struct Wanted {
  enum class Kind : uint8_t { permuted, reshaped } kind;
  std::vector<int64_t> of;
  auto operator<=>(const Wanted&) const = default;
};

// Permuted so that the last two of `rank` axes are swapped.
Wanted swapped_last(int rank);

// Decides how to have a value of a graph as wanted with the fewest ops: through ops that have no other reader and give
// the same bits either way, which are pointwise ops and reductions whose tree stays the same.
class Mover {
 public:
  explicit Mover(const ir::Graph& graph);

  // Live ops, updates and outputs that read the value.
  int readers(ir::ValueId v) const { return readers_[static_cast<size_t>(v)]; }
  // By how many ops the graph grows when a reader of `v` reads it as wanted instead. `last`: none else reads it.
  int growth(ir::ValueId v, const Wanted& wanted, bool last);
  // Emits what growth() was last called with. REQUIRES: the rewriter has come as far as v.
  ir::ValueId emit(ir::Rewriter& rewriter);

 private:
  using Key = std::pair<ir::ValueId, Wanted>;
  // How one value is had: as it is, as another value wanted some way, or as its op with its operands wanted some way.
  struct Choice {
    enum class Kind : uint8_t { as_is, moved, other, through } kind = Kind::moved;
    int growth = 1;
    std::vector<Key> operands = {};
    ir::Attrs attrs = {};
  };

  int decide(const Key& key, bool last);
  Choice choose(const Key& key, bool last);
  int grown(Choice& choice, bool last);
  bool meets(Choice& choice, const ir::Op& op, const Wanted& wanted) const;
  bool passes(Choice& choice, const ir::Op& op, const Wanted& wanted) const;
  bool passes_pointwise(Choice& choice, const ir::Op& op, const Wanted& wanted) const;
  bool passes_reduction(Choice& choice, const ir::Op& op, const Wanted& wanted) const;
  bool passes_reshape(Choice& choice, const ir::Op& op, const Wanted& wanted) const;
  bool operand_of_permuted(Choice& choice, ir::ValueId v, const std::vector<int64_t>& perm) const;
  bool vanishes(ir::ValueId v, const std::vector<int64_t>& perm) const;
  ir::ValueId build(ir::Rewriter& rewriter, const Key& key);
  const ir::Op* producer(ir::ValueId v) const;

  const ir::Graph& graph_;
  std::vector<int> readers_;
  Key root_ = {};
  std::map<Key, Choice> choices_;
  std::vector<Key> order_;  // in which they were made
  std::map<Key, ir::ValueId> built_;
};

}  // namespace aicf::passes
