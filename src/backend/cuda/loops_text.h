// The nodes of a region's loops as text: the statements that compute them for one element.
#pragma once

#include <string>
#include <vector>

#include "backend/cuda/code.h"
#include "backend/cuda/index_space.h"
#include "backend/cuda/scalar.h"
#include "ops/loops.h"

namespace aicf::backend::cuda {

// The type of an element in memory; in loops that only move elements, f64 too, its bits.
std::string element_type(const ops::Loops& loops, DType dtype);

// The number of the widest index or offset that a kernel over these loops forms.
int64_t largest_index(const ops::Loops& loops);

// Statements that define lit0, lit1, …: the region's constants, by node. The compiler does not see the values of floats: it
// would take x * 1 for x, which skips the flush of a subnormal.
std::string constants_text(const ops::Loops& loops);

// By node: it is one of `roots` or in what they are computed from.
std::vector<bool> needed_nodes(const ops::Loops& loops, const std::vector<int>& roots);
// The pointers to the operands that these nodes read.
std::vector<Generated::Param> operand_params(const ops::Loops& loops, const std::vector<bool>& needed);

// The load takes `width` elements that are adjacent along the last axis by one access, wherever a pack of them starts
// at a multiple of the width.
bool is_pack(const ops::Loops& loops, int load, int64_t width);

// Nodes of one scope of a kernel. An operand k is a pointer xk, constants are named as constants_text() does.
class NodeText {
 public:
  // `coordinates`: expressions for the element's coordinates, by axis; those of axes along which nothing asked for
  // varies are not read. Names that it defines begin with `prefix`.
  NodeText(const ops::Loops& loops, const IndexText& index, std::string prefix, std::vector<std::string> coordinates);

  // Where the element of a load is: xk[offset] if `condition` ("": always) holds, else 0.
  struct Where {
    std::string offset, condition;
  };
  // May add statements.
  Where where(int load);
  std::string offset(const ops::Loops::Place& place) const;

  // The node's element, as it is in memory, is this expression, from here on. For products, reductions and columns, for
  // loads done otherwise, and for what an outer scope has computed.
  void set(int node, std::string element);
  bool has(int node) const { return values_[static_cast<size_t>(node)] >= 0; }
  // An expression for the node's element as it is in memory; may add statements.
  std::string element(int node);
  // An expression for the pack of a load that is one; may add statements.
  std::string pack(int load, int64_t width);
  // The statements added since it was last called.
  std::string take();

 private:
  int value(int node);
  int computed(int node);
  std::string load(int node);

  const ops::Loops& loops_;
  const IndexText& index_;
  std::vector<std::string> coordinates_;
  Scalars scalars_;
  std::vector<int> values_;  // by node: the number in scalars_, or -1
  size_t taken_ = 0;
};

}  // namespace aicf::backend::cuda
