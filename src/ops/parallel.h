// The ops of a `parallel`, and where among its buffers theirs are: in ops and kernels alike.
#pragma once

#include <vector>

#include "ir/op.h"

namespace aicf::ops {

struct ParallelMember {
  const ir::Op* op = nullptr;  // of the body
  std::vector<TensorType> in, out;
  std::vector<int> buffers;  // of the parallel op's operands and results in order, those of `in` and `out`
};
std::vector<ParallelMember> parallel_members(const ir::Graph& body);

}  // namespace aicf::ops
