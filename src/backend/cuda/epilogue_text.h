// What becomes of a matmul's sums, as text: the nodes of an epilogue region for pairs of neighbouring sums in
// registers.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "backend/cuda/code.h"
#include "backend/cuda/loops_text.h"
#include "ops/loops.h"

namespace aicf::backend::cuda {

// Loops of one product node and what is computed from it; with nothing else they are a plain matmul, whose operands are
// the first two buffers.
ops::Loops plain_loops(DType result, int64_t elements);
int product_node(const ops::Loops& loops);

// A thread loads for several pairs at once, before the sums if it is for all of them, then computes and writes: in one
// loop each pair would wait for its own loads, for a result may have the storage of an operand. The names that its
// statements read: `count` sums of the pair, 1 or 2, in v[q][0] and v[q][1], of element `at_element`, row `outer` and
// column `inner` of all rows and columns; `p`, the pair's number in the group.
class EpilogueText {
 public:
  // Rows have `columns` elements. Operand k is buffer k of the launch, result r buffer first_result + r.
  EpilogueText(const ops::Loops& loops, int64_t columns, int first_result);

  const std::vector<Generated::Param>& params() const { return params_; }
  // The buffer of an operand of the product.
  int factor(int i) const;
  const IndexText& index() const { return index_; }

  // Pairs whose loads are in flight together: a divisor of `pairs`.
  int group(int pairs) const;
  std::string arrays(int group) const;

  std::string helpers() const;                              // device functions that the texts use
  const std::string& once() const { return once_; }         // before all
  const std::string& loads() const { return loads_text_; }  // of a pair
  const std::string& compute() const { return compute_; }   // of a pair, with its writes

 private:
  enum class Access { none, pack, repeated, apart };

  void find_axes(int64_t columns);
  void find_accesses();
  std::string coordinates(const char* outer, const char* inner, const char* element, const std::string& prefix,
                          std::vector<std::string>& names) const;
  void write_params();
  void write_once(NodeText& scalars, NodeText& element);
  void write_loads(const NodeText& pair, const NodeText& element, const std::string& pair_coordinates,
                   const std::string& element_coordinates);
  void write_compute(NodeText& element, const std::string& element_coordinates);
  std::string type(int node) const;

  const ops::Loops& loops_;
  const int64_t columns_;
  const int first_result_;
  IndexText index_;
  size_t inner_axes_ = 0;  // the first axis within a row; all axes where no axis ends with a row
  bool by_rows_ = false;   // the axes are those of rows, then those within one
  bool even_ = false;      // every pair is one, and begins at an even element
  std::vector<bool> needed_, once_nodes_;
  std::vector<Access> access_;
  std::vector<Generated::Param> params_;
  std::string once_, loads_text_, compute_;
};

}  // namespace aicf::backend::cuda
