// Every op × sample × dtype: every CUDA kernel against the CPU's, bit for bit but for NaN payloads (matmul within a
// bound), on guarded and poisoned buffers, with and without its alias rules, and stopped by a false guard.
#include "cuda/kernel_check.h"

namespace aicf::test {
namespace {

class CudaOps : public ::testing::TestWithParam<const ir::OpDef*> {};

TEST_P(CudaOps, AgreeWithTheCpu) {
  const ir::OpDef& def = *GetParam();
  KernelCheck check;
  std::set<DType> tested;
  for (const OpCase& c : gpu_cases_of(def)) {
    check.add(c);
    tested.insert(c.dtype);
  }
  for (DType dtype : def.dtypes) {
    EXPECT_TRUE(dtype == f64 || tested.contains(dtype)) << def.name << " has no sample that runs in " << name_of(dtype);
  }
  check.run();
  if (compile_only()) GTEST_SKIP() << "compiled only";
  for (size_t r = 0; r < def.alias.size(); ++r) {
    EXPECT_TRUE(check.granted().contains(r)) << def.name << ": no sample grants alias rule " << r;
  }
}

std::vector<const ir::OpDef*> primitives() {
  std::vector<const ir::OpDef*> list(ir::op_table().begin(), ir::op_table().end());
  std::erase_if(list, [](const ir::OpDef* def) { return def->is(ir::kComposite); });
  return list;
}

INSTANTIATE_TEST_SUITE_P(Table, CudaOps, ::testing::ValuesIn(primitives()),
                         [](const auto& info) { return std::string(info.param->name); });

}  // namespace
}  // namespace aicf::test
