// Registration of the CUDA kernels: one function per primitive, and the pointwise table.
#pragma once

#include <vector>

#include "backend/api.h"

namespace aicf::backend::cuda {

using KernelTable = std::vector<Kernel>;

#define AICF_OP(name) void register_##name(KernelTable& table);
#include "ops/ops.def"

// Every pointwise op of ops.def, generated from the record's expression.
void register_pointwise(KernelTable& table);

// Of fused regions of a matmul and what follows it.
void add_epilogue_kernels(KernelTable& table);

// All of them (defined in kernels.cc).
const KernelTable& kernel_table();

}  // namespace aicf::backend::cuda
