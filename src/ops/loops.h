// A fused region as loops over one index space: what the passes ask whether ops may become one region, and what each
// backend generates its code from.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "ir/op.h"

namespace aicf::ops {

struct Loops {
  // pointwise: no reduction.
  // row: reductions over the innermost axes whose results are used with elements of the same row again; also sums over
  //      all rows (`column` nodes).
  // reduce: reductions whose results are used only after them.
  // epilogue: pointwise, of the elements of a matmul's result (one `product` node).
  enum class Kind : uint8_t { pointwise, row, reduce, epilogue };

  // An element of a tensor: its linear index is offset + Σ coordinate · stride over the axes of the space.
  struct Place {
    std::vector<int64_t> strides;
    int64_t offset = 0;
    bool operator==(const Place&) const = default;
  };

  struct Node {
    enum class Kind : uint8_t {
      load,  // element `place` of an operand, `pick` further for each unit of inputs[0] if there is one; 0 when that
             // is not in [0, extent)
      constant,  // `data`, one element
      index,     // the number that `place` gives, in the node's dtype
      bits,      // element `place` of a draw of rng_bits; inputs: seed, offset
      product,   // element `place` of the result of a matmul of the operands `factors`
      op,        // a pointwise op of the inputs
      reduce,    // of inputs[0] over the reduced axes
      column,    // reduce_sum and so on of inputs[0] over the axes before the reduced ones; row kind, a result only
    };
    Kind kind = Kind::op;
    DType dtype = f32;
    Place place = {};
    int operand = -1;
    std::array<int, 2> factors = {-1, -1};
    int64_t pick = 0, extent = 0;
    std::shared_ptr<const Tensor> data = {};
    const ir::OpDef* def = nullptr;  // op, reduce, column, bits, product
    ir::Attrs attrs = {};
    std::vector<int> inputs = {};  // earlier nodes
    uint64_t axes = 0;             // bit k: it varies along axis k
    int stage = 0;                 // reductions (not columns) on the longest path to it
  };

  struct Result {
    int node = -1;
    Place place;  // dense over the axes along which the result has elements
  };

  Kind kind = Kind::pointwise;
  // Extents of the axes, outermost first, none of them 1. Axes [first_reduced, end_reduced) are those reduced over; in
  // the row kind they are the last ones.
  std::vector<int64_t> dims;
  int first_reduced = 0, end_reduced = 0;
  std::vector<Node> nodes;
  std::vector<Result> results;  // in the region's order

  int64_t product(int begin, int end) const;  // of extents
  int64_t elements() const { return product(0, static_cast<int>(dims.size())); }
  int64_t outer() const { return product(0, first_reduced); }
  int64_t n() const { return product(first_reduced, end_reduced); }
  int64_t inner() const { return product(end_reduced, static_cast<int>(dims.size())); }
  uint64_t reduced_mask() const { return mask(first_reduced, end_reduced); }
  static uint64_t mask(int begin, int end) { return ((uint64_t{1} << (end - begin)) - 1) << begin; }
  // The node has one value for all elements of a reduction.
  bool is_kept(int node) const { return (nodes[static_cast<size_t>(node)].axes & reduced_mask()) == 0; }
};

// The loops of a region; nullopt, and why not, when there are none. Regions hold pointwise ops, reductions, reshape,
// broadcast, transpose, slice, iota, gather from an operand, rng_bits, and constants whose elements are all equal; one
// of them may be a matmul of operands. No tensor in it may be empty. Views cost nothing: they become strides of the
// loads.
std::optional<Loops> loops_of(const ir::Graph& region, std::string* why = nullptr);

// An op that a region may hold any number of.
bool is_fusible(const ir::OpDef& def);

// Result i may take the storage of operand j: they have one type, and j is read only at the index that is written.
std::vector<ir::AliasRule> alias_rules_of(const Loops& loops, const ir::Graph& region);

}  // namespace aicf::ops
