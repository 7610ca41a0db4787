// Every op's record is complete, and its shape rule refuses what does not fit with a message that names op and types.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "aicf/error.h"
#include "aicf/ops.h"
#include "ir/op.h"
#include "ops/defs.h"

namespace aicf {
namespace {

// --- completeness -----------------------------------------------------------------------------------------------

std::vector<TensorType> infer(const ir::OpDef& def, const std::vector<TensorType>& in, const ir::Attrs& attrs,
                              const ir::Graph* region = nullptr) {
  return def.infer(ir::InferCtx{def, in, attrs, region});
}

TEST(Records, AreSortedAndFoundByName) {
  const auto table = ir::op_table();
  for (size_t i = 1; i < table.size(); ++i) EXPECT_LT(std::string(table[i - 1]->name), std::string(table[i]->name));
  for (const ir::OpDef* def : table) EXPECT_EQ(ir::find_op(def->name), def);
  EXPECT_EQ(ir::find_op("no_such_op"), nullptr);
}

// Each of the three lists, in the source, is in alphabetical order: a new row has one place.
TEST(Records, RowsOfOpsDefAreSorted) {
  std::map<std::string, std::vector<std::string>> rows;
#define AICF_POINTWISE(name, arity, domain) rows["pointwise"].push_back(#name);
#define AICF_OP(name) rows["op"].push_back(#name);
#define AICF_COMPOSITE(name) rows["composite"].push_back(#name);
#include "ops/ops.def"
  size_t count = 0;
  for (const auto& [kind, names] : rows) {
    EXPECT_TRUE(std::is_sorted(names.begin(), names.end())) << kind;
    count += names.size();
  }
  EXPECT_EQ(count, ir::op_table().size());
}

TEST(Records, AreComplete) {
  for (const ir::OpDef* def : ir::op_table()) {
    SCOPED_TRACE(def->name);
    EXPECT_NE(def->infer, nullptr);
    EXPECT_NE(def->samples, nullptr);
    EXPECT_FALSE(def->dtypes.empty());
    EXPECT_EQ(std::set<DType>(def->dtypes.begin(), def->dtypes.end()).size(), def->dtypes.size()) << "a dtype twice";
    EXPECT_EQ(def->is(ir::kComposite), def->expand != nullptr);
    EXPECT_TRUE(def->grad != nullptr || def->is(ir::kComposite)) << "neither a gradient nor an expansion";
    EXPECT_TRUE(def->num_inputs == ir::kVariadic ? def->operand_names.size() == 1
                                                 : static_cast<int>(def->operand_names.size()) == def->num_inputs);
    for (const ir::AliasRule& rule : def->alias) {
      EXPECT_GE(rule.in, 0);
      EXPECT_TRUE(def->num_inputs == ir::kVariadic || rule.in < def->num_inputs);
    }
    for (const ir::IndexOperand& index : def->index_operands) {
      EXPECT_LT(index.operand, def->num_inputs);
      EXPECT_NE(index.extent, nullptr);
    }
    std::set<std::string> attrs;
    for (const ir::AttrSpec& spec : def->attrs) EXPECT_TRUE(attrs.insert(spec.name).second) << spec.name << " twice";
  }
}

// The place of each kind in AttrValue.
size_t index_of(ir::AttrSpec::Kind kind) {
  using Kind = ir::AttrSpec::Kind;
  const std::pair<Kind, ir::AttrValue> examples[] = {
      {Kind::boolean, true},          {Kind::integer, int64_t{1}},           {Kind::real, 1.0},
      {Kind::text, std::string("t")}, {Kind::ints, std::vector<int64_t>{1}}, {Kind::dtype, f32}};
  for (const auto& [k, value] : examples) {
    if (k == kind) return value.index();
  }
  return SIZE_MAX;
}

void check_attrs(const ir::OpDef& def, const ir::Attrs& attrs) {
  for (const auto& [name, value] : attrs) {
    const auto spec =
        std::find_if(def.attrs.begin(), def.attrs.end(), [&, n = name](const ir::AttrSpec& s) { return n == s.name; });
    ASSERT_NE(spec, def.attrs.end()) << name << " is no attribute of the record";
    EXPECT_EQ(value.index(), index_of(spec->kind)) << name << " has another type";
  }
  for (const ir::AttrSpec& spec : def.attrs) EXPECT_TRUE(!spec.required || attrs.has(spec.name)) << spec.name;
}

TEST(Records, SamplesFitTheirRecord) {
  for (const ir::OpDef* def : ir::op_table()) {
    std::set<std::string> names;
    for (const ir::Sample& s : def->samples()) {
      SCOPED_TRACE(std::string(def->name) + "/" + s.name);
      EXPECT_FALSE(s.name.empty());
      EXPECT_TRUE(names.insert(s.name).second) << "a name twice";
      check_attrs(*def, s.attrs);
      std::vector<TensorType> out;
      ASSERT_NO_THROW(out = infer(*def, s.inputs, s.attrs, s.region.get()));
      EXPECT_TRUE(def->num_inputs == ir::kVariadic || static_cast<int>(s.inputs.size()) == def->num_inputs);
      for (const auto& [operand, tensor] : s.values)
        EXPECT_EQ(tensor.type(), s.inputs.at(static_cast<size_t>(operand)));
      for (size_t i = 0; i < s.same_as.size(); ++i) {
        if (s.same_as[i] < 0) continue;
        EXPECT_LT(s.same_as[i], static_cast<int>(i));
        EXPECT_EQ(s.inputs[i], s.inputs[static_cast<size_t>(s.same_as[i])]);
      }
      EXPECT_TRUE(s.expected.empty() || s.expected.size() == out.size());
      for (size_t o = 0; o < s.expected.size(); ++o) {
        EXPECT_EQ(static_cast<int64_t>(s.expected[o].size()), out[o].shape.elements()) << "result " << o;
      }
    }
    EXPECT_FALSE(names.empty()) << def->name << " has no samples";
  }
}

// What any op meets sooner or later: no elements, one element, and, where it takes two values of one type, the same
// twice.
TEST(Records, SamplesCoverTheCommonEdges) {
  for (const ir::OpDef* def : ir::op_table()) {
    bool empty = false, single = false, repeated = false, could_repeat = false;
    for (const ir::Sample& s : def->samples()) {
      const std::vector<TensorType> out = infer(*def, s.inputs, s.attrs, s.region.get());
      std::vector<TensorType> all = s.inputs;
      all.insert(all.end(), out.begin(), out.end());
      for (const TensorType& t : all) {
        empty |= t.shape.elements() == 0;
        single |= t.shape.elements() == 1;
      }
      for (int same : s.same_as) repeated |= same >= 0;
      for (size_t i = 1; i < s.inputs.size(); ++i) could_repeat |= s.inputs[i] == s.inputs[i - 1];
    }
    // No region holds an empty tensor.
    EXPECT_TRUE(empty || def == &ops::fused_def) << def->name << ": no sample of size 0";
    EXPECT_TRUE(single) << def->name << ": no sample of size 1";
    EXPECT_TRUE(repeated || !could_repeat) << def->name << ": no sample with a repeated operand";
  }
}

TEST(Records, OpsOfSeveralResultsHaveASampleWithOneUnused) {
  for (const ir::OpDef* def : ir::op_table()) {
    bool several = false, unused = false;
    for (const ir::Sample& s : def->samples()) {
      several |= infer(*def, s.inputs, s.attrs, s.region.get()).size() > 1;
      unused |= s.unused_output >= 0;
    }
    EXPECT_EQ(several, unused) << def->name;
  }
}

// --- messages ---------------------------------------------------------------------------------------------------

std::string error_of(const char* op, const std::vector<TensorType>& in, const ir::Attrs& attrs = {}) {
  const ir::OpDef* def = ir::find_op(op);
  if (def == nullptr) return "no such op";
  try {
    infer(*def, in, attrs);
  } catch (const Error& e) {
    return e.what();
  }
  return "no error";
}

TEST(RecordMessages, Pointwise) {
  const TensorType v3{f32, {3}}, v4{f32, {4}}, i3{i32, {3}}, b3{boolean, {3}};
  EXPECT_EQ(error_of("add", {v3, v4}), "add(f32[3], f32[4]): expected shapes that broadcast, got [3] and [4]");
  EXPECT_EQ(error_of("add", {v3, i3}), "add(f32[3], i32[3]): expected operands of one dtype, got f32 and i32");
  EXPECT_EQ(error_of("add", {b3, b3}), "add(bool[3], bool[3]): expected floats, i64 or i32, got bool");
  EXPECT_EQ(error_of("exp", {i3}), "exp(i32[3]): expected floats, got i32");
  EXPECT_EQ(error_of("logical_not", {v3}), "logical_not(f32[3]): expected bool, got f32");
  EXPECT_EQ(error_of("select", {v3, v3, v3}), "select(f32[3], f32[3], f32[3]): expected a bool condition, got f32");
  EXPECT_EQ(error_of("select", {b3, v4, v3}),
            "select(bool[3], f32[4], f32[3]): expected shapes that broadcast, got [3], [4] and [3]");
  EXPECT_EQ(error_of("cast", {v3}), "cast(f32[3]): expected the attribute `to`, a dtype, got none");
}

TEST(RecordMessages, Reductions) {
  const TensorType x{f32, {2, 3, 4}};
  const auto axes = [](std::vector<int64_t> a) { return ir::Attrs{{"axes", std::move(a)}}; };
  EXPECT_EQ(error_of("reduce_sum", {x}, axes({0, 2})),
            "reduce_sum(f32[2,3,4]): expected ascending, adjacent axes, got [0,2]");
  EXPECT_EQ(error_of("reduce_sum", {x}, axes({2, 1})),
            "reduce_sum(f32[2,3,4]): expected ascending, adjacent axes, got [2,1]");
  EXPECT_EQ(error_of("reduce_max", {x}, axes({3})), "reduce_max(f32[2,3,4]): expected axes below the rank, 3, got [3]");
  EXPECT_EQ(error_of("reduce_prod", {x}), "reduce_prod(f32[2,3,4]): expected one axis or more in `axes`, got none");
  EXPECT_EQ(error_of("reduce_max", {{f32, {2, 0}}}, axes({1})),
            "reduce_max(f32[2,0]): expected at least one element to choose from, got axis 1 of extent 0");
  EXPECT_EQ(error_of("reduce_sum", {{boolean, {2}}}, axes({0})),
            "reduce_sum(bool[2]): expected floats, i64 or i32, got bool");
  EXPECT_EQ(error_of("argmax", {x}, {{"axis", int64_t{3}}}),
            "argmax(f32[2,3,4]): expected an axis below the rank, 3, got axis 3");
}

TEST(RecordMessages, Composites) {
  const TensorType x{f32, {2, 3}};
  const ir::Attrs mean = {{"ignore_index", int64_t{-100}}, {"reduction", std::string("mean")}};
  const ir::Attrs eps = {{"eps", 1e-5}};
  EXPECT_EQ(error_of("softmax", {{i32, {2}}}, {{"axis", int64_t{0}}}), "softmax(i32[2]): expected floats, got i32");
  EXPECT_EQ(error_of("cross_entropy", {x, {i32, {3}}}, mean),
            "cross_entropy(f32[2,3], i32[3]): expected labels of shape [2], got [3]");
  EXPECT_EQ(error_of("cross_entropy", {x, {f32, {2}}}, mean),
            "cross_entropy(f32[2,3], f32[2]): expected i32 or i64 labels, got f32");
  EXPECT_EQ(error_of("cross_entropy", {{f32, {2, 0}}, {i32, {2}}}, mean),
            "cross_entropy(f32[2,0], i32[2]): expected logits (…, C), C the number of classes, got [2,0]");
  EXPECT_EQ(error_of("layer_norm", {x, {f32, {2}}, {f32, {3}}}, eps),
            "layer_norm(f32[2,3], f32[2], f32[3]): expected gamma of type f32[3], got f32[2]");
  EXPECT_EQ(error_of("rms_norm", {{f32, {}}, {f32, {1}}}, eps),
            "rms_norm(f32[], f32[1]): expected x of rank 1 or more, got a scalar");
  EXPECT_EQ(error_of("mse", {x, {f32, {3}}}, mean),
            "mse(f32[2,3], f32[3]): expected a target of type f32[2,3], got f32[3]");
  EXPECT_EQ(error_of("mse", {x, x}, {{"reduction", std::string("avg")}}),
            "mse(f32[2,3], f32[2,3]): expected `reduction` none, sum or mean, got \"avg\"");
  EXPECT_EQ(error_of("with_gradient", {x, x}),
            "with_gradient(f32[2,3], f32[2,3]): expected a region, the gradient, got none");
}

// Whatever is refused, the message begins with the call.
TEST(RecordMessages, NameTheOpAndItsTypes) {
  for (const ir::OpDef* def : ir::op_table()) {
    const ir::Sample s = def->samples().front();
    for (size_t i = 0; i < s.inputs.size(); ++i) {
      for (const TensorType& other : {TensorType{u8, {7, 11}}, TensorType{f32, {7, 11}}}) {
        std::vector<TensorType> in = s.inputs;
        in[i] = other;
        try {
          infer(*def, in, s.attrs, s.region.get());
        } catch (const Error& e) {
          EXPECT_EQ(std::string(e.what()).rfind(ir::call_text(*def, in) + ": ", 0), 0u) << e.what();
          EXPECT_EQ(std::strchr(e.what(), '\n'), nullptr) << e.what();
        }
      }
    }
  }
}

// --- public functions -------------------------------------------------------------------------------------------

struct Builder {
  ir::Graph graph;
  Value input(const std::string& name, TensorType type) {
    return graph.handle(graph.add_external(ir::Role::input, name, type));
  }
};

TEST(Functions, ReductionsSplitAxesThatAreNotAdjacent) {
  Builder b;
  const Value x = b.input("x", {f32, {2, 3, 4, 5}});
  EXPECT_EQ(sum(x, {-1, 0}).shape(), (Shape{3, 4}));
  EXPECT_EQ(sum(x, {0, 2}, true).shape(), (Shape{1, 3, 1, 5}));
  EXPECT_EQ(max(x).shape(), Shape{});
  EXPECT_EQ(mean(x, {1, 2}).shape(), (Shape{2, 5}));
  EXPECT_EQ(sum(b.input("s", {f32, {}})).shape(), Shape{});
  EXPECT_THROW(sum(x, {0, -4}), Error) << "an axis twice";
  EXPECT_THROW(sum(x, {4}), Error);
  EXPECT_THROW(mean(b.input("i", {i32, {3}})), Error);
}

// A 16-bit sum over two groups of axes is rounded once.
TEST(Functions, ReductionsOf16BitsPassThroughF32) {
  Builder b;
  const Value y = sum(b.input("x", {bf16, {2, 3, 4}}), {0, 2});
  EXPECT_EQ(y.type(), (TensorType{bf16, {3}}));
  for (const ir::Op& op : b.graph.ops()) {
    EXPECT_TRUE(op.def != &ops::reduce_sum_def || b.graph.type(op.outputs[0]).dtype == f32);
  }
}

TEST(Functions, LiteralsTakeTheDtypeOfTheOtherOperand) {
  Builder b;
  const Value x = b.input("x", {i32, {3}});
  EXPECT_EQ((x + 2).type(), x.type());
  EXPECT_THROW(x * 0.5, Error) << "0.5 is no i32";
  EXPECT_EQ((2.0 * b.input("h", {bf16, {3}})).dtype(), bf16);
}

TEST(Functions, CastToTheSameDtypeIsTheValueItself) {
  Builder b;
  const Value x = b.input("x", {f32, {3}});
  EXPECT_EQ(cast(x, f32), x);
  EXPECT_EQ(b.graph.num_ops(), 0);
}

TEST(Functions, SumToShapeGivesTheOperandsShape) {
  Builder b;
  const std::pair<Shape, Shape> cases[] = {{{3, 4}, {3, 1}}, {{3, 4}, {1, 4}}, {{2, 1, 4, 64}, {2, 1, 4, 1}},
                                           {{5, 7}, {1}},    {{5, 7}, {}},     {{2, 3, 4}, {3, 1}},
                                           {{0, 3}, {3}},    {{5}, {5}},       {{2, 1, 3}, {1, 3}}};
  int n = 0;
  for (const auto& [from, to] : cases) {
    const Value x = b.input("x" + std::to_string(n++), {f32, from});
    EXPECT_EQ(ops::sum_to_shape(x, to).shape(), to);
  }
}

TEST(Functions, WithGradientChecksWhatDfReturns) {
  Builder b;
  const Value x = b.input("x", {f32, {3}});
  const auto f = [](const std::vector<Value>& in) { return relu(in[0]); };
  const Value y = with_gradient({x}, f, [](const auto& in, Value, Value dy) { return std::vector{dy * in[0]}; });
  EXPECT_EQ(y.type(), x.type());
  EXPECT_NO_THROW(with_gradient({x}, f, [](const auto&, Value, Value) { return std::vector{Value()}; }));
  EXPECT_THROW(with_gradient({x}, f, [](const auto&, Value, Value) { return std::vector<Value>(); }), Error);
  EXPECT_THROW(with_gradient({x}, f, [](const auto&, Value, Value dy) { return std::vector{sum(dy)}; }), Error);
  EXPECT_THROW(with_gradient({x}, f, [&](const auto&, Value, Value) { return std::vector{x}; }), Error);
}

}  // namespace
}  // namespace aicf
