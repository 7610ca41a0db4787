// Random graphs of the ops that exact passes rewrite: every pass alone and all of them together keep every bit, on
// special values, change nothing when run again, and leave each state its one writer.
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <random>

#include "aicf/ops.h"
#include "ir/text.h"
#include "lower/evaluate.h"
#include "passes/pass.h"
#include "passes/special_values.h"

namespace aicf::passes {
namespace {

class RandomGraph {
 public:
  explicit RandomGraph(uint64_t seed) : random_(seed) {
    for (const DType dtype : {f32, f32, bf16, f16, i32, boolean}) {
      for (const Shape& shape : {Shape{2, 3, 2}, Shape{3, 2}, Shape{1, 2}, Shape{}}) {
        const std::string name = std::string(name_of(dtype)) + "_" + std::to_string(values_.size());
        values_.push_back(graph_.handle(graph_.add_external(role(), name, {dtype, shape})));
      }
    }
    for (const double value : {0.0, 1.0, -0.0}) {
      values_.push_back(literal(values_[0], value));
      values_.push_back(literal(values_[0], value, f16));
      if (!std::signbit(value)) values_.push_back(literal(values_[0], value, i32));
      if (!std::signbit(value)) values_.push_back(literal(values_[0], value, boolean));
    }
    for (int i = 0; i < 60; ++i) try_op();
    finish();
  }

  ir::Graph graph_;

 private:
  ir::Role role() { return pick(3) == 0 ? ir::Role::state : ir::Role::input; }
  size_t pick(size_t n) { return std::uniform_int_distribution<size_t>(0, n - 1)(random_); }
  // Late values more often, so that ops stand on ops.
  Value any() { return values_[std::max(pick(values_.size()), pick(values_.size()))]; }
  Value any_of(DType dtype) {
    for (;;) {
      if (const Value v = any(); v.dtype() == dtype) return v;
    }
  }

  // Operands that do not fit are drawn again another time.
  void try_op() {
    try {
      values_.push_back(op());
    } catch (const Error&) {
    }
  }

  Value op() {
    const Value x = any();
    switch (pick(11)) {
      case 0:
        return moved(x);
      case 1:
      case 2:
        return transpose(x, permutation(x.shape().rank()));
      case 3:
        return reshape(x, other_shape(x.shape()));
      case 4:
        return cast(x, std::array{f32, bf16, f16, i32, boolean}[pick(5)]);
      case 5:
        return reduced(x);
      case 6:
        return unary(x);
      case 7:
        return compared(x, pick(4) == 0 ? x : any_of(x.dtype()));
      case 8:
        return pick(2) == 0 ? matmul(x, transpose(any_of(x.dtype()))) : cast(cast(any_of(f32), bf16), f32);
      default:
        return binary(x, pick(4) == 0 ? x : any_of(x.dtype()));
    }
  }

  std::vector<int> permutation(int rank) {
    std::vector<int> perm(static_cast<size_t>(rank));
    for (int i = 0; i < rank; ++i) perm[static_cast<size_t>(i)] = i;
    std::shuffle(perm.begin(), perm.end(), random_);
    return perm;
  }

  Shape other_shape(const Shape& shape) {
    std::vector<int64_t> dims(shape.begin(), shape.end());
    if (pick(2) == 0) dims.insert(dims.begin(), 1);
    std::shuffle(dims.begin(), dims.end(), random_);
    return Shape(std::span<const int64_t>(dims));
  }

  Value moved(Value x) {
    const Shape shape = x.shape();
    std::vector<int64_t> low(static_cast<size_t>(shape.rank()), 0), high(shape.begin(), shape.end());
    switch (pick(5)) {
      case 0:
        return broadcast(x, {2, 3, 2});
      case 1:
        return concat({x}, 0);
      case 2:
        return pad(x, low, low);
      case 3:
        return split(x, 1, 0)[0];
      default:
        if (pick(2) == 0 && !low.empty()) low[0] = 1;
        return slice(x, low, high);
    }
  }

