// The kernels of fused regions, by kind of loops.
#pragma once

#include <memory>
#include <vector>

#include "backend/api.h"
#include "backend/cpu/tile_program.h"
#include "ops/loops.h"

namespace aicf::backend::cpu {

// Parameters of every phase: `params` is a pointer to it.
struct FusedParams {
  Program main;
  int64_t outer = 1, n = 1, inner = 1;  // of the reductions
  int64_t chunks = 1;                   // of the rows that one column result takes: blocks of kColumnChunk

  // Reductions whose partial results meet after `main`.
  struct Meeting {
    Partial partial = {};
    At finished = {};              // where the results go, in order; of column nodes: where they are
    std::vector<At> results = {};  // of column nodes: in the region's buffers
    TileFn narrow = nullptr;       // to the results' dtype
  };
  std::vector<Meeting> meetings;
  Program finish;  // of the values that come after the reductions

  PreparedKernel matmul;
  std::vector<At> matmul_buffers;
};

struct FusedQuery {
  const ops::Loops& loops;
  const ir::Graph& region;
  int operands = 0, results = 0;
  Tuning tuning = {};

  int workspace() const { return operands + results; }
  std::vector<int> axes(int begin, int end) const;
  std::vector<int> all_axes() const { return axes(0, static_cast<int>(loops.dims.size())); }
  // Nodes of the kind, in order.
  std::vector<int> nodes(ops::Loops::Node::Kind kind) const;
};

// Space in the workspace of a kernel being prepared.
At reserve(PreparedKernel& kernel, const FusedQuery& query, size_t bytes);
int parts_for(int64_t elements, int64_t units);

// Each prepares the kernel, or returns false: the region does not fit the scratch.
bool prepare_elements(const FusedQuery& query, FusedParams& params, PreparedKernel& kernel);
bool prepare_rows(const FusedQuery& query, FusedParams& params, PreparedKernel& kernel);
bool prepare_reduce(const FusedQuery& query, FusedParams& params, PreparedKernel& kernel);
bool prepare_epilogue(const FusedQuery& query, FusedParams& params, PreparedKernel& kernel);

inline const FusedParams& fused_params(const KernelArgs& args) { return *static_cast<const FusedParams*>(args.params); }

}  // namespace aicf::backend::cpu
