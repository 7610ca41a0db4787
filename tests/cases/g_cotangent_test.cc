// Cases G1, G2: two cotangents that share a value, and a saved value that someone overwrites.
#include "cases/tape.h"

namespace aicf::test {
namespace {

// --- G1: one cotangent handed to several operands ---------------------------------------------------------------

TEST(G1, AResultUsedAgain) {
  Tape tape;
  const Value x = tape.param("x", Tensor::scalar<float>(1)), y = tape.param("y", Tensor::scalar<float>(3));
  const TensorMap got = tape.backward(x / (x + y));
  expect_values(got.at("grad:x"), {0.1875});
  expect_values(got.at("grad:y"), {-0.0625});
}

TEST(G1, AddOfAValueToItself) {
  Tape tape;
  const Value x = tape.param("x", vec({1, -2}));
  const Value y = x + x;
  expect_values(tape.backward(sum(y * y)).at("grad:x"), {8, -16});
}

// Every op with two float operands of one type, both the same value, whose cotangent is used once more beside it.
TEST(G1, EveryOpOnARepeatedOperand) {
  std::set<std::string> ops;
  for (const ir::OpDef* def : ir::op_table()) {
    for (OpCase c : smooth_cases(*def)) {
      const std::vector<TensorType>& in = c.sample.inputs;
      if (!c.sample.same_as.empty() || c.sample.region != nullptr || in.size() < 2) continue;
      const size_t last = in.size() - 1, before = last - 1;
      if (in[last] != in[before] || in[last].dtype != f64) continue;
      // The extremes of two equal operands have a kink there.
      if (std::string(def->name) == "maximum" || std::string(def->name) == "minimum") continue;
      std::erase_if(c.sample.values, [&](const auto& v) { return v.first == static_cast<int>(last); });
      c.sample.same_as.assign(in.size(), -1);
      c.sample.same_as[last] = static_cast<int>(before);
      ops.insert(def->name);
      check_gradient(c, used_outputs(c));
    }
  }
  for (const char* op : {"add", "sub", "mul", "div", "pow", "select", "matmul", "concat", "layer_norm", "mse"}) {
    EXPECT_TRUE(ops.contains(op)) << op;
  }
}

// --- G2: values kept for the backward ---------------------------------------------------------------------------

TEST(G2, CrossEntropyOfAValueThatItsProducerSaved) {
  Tape tape;
  const Value a = tape.param("a", tensor<float>({1, 2}, {0, static_cast<float>(std::log(2.0))}));
  const Value loss = cross_entropy(exp(a), tape.input("labels", tensor<int32_t>({1}, {0})));
  expect_values(tape.backward(loss).at("grad:a"), {-0.731059, 1.462117}, 1e-6);
}

// run_kernel() reports an operand that a kernel wrote: only an alias rule, granted by the planner, allows that.
TEST(G2, NoKernelWritesAnOperand) {
  int runs = 0;
  for (const ir::OpDef* def : ir::op_table()) {
    if (def->is(ir::kComposite)) continue;
    for (const OpCase& c : cases_of(*def)) {
      const OpGraph built = graph_of(*c.def, c.sample);
      const BoundOp op = bind(built.graph, built.graph.op(0));
      const std::vector<Tensor> operands = operands_of(*c.def, c.sample);
      std::vector<const Tensor*> pointers;
      for (const Tensor& t : operands) pointers.push_back(&t);
      for (const backend::Kernel& kernel : backend::cpu::kernel_table()) {
        if (std::string_view(kernel.op) != def->name || !kernel.accepts(op.query())) continue;
        run_kernel(op, kernel, pointers, {}, c.sample.same_as);
        ++runs;
      }
    }
  }
  EXPECT_GT(runs, 500);
}

}  // namespace
}  // namespace aicf::test