  Value reduced(Value x) {
    const int axis = static_cast<int>(pick(3));
    switch (pick(4)) {
      case 0:
        return sum(x, {axis}, pick(2) == 0);
      case 1:
        return prod(x, {axis}, pick(2) == 0);
      case 2:
        return max(x, {axis}, pick(2) == 0);
      default:
        return min(x, {axis}, pick(2) == 0);
    }
  }

  Value unary(Value x) {
    if (x.dtype() == boolean) return logical_not(x);
    return std::array{neg, abs, relu, sign, exp, neg}[pick(6)](x);
  }

  Value compared(Value a, Value b) {
    return std::array{equal, not_equal, less, less_equal, greater, greater_equal}[pick(6)](a, b);
  }

  Value binary(Value a, Value b) {
    if (a.dtype() == boolean && pick(3) > 0) return pick(2) == 0 ? logical_and(a, b) : logical_or(a, b);
    if (pick(4) == 0 || a.dtype() == boolean) return select(any_of(boolean), a, b);
    return std::array{add, sub, mul, div, maximum, minimum}[pick(6)](a, b);
  }

  void finish() {
    for (size_t i = 0; i < 6; ++i) graph_.add_output("y" + std::to_string(i), values_[values_.size() - 1 - i * 3].id());
    for (const Value& v : values_) {
      if (graph_.value(v.id()).role != ir::Role::state || graph_.find_update(v.id()) >= 0) continue;
      const Value next = any_of(v.dtype());
      if (next.type() == v.type()) graph_.add_update(v.id(), next.id());
    }
  }

  std::mt19937_64 random_;
  std::vector<Value> values_;
};

std::vector<std::string> targets_of(const ir::Graph& graph) {
  std::vector<std::string> targets;
  for (const ir::Update& u : graph.updates()) targets.push_back(graph.value(u.target).name);
  std::sort(targets.begin(), targets.end());
  EXPECT_EQ(std::adjacent_find(targets.begin(), targets.end()), targets.end()) << "a state with two writers";
  return targets;
}

void check(const Pass& pass, const ir::Graph& before, ir::Graph& graph) {
  const std::string text = ir::print(graph);
  const bool changed = pass.run(graph, lower::evaluate_on_cpu);
  ASSERT_NO_THROW(ir::verify(graph)) << pass.name << " of\n" << text;
  EXPECT_EQ(changed, ir::print(graph) != text) << pass.name << " of\n" << text;
  EXPECT_EQ(targets_of(graph), targets_of(before)) << pass.name;
  ASSERT_EQ(test::difference_of(before, graph, 12), "") << pass.name << " of\n" << text;
  const std::string once = ir::print(graph);
  EXPECT_FALSE(pass.run(graph, lower::evaluate_on_cpu)) << pass.name << " of\n" << once;
  EXPECT_EQ(ir::print(graph), once) << pass.name << " of\n" << text;
}

class RandomGraphs : public testing::TestWithParam<int> {};

TEST_P(RandomGraphs, ExactPassesKeepEveryBit) {
  const ir::Graph before = RandomGraph(static_cast<uint64_t>(GetParam())).graph_;
  ir::Graph together = before;
  for (const Pass& pass : pipeline()) {
    if (pass.effect != Effect::exact) continue;
    ir::Graph alone = before;
    check(pass, before, alone);
    check(pass, before, together);
    if (HasFailure()) return;
  }
  EXPECT_LE(together.num_ops(), before.num_ops());
}

// What an exact pass does must not decide what one that reorders does.
TEST_P(RandomGraphs, ExactPassesOffKeepEveryBitOfTheWholePipeline) {
  const ir::Graph before = RandomGraph(static_cast<uint64_t>(GetParam())).graph_;
  ir::Graph all = before;
  run_pipeline(all, {}, lower::evaluate_on_cpu);
  for (const Pass& pass : pipeline()) {
    if (pass.effect != Effect::exact) continue;
    ir::Graph others = before;
    run_pipeline(others, {pass.name}, lower::evaluate_on_cpu);
    ASSERT_EQ(test::difference_of(all, others, 3), "") << pass.name << " off, of\n" << ir::print(before);
  }
}

INSTANTIATE_TEST_SUITE_P(Seeds, RandomGraphs, testing::Range(0, 120));

}  // namespace
}  // namespace aicf::passes
