// Which of cuBLASLt's algorithms a matmul runs.
#pragma once

#include <array>
#include <optional>

#include "backend/cuda/cublaslt.h"

namespace aicf::backend::cuda {

// Of whole buffers: operands and result.
using MatmulBytes = std::array<size_t, 3>;

// The first of the library's estimate that runs or, with tuning.measure, the fastest by measurement on scratch memory;
// each is run there before it is taken. Known choices are kept for the life of the process, measured ones on disk too.
// Nothing: none runs. Thread-safe, one choice at a time. Throws Error when the device fails.
std::optional<Algorithm> choose_algorithm(const Product& product, const MatmulBytes& bytes, const Tuning& tuning);

}  // namespace aicf::backend::cuda
