#include "backend/cpu/matmul_staging.h"

#include <string>

#include "aicf/error.h"
#include "backend/cpu/partition.h"

namespace aicf::backend::cpu {
namespace {

constexpr size_t kAlignment = 256;

template <int which>
void convert(const KernelArgs& args, int part, int parts) {
  const Conversion& c = static_cast<const MatmulStaging*>(args.params)->conversions[which];
  const Range range = share(c.elements, part, parts);
  const void* from = c.from.in(args) + static_cast<size_t>(range.begin) * c.from_size;
  void* to = c.to.in(args) + static_cast<size_t>(range.begin) * c.to_size;
  c.convert(&from, to, static_cast<size_t>(range.end - range.begin));
}
constexpr CpuKernelFn kConvert[] = {convert<0>, convert<1>, convert<2>};

int64_t elements_of(const TensorType& type) { return type.shape.elements(); }

}  // namespace

void MatmulStaging::add_phases(PreparedKernel& kernel, int first, int last) const {
  for (int i = first; i <= last; ++i) {
    const Conversion& c = conversions[static_cast<size_t>(i)];
    if (c.elements == 0) continue;
    const size_t bytes = static_cast<size_t>(c.elements) * (c.from_size + c.to_size);
    kernel.phases.push_back({kConvert[i], parts_for_bytes(static_cast<double>(bytes))});
  }
}

MatmulStaging matmul_staging(const KernelQuery& query) {
  MatmulStaging staging;
  const std::string compute = query.attrs.get_string("compute");
  const TensorType* types[] = {&query.in[0], &query.in[1], &query.out[0]};
  for (size_t i = 0; i < 3; ++i) {
    const DType dtype = types[i]->dtype;
    Conversion c;
    if (dtype == bf16 || dtype == f16) {
      c.convert = i == 2 ? find_f32_cast(f32, dtype) : find_f32_cast(dtype, f32);
    } else if (i < 2 && compute == "tf32") {
      c.convert = find_round_to_tf32();
    } else if (i < 2 && !compute.empty()) {
      c.convert = find_round(compute == name_of(bf16) ? bf16 : f16);
    } else {
      continue;
    }
    const Place own = {static_cast<int>(i), 0}, wide = {kMatmulWorkspace, staging.workspace_bytes};
    c.from = i == 2 ? wide : own;
    c.to = i == 2 ? own : wide;
    c.from_size = i == 2 ? sizeof(float) : size_of(dtype);
    c.to_size = i == 2 ? size_of(dtype) : sizeof(float);
    c.elements = elements_of(*types[i]);
    staging.places[i] = wide;
    staging.conversions[i] = c;
    const size_t bytes = static_cast<size_t>(c.elements) * sizeof(float);
    staging.workspace_bytes += (bytes + kAlignment - 1) / kAlignment * kAlignment;
  }
  return staging;
}

}  // namespace aicf::backend::cpu
