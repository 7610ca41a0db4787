// Every alias rule: the kernel gives the same bits when the result takes the operand's storage.
#include "ops/harness.h"

namespace aicf::test {
namespace {

class OpsAlias : public ::testing::TestWithParam<const ir::OpDef*> {};

TEST_P(OpsAlias, OnAndOffAreBitEqual) {
  std::set<size_t> granted;
  for (const OpCase& c : cases_of(*GetParam())) {
    const OpGraph built = graph_of(*c.def, c.sample);
    const BoundOp op = bind(built.graph, built.graph.op(0));
    const std::vector<Tensor> operands = operands_of(*c.def, c.sample);
    std::vector<const Tensor*> pointers;
    for (const Tensor& t : operands) pointers.push_back(&t);
    const std::vector<ir::AliasRule> rules = op.alias_rules();
    for (size_t r = 0; r < rules.size(); ++r) {
      const ir::AliasRule& rule = rules[r];
      ASSERT_LT(rule.in, static_cast<int>(op.in.size())) << c.text();
      ASSERT_LT(rule.out, static_cast<int>(op.out.size())) << c.text();
      if (!can_be_granted(c, op, rule)) continue;
      for (const backend::Kernel& kernel : backend::cpu::kernel_table()) {
        if (std::string_view(kernel.op) != c.def->name || !kernel.accepts(op.query())) continue;
        granted.insert(r);
        const auto off = run_kernel(op, kernel, pointers, {}, c.sample.same_as);
        for (int threads : {0, 2}) {
          const RunMode on = {.threads = threads, .alias_out = rule.out, .alias_in = rule.in};
          EXPECT_TRUE(run_kernel(op, kernel, pointers, on, c.sample.same_as) == off)
              << c.text() << " by " << kernel.variant << ": other bits in the storage of operand " << rule.in;
        }
      }
    }
  }
  EXPECT_TRUE(GetParam()->alias_of == nullptr || !granted.empty()) << "no sample grants an alias rule";
  for (size_t r = 0; r < GetParam()->alias.size(); ++r) {
    // A rule that no sample can use is not tested, or cannot be granted at all.
    const bool possible = GetParam()->is(ir::kComposite) || granted.contains(r);
    EXPECT_TRUE(possible) << GetParam()->name << ": no sample grants alias rule " << r;
  }
}

INSTANTIATE_TEST_SUITE_P(Table, OpsAlias, ::testing::ValuesIn(ir::op_table().begin(), ir::op_table().end()),
                         [](const auto& info) { return std::string(info.param->name); });

}  // namespace
}  // namespace aicf::test
