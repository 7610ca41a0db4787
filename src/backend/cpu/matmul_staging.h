// What a matmul does before and after its products: operands of another format than f32 are converted into the
// workspace, and sums that are rounded to one come from there.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

#include "backend/api.h"
#include "backend/cpu/pointwise.h"
#include "backend/cpu/pointwise_tables.h"

namespace aicf::backend::cpu {

// An address relative to a launch: one of its buffers, and bytes into it.
struct Place {
  int buffer = 0;
  size_t offset = 0;

  char* in(const KernelArgs& args) const { return static_cast<char*>(args.buffers[buffer]) + offset; }
};
inline constexpr int kMatmulWorkspace = 3;  // operands are buffers 0 and 1, the result is 2

// Elements from one place to another.
struct Conversion {
  Place from, to;
  size_t from_size = 0, to_size = 0;  // of an element
  int64_t elements = 0;               // 0: there is nothing to convert
  TileFn convert = nullptr;
};

// Parameters of every phase of a matmul begin with this: params is a pointer to it.
struct MatmulStaging {
  std::array<Conversion, 3> conversions;                     // of a, b, and the result
  std::array<Place, 3> places = {{{0, 0}, {1, 0}, {2, 0}}};  // where the products read and write
  size_t workspace_bytes = 0;

  // Appends the phases of these conversions.
  void add_phases(PreparedKernel& kernel, int first, int last) const;
};

// REQUIRES: the types are what matmul's record allows (f64 is left alone).
MatmulStaging matmul_staging(const KernelQuery& query);

}  // namespace aicf::backend::cpu
