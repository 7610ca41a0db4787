// Pieces of generated text.
#pragma once

#include <cstdint>
#include <initializer_list>
#include <string>
#include <utility>

#include "aicf/dtype.h"

namespace aicf::backend::cuda {

// Kernels that move or count are written once, as text over constants and type names; what varies is put before it.

// "constexpr int N = 10;\n…"; i64 where int does not hold the value.
std::string constants(std::initializer_list<std::pair<const char*, int64_t>> list);
// "typedef float In;\n…"
std::string types(std::initializer_list<std::pair<const char*, std::string>> list);

// The type of an element in memory, as prelude.h names it.
const char* c_type(DType dtype);
// What a dtype is compared and summed in: float, int or i64.
const char* wide_type(DType dtype);
// What holds an index below `elements`, with room to spare: int or i64.
const char* index_type(int64_t elements);

// Elements of `size` bytes that one access of at most `bytes` moves, in rows of n elements that follow one another.
int vector_length(int64_t n, size_t size, size_t bytes = 16);

// Units of work below which the device's threads outnumber them: the shortest way through one counts, and no longer
// the bytes in flight.
inline constexpr int64_t kFewThreads = 132 * 512;

}  // namespace aicf::backend::cuda
