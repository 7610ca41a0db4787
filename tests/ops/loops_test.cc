// What loops a region has: its kind, its axes, where its operands lie, and why there are none.
#include "ops/loops.h"

#include <gtest/gtest.h>

#include "aicf/ops.h"
#include "ops/region_op.h"

namespace aicf::ops {
namespace {

using Kind = Loops::Kind;
using Values = std::vector<Value>;
using Ints = std::vector<int64_t>;

struct Case {
  std::optional<Loops> loops;
  std::string why;
  std::vector<Loops::Node> loads;
  std::vector<ir::AliasRule> rules;
};

Case of(const std::vector<TensorType>& in, const std::function<Values(Values)>& f) {
  const auto body = body_of(in, f);
  Case c;
  c.loops = loops_of(*body, &c.why);
  if (!c.loops) return c;
  for (const Loops::Node& node : c.loops->nodes) {
    if (node.kind == Loops::Node::Kind::load) c.loads.push_back(node);
  }
  c.rules = alias_rules_of(*c.loops, *body);
  return c;
}

TEST(Loops, PointwiseOfOneShapeIsOneAxis) {
  const Case c = of({{f32, {4, 6}}, {f32, {4, 6}}}, [](Values v) { return Values{v[0] * v[1] + v[1]}; });
  ASSERT_TRUE(c.loops) << c.why;
  EXPECT_EQ(c.loops->kind, Kind::pointwise);
  EXPECT_EQ(c.loops->dims, Ints{24});
  EXPECT_EQ(c.loads.size(), 2u) << "an operand read twice at one place is loaded once";
  EXPECT_EQ(c.rules.size(), 2u);
}

TEST(Loops, ABroadcastOperandSplitsTheAxis) {
  const Case c = of({{f32, {4, 6}}, {f32, {6}}, {f32, {}}}, [](Values v) { return Values{v[0] * v[1] + v[2]}; });
  ASSERT_TRUE(c.loops) << c.why;
  EXPECT_EQ(c.loops->dims, (Ints{4, 6}));
  EXPECT_EQ(c.loads[1].place.strides, (Ints{0, 1}));
  EXPECT_EQ(c.loads[2].place.strides, (Ints{0, 0}));
  EXPECT_EQ(c.rules.size(), 1u) << "only operand 0 is read where the result is written";
}

TEST(Loops, ViewsBecomeStrides) {
  const Case c = of({{f32, {2, 5, 24}}}, [](Values v) {
    const Value x = reshape(v[0], {2, 5, 3, 2, 4});
    const Value part = reshape(slice(x, {0, 0, 1, 0, 0}, {2, 5, 2, 2, 4}), {2, 5, 2, 4});
    return Values{neg(transpose(part, {0, 2, 1, 3}))};
  });
  ASSERT_TRUE(c.loops) << c.why;
  EXPECT_EQ(c.loops->dims, (Ints{2, 2, 5, 4}));
  EXPECT_EQ(c.loads[0].place.strides, (Ints{120, 4, 24, 1}));
  EXPECT_EQ(c.loads[0].place.offset, 8);
  EXPECT_TRUE(c.rules.empty());
}

TEST(Loops, SoftmaxIsOfRows) {
  const Case c = of({{f32, {2, 3, 7}}}, [](Values v) {
    const Value e = exp(v[0] - max(v[0], {2}, true));
    return Values{e / sum(e, {2}, true)};
  });
  ASSERT_TRUE(c.loops) << c.why;
  EXPECT_EQ(c.loops->kind, Kind::row);
  EXPECT_EQ(c.loops->dims, (Ints{6, 7}));
  EXPECT_EQ(c.loops->first_reduced, 1);
  EXPECT_EQ(c.loops->nodes.back().stage, 2);
  EXPECT_EQ(c.rules.size(), 1u);
}

TEST(Loops, ASumRepeatedOverItsRowIsOfRows) {
  const auto repeated = [](int axis) {
    return of({{f32, {4, 6}}}, [axis](Values v) { return Values{broadcast(sum(v[0], {axis}, true), {4, 6})}; });
  };
  ASSERT_TRUE(repeated(1).loops);
  EXPECT_EQ(repeated(1).loops->kind, Kind::row);
  EXPECT_EQ(repeated(0).why, "rows that are not adjacent in memory");
}

TEST(Loops, SumsUsedAfterwardsOnlyAreAReduce) {
  const Case c = of({{f32, {2, 30, 7}}, {f32, {2, 7}}}, [](Values v) {
    const Value s = sum(v[0] * v[0], {1});
    return Values{s + v[1], v[0] * 2.0};
  });
  ASSERT_TRUE(c.loops) << c.why;
  EXPECT_EQ(c.loops->kind, Kind::reduce);
  EXPECT_EQ(c.loops->dims, (Ints{2, 30, 7}));
  EXPECT_EQ(c.loops->inner(), 7);
}

TEST(Loops, ColumnsBesideRows) {
  const Case c = of({{f32, {9, 8}}, {f32, {9, 8}}}, [](Values v) {
    const Value g = v[0] - sum(v[0], {1}, true);
    return Values{g, sum(v[1] * g, {0})};
  });
  ASSERT_TRUE(c.loops) << c.why;
  EXPECT_EQ(c.loops->kind, Kind::row);
  EXPECT_EQ(c.loops->nodes[static_cast<size_t>(c.loops->results[1].node)].kind, Loops::Node::Kind::column);
  EXPECT_EQ(c.loops->results[1].place.strides, (Ints{0, 1}));
}

TEST(Loops, AGatherIsALoadWithAnIndex) {
  const Case c =
      of({{f32, {9, 8}}, {i32, {5}}, {f32, {5, 8}}}, [](Values v) { return Values{gather(v[0], v[1]) + v[2]}; });
  ASSERT_TRUE(c.loops) << c.why;
  const auto& load = c.loads[1];
  EXPECT_EQ(load.pick, 8);
  EXPECT_EQ(load.extent, 9);
  EXPECT_EQ(load.place.strides, (Ints{0, 1}));
  EXPECT_EQ(c.loops->nodes[static_cast<size_t>(load.inputs[0])].place.strides, (Ints{1, 0}));
}

TEST(Loops, AMatmulHasAnEpilogue) {
  const Case c = of({{f32, {4, 6}}, {f32, {6, 5}}, {f32, {5}}, {f32, {4, 5}}},
                    [](Values v) { return Values{relu(matmul(v[0], v[1]) + v[2]) * v[3]}; });
  ASSERT_TRUE(c.loops) << c.why;
  EXPECT_EQ(c.loops->kind, Kind::epilogue);
  EXPECT_EQ(c.loops->dims, (Ints{4, 5}));
  EXPECT_EQ(c.rules.size(), 1u) << "the factors are read at other places";
}

TEST(Loops, ARepeatedUnitAxisIsKept) {
  const Case c = of({{f32, {5, 1}}}, [](Values v) { return Values{sqrt(sum(v[0] * v[0], {1}))}; });
  ASSERT_TRUE(c.loops) << c.why;
  EXPECT_EQ(c.loops->n(), 1);
  EXPECT_EQ(c.loops->outer(), 5);
}

TEST(Loops, AreRefusedWithAReason) {
  EXPECT_EQ(of({{f32, {4, 6, 5}}},
               [](Values v) {
                 return Values{sum(v[0], {0}), sum(v[0], {1})};
               })
                .why,
            "reductions of different geometry");
  EXPECT_EQ(of({{f32, {4, 6}}}, [](Values v) { return Values{v[0] - sum(v[0], {0}, true)}; }).why,
            "rows that are not adjacent in memory");
  EXPECT_EQ(of({{f32, {4, 6}}, {f32, {3}}},
               [](Values v) {
                 return Values{neg(v[0]), neg(v[1])};
               })
                .why,
            "result %3 is of another size");
  EXPECT_EQ(of({{f32, {2, 2}}}, [](Values v) { return Values{argmax(v[0], 0)}; }).why, "argmax is not fused");
  EXPECT_EQ(of({{f32, {2, 2}}}, [](Values v) { return Values{matmul(matmul(v[0], v[0]), v[0])}; }).why,
            "matmul is not fused");
  EXPECT_EQ(of({{f32, {2, 2}}}, [](Values v) { return Values{matmul(exp(v[0]), v[0])}; }).why,
            "a matmul of what is not in memory");
  EXPECT_EQ(of({{f32, {0, 3}}}, [](Values v) { return Values{neg(v[0])}; }).why, "an empty tensor");
}

}  // namespace
}  // namespace aicf::ops
