// Every record × sample × dtype: the shape rule, the text round trip, and every kernel against plain f64 arithmetic, on
// guarded and poisoned buffers, for 1, 2 and 8 threads bit for bit.
#include "ops/harness.h"
#include "ops/inline_region.h"
#include "ops/reference.h"

namespace aicf::test {
namespace {

// Tolerances are k·eps·√K with K the additions that go into one element. k = 16: an expression is within 4 ulps (8
// half-ulps, eps being half an ulp), and a composite chains a few of them.
constexpr double kUlps = 16;

double additions(const ir::Graph& graph) {
  double most = 1;
  for (const ir::Op& op : graph.ops()) {
    double elements = 1;
    for (ir::ValueId v : op.outputs) elements = std::max(elements, static_cast<double>(graph.type(v).shape.elements()));
    most = std::max(most, cost_of(graph, op).flops / elements);
  }
  return most;
}

class OpsValue : public ::testing::TestWithParam<const ir::OpDef*> {};

TEST_P(OpsValue, HasSamplesDtypesAndAReference) {
  const ir::OpDef& def = *GetParam();
  ASSERT_NE(def.samples, nullptr) << def.name << " has no samples";
  EXPECT_FALSE(def.samples().empty()) << def.name << " has no samples";
  EXPECT_FALSE(def.dtypes.empty()) << def.name << " lists no dtypes";
  std::set<std::string> names;
  for (const ir::Sample& sample : def.samples()) {
    EXPECT_TRUE(names.insert(sample.name).second) << def.name << ": two samples " << sample.name;
  }
  std::set<DType> tested;
  for (const OpCase& c : cases_of(def)) tested.insert(c.dtype);
  for (DType dtype : def.dtypes) {
    EXPECT_TRUE(tested.contains(dtype)) << def.name << " has no sample that runs in " << name_of(dtype);
  }
  if (!def.is(ir::kComposite) && !means_its_body(def)) {
    EXPECT_TRUE(references().contains(def.name)) << def.name << " has no plain reference in tests/ops/reference.h";
  }
}

TEST_P(OpsValue, TextRoundTrip) {
  for (const OpCase& c : cases_of(*GetParam())) {
    SCOPED_TRACE(c.text());
    const OpGraph built = graph_of(*c.def, c.sample);
    ir::verify(built.graph);
    const std::string text = ir::print(built.graph);
    const ir::Graph parsed = ir::parse(text);
    EXPECT_EQ(ir::print(parsed), text);
    EXPECT_EQ(ir::canonical_text(parsed), ir::canonical_text(built.graph));
    EXPECT_EQ(ir::structural_hash(parsed), ir::structural_hash(built.graph));
  }
}

// The body's ops in the place of an op that means them.
ir::Graph inlined(const ir::Graph& graph) {
  if (graph.op(0).def->is(ir::kComposite) || graph.op(0).region == nullptr) return graph;
  ir::Graph plain;
  std::vector<Value> inputs(static_cast<size_t>(graph.num_values()));
  for (ir::ValueId v = 0; v < graph.num_values(); ++v) {
    if (!graph.is_external(v)) continue;
    inputs[v] = plain.handle(plain.add_external(ir::Role::input, graph.value(v).name, graph.type(v)));
  }
  std::vector<Value> operands;
  for (ir::ValueId v : graph.op(0).inputs) operands.push_back(inputs[v]);
  const std::vector<Value> results = ops::inline_region(*graph.op(0).region, plain, operands);
  for (size_t o = 0; o < results.size(); ++o) plain.add_output("y" + std::to_string(o), results[o].id());
  return plain;
}

// The results in plain f64 arithmetic: of a primitive by the reference, of a composite by its expansion at f64, of an
// op with a body by the body.
std::vector<std::vector<double>> reference_results(const OpCase& c, const std::vector<Tensor>& operands) {
  std::vector<std::vector<double>> results;
  if (!c.def->is(ir::kComposite) && c.sample.region == nullptr) {
    Arrays in;
    for (const Tensor& t : operands) in.emplace_back(t);
    const Arrays out = references().at(c.def->name)(in, c.sample.attrs);
    const OpGraph built = graph_of(*c.def, c.sample);
    for (size_t o = 0; o < out.size(); ++o) {
      const Shape& shape = built.graph.type(built.graph.outputs()[o].value).shape;
      EXPECT_EQ(shape, Shape(std::span<const int64_t>(out[o].dims))) << c.text() << ": the shape rule";
      results.push_back(out[o].data);
    }
    return results;
  }
  ir::Sample wide = c.sample;
  for (auto& [operand, tensor] : wide.values) {
    if (is_float(tensor.dtype())) tensor = converted(tensor, f64);
  }
  for (TensorType& t : wide.inputs) {
    if (is_float(t.dtype)) t.dtype = f64;
  }
  wide.region = retyped(wide.region, f64);
  const OpGraph built = graph_of(*c.def, wide);
  TensorMap feeds;
  for (size_t i = 0; i < operands.size(); ++i) {
    feeds[built.operand_keys[i]] = is_float(operands[i].dtype()) ? converted(operands[i], f64) : operands[i];
  }
  const TensorMap outputs = expand_and_interpret(inlined(built.graph), feeds);
  for (size_t o = 0; o < outputs.size(); ++o) results.push_back(outputs.at("y" + std::to_string(o)).to_doubles());
  return results;
}

void compare(const OpCase& c, const std::vector<Tensor>& got, const std::vector<std::vector<double>>& want, double k,
             const std::string& where) {
  ASSERT_EQ(got.size(), want.size()) << where;
  for (size_t o = 0; o < got.size(); ++o) {
    const double eps = kUlps * std::max(epsilon(c.dtype), epsilon(got[o].dtype()));
    // A result that is not a float must be exact: the same integers, the same truth.
    const double bound = is_float(got[o].dtype()) ? eps * std::sqrt(k) : 0;
    expect_near(got[o], want[o], bound, where + " output " + std::to_string(o));
    if (c.sample.expected.empty()) continue;
    ASSERT_EQ(c.sample.expected.size(), got.size()) << where;
    expect_near(got[o], c.sample.expected[o], std::max(bound, c.sample.tolerance), where + " against values by hand");
  }
}

const RunMode kModes[] = {
    {.threads = 0, .poison = 0xFF}, {.threads = 0, .last_part_first = true, .poison = 0xCD},
    {.threads = 1, .poison = 0xFF}, {.threads = 2, .poison = 0xCD},
    {.threads = 8, .poison = 0xFF},
};

std::vector<Tensor> results_of(const ir::Graph& graph, const OpGraph& built, const std::vector<Tensor>& operands) {
  TensorMap feeds;
  for (size_t i = 0; i < operands.size(); ++i) feeds[built.operand_keys[i]] = operands[i];
  const TensorMap outputs = interpret(graph, feeds);
  std::vector<Tensor> results;
  for (size_t o = 0; o < outputs.size(); ++o) results.push_back(outputs.at("y" + std::to_string(o)));
  return results;
}

void run_primitive(const OpCase& c) {
  const OpGraph built = graph_of(*c.def, c.sample);
  const BoundOp bound = bind(built.graph, built.graph.op(0));
  const std::vector<Tensor> operands = operands_of(*c.def, c.sample);
  std::vector<const Tensor*> pointers;
  for (const Tensor& t : operands) pointers.push_back(&t);
  const auto want = reference_results(c, operands);
  std::vector<Tensor> one_by_one;
  if (c.sample.region != nullptr) one_by_one = results_of(inlined(built.graph), built, operands);
  int accepting = 0;
  for (const backend::Kernel& kernel : backend::cpu::kernel_table()) {
    if (std::string_view(kernel.op) != c.def->name || !kernel.accepts(bound.query())) continue;
    ++accepting;
    const std::string where = c.text() + " by " + kernel.variant;
    std::vector<Tensor> first;
    for (const RunMode& mode : kModes) {
      const std::vector<Tensor> got = run_kernel(bound, kernel, pointers, mode, c.sample.same_as);
      if (first.empty()) {
        first = got;
        compare(c, got, want, additions(inlined(built.graph)), where);
        if (c.sample.region != nullptr) {
          EXPECT_TRUE(got == one_by_one) << where << ": other bits than its ops one by one";
        }
      }
      EXPECT_TRUE(got == first) << where << ": other bits with " << mode.threads << " threads, poison " << +mode.poison;
    }
  }
  EXPECT_GT(accepting, 0) << c.text() << ": no kernel accepts " << bound.text();
}

void run_composite(const OpCase& c) {
  const OpGraph built = graph_of(*c.def, c.sample);
  const std::vector<Tensor> operands = operands_of(*c.def, c.sample);
  TensorMap feeds;
  for (size_t i = 0; i < operands.size(); ++i) feeds[built.operand_keys[i]] = operands[i];
  const auto want = reference_results(c, operands);
  ir::Graph expanded = built.graph;
  passes::expand(expanded);
  ir::verify(expanded);
  std::vector<Tensor> first;
  for (const RunMode& mode : kModes) {
    const TensorMap outputs = interpret(expanded, feeds, mode);
    std::vector<Tensor> got;
    for (size_t o = 0; o < outputs.size(); ++o) got.push_back(outputs.at("y" + std::to_string(o)));
    if (first.empty()) {
      first = got;
      compare(c, got, want, additions(expanded), c.text());
    }
    EXPECT_TRUE(got == first) << c.text() << ": other bits with " << mode.threads << " threads";
  }
}

TEST_P(OpsValue, KernelsAgreeWithPlainArithmetic) {
  for (const OpCase& c : cases_of(*GetParam())) {
    SCOPED_TRACE(c.text());
    if (c.def->is(ir::kComposite)) {
      run_composite(c);
    } else {
      run_primitive(c);
    }
  }
}

TEST_P(OpsValue, CostIsANumber) {
  for (const OpCase& c : cases_of(*GetParam())) {
    const OpGraph built = graph_of(*c.def, c.sample);
    const ir::Cost cost = cost_of(built.graph, built.graph.op(0));
    EXPECT_TRUE(cost.flops >= 0 && std::isfinite(cost.flops)) << c.text();
    double bytes = 0;
    for (const Tensor& t : operands_of(*c.def, c.sample)) bytes += static_cast<double>(t.bytes());
    for (const ir::Output& out : built.graph.outputs()) {
      bytes += static_cast<double>(built.graph.type(out.value).bytes());
    }
    EXPECT_TRUE(c.def->is(ir::kComposite) || cost.bytes == bytes) << c.text() << ": " << cost.bytes << " bytes";
  }
}

INSTANTIATE_TEST_SUITE_P(Table, OpsValue, ::testing::ValuesIn(ir::op_table().begin(), ir::op_table().end()),
                         [](const auto& info) { return std::string(info.param->name); });

}  // namespace
}  // namespace aicf::test
