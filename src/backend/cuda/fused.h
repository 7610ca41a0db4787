// Kernels of fused regions that reduce (elementwise.h has the pointwise ones).
#pragma once

#include <string>
#include <vector>

#include "backend/api.h"
#include "backend/cuda/code.h"
#include "backend/cuda/loops_text.h"
#include "backend/cuda/reduce_text.h"
#include "ops/loops.h"

namespace aicf::backend::cuda {

// Loops of one element have no axes; the generators want one.
void give_an_axis(ops::Loops& loops);

// What the kernels of one region share: its buffers, and the workspace that they hand partial results on in.
class RegionKernels {
 public:
  // Operand k is buffer k of the launch, result r buffer first_result + r, the workspace comes after the results.
  RegionKernels(std::string what, const ops::Loops& loops, int first_result);

  const ops::Loops& loops() const { return loops_; }
  const ops::Loops::Node& node(int id) const { return loops_.nodes[static_cast<size_t>(id)]; }
  const IndexText& index() const { return index_; }

  // It varies along the reduced axes.
  bool varies(int id) const { return !loops_.is_kept(id); }
  bool is_column(int result) const;
  // It has an element for every element of the space; else one for every reduction, or every column.
  bool is_full(int result) const;
  std::vector<int> of_kind(ops::Loops::Node::Kind kind) const;  // ids of nodes

  // The namespace of the reduction's identity, combine, Acc and so on (reduce_text.h).
  static std::string space(const ops::Loops::Node& reduction);
  static size_t accumulator_size(const ops::Loops::Node& reduction);
  // One for each reduction: `name`N.
  static std::string name(const char* prefix, int id);

  // Memory for `elements` accumulators of a reduction; the pointer to it is `prefix` and the reduction's id. Its
  // declaration is to be part of the kernel's body.
  std::string workspace(const char* prefix, int reduction, int64_t elements);

  // Adds a kernel that reads the operands of the needed nodes and writes those results.
  void add(const std::string& body, const std::vector<bool>& needed, const std::vector<int>& results, int64_t blocks,
           int threads);
  // Statements that store results that are not full: of `scope`, which has all coordinates they vary along.
  std::string store_kept(NodeText& scope, const std::vector<int>& results) const;
  std::vector<int> kept_results() const;

  PreparedKernel prepared_kernel(const char* variant);

 private:
  const std::string what_;
  const ops::Loops& loops_;
  const int first_result_;
  const IndexText index_;
  std::string helpers_;
  std::vector<Generated> kernels_;
  size_t workspace_bytes_ = 0;
};

// Names for coordinates: `prefix`K for axis K.
std::vector<std::string> coordinate_names(const ops::Loops& loops, const char* prefix);

// Reductions over adjacent elements, and sums over rows beside them.
void add_row_kernels(RegionKernels& kernels);
// Reductions over elements that are inner() apart.
void add_column_kernels(RegionKernels& kernels);

// Partial results in the workspace, `count` for each of outer · inner reductions: (outer, count, inner) accumulators.
struct Partials {
  std::vector<int> reductions;            // nodes
  std::vector<std::string> declarations;  // of pointers w and the node's id
  int64_t outer = 1, count = 1, inner = 1;
};
// The kernels that finish them, and write the results that follow: rows (inner is 1) or columns.
void finish_rows(RegionKernels& kernels, Partials partials);
void finish_columns(RegionKernels& kernels, Partials partials);

}  // namespace aicf::backend::cuda
