// Which of cuBLASLt's algorithms a matmul runs, and the timing of ways to run one.
#pragma once

#include <array>
#include <functional>
#include <optional>
#include <vector>

#include "backend/cuda/cublaslt.h"

namespace aicf::backend::cuda {

// Of whole buffers: operands and result.
using MatmulBytes = std::array<size_t, 3>;

// The first of the library's estimate that runs or, with tuning.measure, the fastest by measurement on scratch memory;
// each is run there before it is taken. Known choices are kept for the life of the process, measured ones on disk too.
// Nothing: none runs. Thread-safe, one choice at a time. Throws Error when the device fails.
std::optional<Algorithm> choose_algorithm(const Product& product, const MatmulBytes& bytes, const Tuning& tuning);

// All of the algorithm, to be had again by the same library on the same device.
std::string text_of(const Algorithm& algorithm);
// The one of this text; nothing when it does not run. Thread-safe. Throws Error when the device fails.
std::optional<Algorithm> known_algorithm(const Product& product, const MatmulBytes& bytes, const std::string& text);

// Enqueues a matmul. Buffers: A, B, the result, workspace.
using MatmulRun = std::function<void(cudaStream_t stream, void* const* buffers)>;

// The fastest of several, all of which run, by measurement on scratch memory; nothing when there is no time or memory
// for it. Throws Error when the device fails.
std::optional<int> fastest(const std::vector<MatmulRun>& ways, const MatmulBytes& bytes, size_t workspace_bytes,
                           const Tuning& tuning);

}  // namespace aicf::backend::cuda
