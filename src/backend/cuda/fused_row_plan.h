// How the rows of a region are shared out among threads, and what a thread keeps from stage to stage.
#pragma once

#include <cstdint>
#include <vector>

#include "backend/cuda/fused.h"

namespace aicf::backend::cuda {

// Stage s computes what the reductions of stage s + 1 are of; in the last one there are results left to compute.
struct RowPlan {
  explicit RowPlan(const RegionKernels& kernels);

  int last_stage = 0;
  int element_stage = 0;                  // the last in which elements are computed
  std::vector<std::vector<bool>> visits;  // by stage and node that varies along a row: it is used there

  // An array of the node's elements is filled in stage `first` and used until `last`. first < 0: there is none.
  struct Array {
    int first = -1, last = -1;
  };
  std::vector<Array> arrays;  // by node

  int64_t rows = 1, n = 1;
  int64_t blocks = 1;        // of the reduction tree, in a row
  int64_t chunks = 1;        // of rows, for column nodes
  int group = 1;             // threads of a block: thread t has the lanes (v * group + t) * length + l
  int vectors = 1;           // v
  int length = 1;            // l
  int block_packs = 1;       // of a thread in one block
  int groups = 1;            // that share a row
  int group_blocks = 1;      // blocks that each of them takes
  bool resident = true;      // arrays last from stage to stage; else each stage reads the row again
  bool columns_kept = true;  // partial sums of columns are in registers; else in the workspace
  bool spread = false;       // each block is a unit of its own and its result goes to the workspace
  int units = 1;             // rows, chunks or, spread, blocks that a thread block takes
  int threads = 128;
  int64_t thread_blocks = 1;

  // Every thread of a block has elements for all of its packs.
  bool is_exact() const;

 private:
  void find_stages();
  void share_out();
  void choose_arrays(bool keep);
  void demand(int node, int stage);
  void demand_all();
  bool is_stream(int node) const;
  int64_t kept_words() const;
  int64_t pack_words(int node) const;

  const RegionKernels& kernels_;
  const ops::Loops& loops_;
  std::vector<int> cut_;  // by node: the stage from which on it is kept, or -1
};

}  // namespace aicf::backend::cuda
