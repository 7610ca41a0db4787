// Kernels of matmul: "reference", whose sums run in index order, and "packed", the fast one of f32 sums.
#include <algorithm>
#include <memory>

#include "backend/cpu/gemm.h"
#include "backend/cpu/gemm_kernel.h"
#include "backend/cpu/kernels.h"

namespace aicf::backend::cpu {
namespace {

// For each index of the broadcast leading axes `lead`, in order: which matrix of an operand it reads.
std::vector<int64_t> matrix_of_product(const Shape& operand, std::span<const int64_t> lead) {
  const int axes = static_cast<int>(lead.size()), missing = axes - (operand.rank() - 2);
  std::vector<int64_t> matrix = {0};
  for (int axis = 0; axis < axes; ++axis) {
    const int64_t extent = axis < missing ? 1 : operand[axis - missing];
    std::vector<int64_t> next;
    next.reserve(matrix.size() * static_cast<size_t>(lead[axis]));
    for (const int64_t outer : matrix) {
      for (int64_t i = 0; i < lead[axis]; ++i) next.push_back(outer * extent + (extent == 1 ? 0 : i));
    }
    matrix = std::move(next);
  }
  return matrix;
}

int64_t matrices_in(const Shape& shape) {
  int64_t count = 1;
  for (int axis = 0; axis < shape.rank() - 2; ++axis) count *= shape[axis];
  return count;
}

MatmulDims dims_of(const KernelQuery& query) {
  const Shape &a = query.in[0].shape, &out = query.out[0].shape;
  const std::span<const int64_t> lead = out.dims().first(out.rank() - 2);
  MatmulDims dims;
  dims.staging = matmul_staging(query);
  dims.ta = query.attrs.get_bool("ta");
  dims.tb = query.attrs.get_bool("tb");
  dims.m = out[out.rank() - 2];
  dims.n = out[out.rank() - 1];
  dims.k = a[a.rank() - (dims.ta ? 2 : 1)];
  dims.a_matrices = matrices_in(a);
  dims.b_matrices = matrices_in(query.in[1].shape);
  dims.a_matrix = matrix_of_product(a, lead);
  dims.b_matrix = matrix_of_product(query.in[1].shape, lead);
  // One B for every product: their rows are rows of one product.
  if (!dims.ta && dims.b_matrices == 1 && dims.a_matrices == dims.batch()) {
    dims.m *= dims.batch();
    dims.a_matrices = std::min<int64_t>(dims.a_matrices, 1);
    dims.a_matrix.resize(dims.a_matrices);
    dims.b_matrix.resize(dims.a_matrices);
  }
  return dims;
}

bool is_f64(const KernelQuery& query) { return query.out[0].dtype == f64; }
// The record has seen to it that the operands fit.
bool has_f32_sums(const KernelQuery& query) { return is_float(query.out[0].dtype) && !is_f64(query); }

// A multiply-add of the reference takes about four cycles: each waits for the one before.
constexpr double kReferenceMicroseconds = 4.0 / 3000;

double reference_microseconds(const MatmulDims& dims) {
  return kReferenceMicroseconds * static_cast<double>(dims.batch()) * static_cast<double>(dims.m * dims.n) *
         static_cast<double>(dims.k);
}

struct Reference : MatmulStaging {
  MatmulDims dims;
};

template <class T>
void reference(const KernelArgs& args, int part, int parts) {
  const auto& staging = *static_cast<const MatmulStaging*>(args.params);
  const MatmulDims& dims = static_cast<const Reference&>(staging).dims;
  const auto elements = [&](size_t i) { return reinterpret_cast<T*>(staging.places[i].in(args)); };
  const int64_t all_rows = dims.batch() * dims.m;
  if (dims.k == 0) {  // no operand to point into
    std::fill_n(elements(2) + share_begin(all_rows, part, parts) * dims.n,
                (share_begin(all_rows, part + 1, parts) - share_begin(all_rows, part, parts)) * dims.n, T{0});
    return;
  }
  const int64_t a_depth = dims.ta ? dims.m : 1, b_depth = dims.tb ? 1 : dims.n, b_col = dims.tb ? dims.k : 1;
  for (int64_t i = share_begin(all_rows, part, parts); i < share_begin(all_rows, part + 1, parts); ++i) {
    const int64_t product = i / dims.m, row = i % dims.m;
    const T* a = elements(0) + dims.a_matrix[product] * dims.m * dims.k + row * (dims.ta ? 1 : dims.k);
    const T* b = elements(1) + dims.b_matrix[product] * dims.k * dims.n;
    T* out = elements(2) + i * dims.n;
    for (int64_t j = 0; j < dims.n; ++j) {
      T sum = 0;
      for (int64_t k = 0; k < dims.k; ++k) sum += a[k * a_depth] * b[k * b_depth + j * b_col];
      out[j] = sum;
    }
  }
}

bool accepts_reference(const KernelQuery& query) { return is_float(query.out[0].dtype); }
double cost_reference(const KernelQuery& query) { return reference_microseconds(dims_of(query)); }

PreparedKernel prepare_reference(const KernelQuery& query) {
  PreparedKernel kernel = {.variant = "reference"};
  note_choice(query, kernel.variant);
  const MatmulDims dims = dims_of(query);
  if (dims.empty()) return kernel;
  const int64_t most = std::min<int64_t>(dims.batch() * dims.m, 64);
  const int64_t parts = std::clamp<int64_t>(static_cast<int64_t>(reference_microseconds(dims) / 20), 1, most);
  const auto params = std::make_shared<const Reference>(Reference{dims.staging, dims});
  kernel.workspace_bytes = params->workspace_bytes;
  params->add_phases(kernel, 0, 1);
  kernel.phases.push_back({is_f64(query) ? reference<double> : reference<float>, static_cast<int>(parts)});
  params->add_phases(kernel, 2, 2);
  kernel.params = std::shared_ptr<const MatmulStaging>(params);
  return kernel;
}

bool accepts_packed(const KernelQuery& query) { return has_f32_sums(query); }
double cost_packed(const KernelQuery& query) { return packed_matmul_cost(dims_of(query)); }
PreparedKernel prepare_packed(const KernelQuery& query) {
  PreparedKernel kernel = prepare_packed_matmul(dims_of(query));
  note_choice(query, kernel.variant);
  return kernel;
}

}  // namespace

void register_matmul(KernelTable& table) {
  table.push_back({"matmul", "reference", accepts_reference, cost_reference, prepare_reference});
  table.push_back({"matmul", "packed", accepts_packed, cost_packed, prepare_packed});
}

}  // namespace aicf::backend::cpu
