// Layers: the parameters they make, the values they compute, what they refuse.
#include <gtest/gtest.h>

#include <cmath>
#include <set>

#include "aicf/error.h"
#include "aicf/model.h"
#include "aicf/ops.h"
#include "ir/graph.h"
#include "ir/init.h"
#include "ops/interpret.h"

namespace aicf {
namespace {

template <class F>
std::string message_of(F&& f) {
  try {
    f();
  } catch (const Error& e) {
    return e.what();
  }
  return "no error";
}

std::string attr(const Model& m, const std::string& external, const std::string& name) {
  const ir::ValueId id = m.graph().find_external(external);
  return id == ir::kNoValue ? "no such external" : m.graph().value(id).attrs.get_string(name);
}

// Runs the model on x; parameters start as declared.
Tensor run(Model& m, Value out, const Tensor& x) {
  m.output("result", out);
  test::TensorMap feeds = {{"x", x}};
  for (const ir::ValueInfo& v : m.graph().values()) {
    if (v.role == ir::Role::param)
      feeds[v.name] = ir::initial_value(v.name, v.type, v.attrs.get_string("init"), m.seed());
  }
  return test::expand_and_interpret(m.graph(), feeds).at("result");
}

Tensor ramp(const Shape& shape) {
  Tensor t(TensorType{f32, shape});
  for (int64_t i = 0; i < t.elements(); ++i) set_element(f32, t.data(), i, std::sin(static_cast<double>(i)));
  return t;
}

TEST(Linear, ComputesXWtPlusBForAnyLeadingAxes) {
  for (const Shape& shape : {Shape{5}, Shape{3, 5}, Shape{2, 3, 5}, Shape{0, 5}, Shape{2, 1, 3, 5}}) {
    for (bool bias : {true, false}) {
      Model m(3);
      const Value y = m.add(nn::Linear(4, bias), m.input("x", {f32, shape}), "fc");
      const Tensor x = ramp(shape);
      const Tensor got = run(m, y, x);
      std::vector<int64_t> want_shape(shape.begin(), shape.end());
      want_shape.back() = 4;
      ASSERT_EQ(got.shape(), Shape(std::span<const int64_t>(want_shape)));
      const std::string bound = attr(m, "fc.weight", "init");
      const Tensor w = ir::initial_value("fc.weight", {f32, {4, 5}}, bound, 3);
      const Tensor b = ir::initial_value("fc.bias", {f32, {4}}, bound, 3);
      for (int64_t r = 0; r < x.elements() / 5; ++r) {
        for (int64_t o = 0; o < 4; ++o) {
          double sum = bias ? b.at(o) : 0;
          for (int64_t k = 0; k < 5; ++k) sum += x.at(r * 5 + k) * w.at(o * 5 + k);
          EXPECT_NEAR(got.at(r * 4 + o), sum, 6 * 0x1p-23);  // six f32 terms below 1
        }
      }
      EXPECT_EQ(m.graph().find_external("fc.bias") != ir::kNoValue, bias);
    }
  }
}

TEST(Linear, StartsWithinTheReciprocalRootOfItsInputs) {
  Model m;
  m.add(nn::Linear(2), m.input("x", {f32, {1, 16}}), "fc");
  EXPECT_EQ(attr(m, "fc.weight", "init"), "uniform(-0x1p-2,0x1p-2)");
  EXPECT_EQ(attr(m, "fc.bias", "init"), "uniform(-0x1p-2,0x1p-2)");
}

TEST(Linear, Refuses) {
  Model m;
  const nn::Linear fc(2);
  m.add(fc, m.input("x", {f32, {1, 16}}), "fc");
  EXPECT_EQ(message_of([&] {
              m.add(fc, m.input("z", {f32, {1, 5}}));
            }),
            "linear fc(f32[1,5]): expected (…, 16), as its weight is f32[2,16]");
  EXPECT_EQ(message_of([&] {
              m.add(fc, m.input("h", {f16, {1, 16}}));
            }),
            "layer fc: expected fc.weight to be the param f16[2,16], got the param f32[2,16]");
  EXPECT_EQ(message_of([&] {
              m.add(nn::Linear(2), m.input("i", {i32, {1, 16}}), "a");
            }),
            "linear a(i32[1,16]): expected a float type");
  EXPECT_EQ(message_of([&] {
              m.add(nn::Linear(2), m.input("s", {f32, {}}), "a");
            }),
            "linear a(f32[]): expected one axis or more");
  EXPECT_EQ(message_of([&] {
              m.add(nn::Linear(2), m.input("e", {f32, {3, 0}}), "a");
            }),
            "linear a(f32[3,0]): expected one input feature or more");
  EXPECT_EQ(message_of([&] {
              m.add(nn::Linear(2), {m.value("x"), m.value("x")}, "a");
            }),
            "linear a(f32[1,16], f32[1,16]): expected one input");
  EXPECT_EQ(message_of([] { nn::Linear(0); }), "linear: expected 1 or more output features, got 0");
}

TEST(Activation, EveryFunctionIsItsOp) {
  const std::map<std::string, Value (*)(Value)> ops = {{"relu", [](Value x) { return relu(x); }},
                                                       {"tanh", [](Value x) { return tanh(x); }},
                                                       {"sigmoid", [](Value x) { return sigmoid(x); }},
                                                       {"gelu", [](Value x) { return gelu(x); }},
                                                       {"gelu_tanh", [](Value x) { return gelu(x, true); }},
                                                       {"softmax", [](Value x) { return softmax(x); }},
                                                       {"log_softmax", [](Value x) { return log_softmax(x); }}};
  EXPECT_EQ(nn::Activation::functions().size(), ops.size());
  for (const std::string& function : nn::Activation::functions()) {
    Model a, b;
    const Value layer = a.add(nn::Activation(function), a.input("x", {f32, {2, 3}}));
    const Value op = ops.at(function)(b.input("x", {f32, {2, 3}}));
    EXPECT_EQ(layer.name(), function + "1");
    EXPECT_EQ(run(a, layer, ramp({2, 3})), run(b, op, ramp({2, 3}))) << function;
  }
  EXPECT_EQ(message_of([] { nn::Activation("rellu"); }),
            "activation: expected one of relu, tanh, sigmoid, gelu, gelu_tanh, softmax, log_softmax, got \"rellu\"");
  Model m;
  EXPECT_EQ(message_of([&] {
              m.add(nn::Activation("softmax"), m.input("s", {f32, {}}), "a");
            }),
            "softmax a(f32[]): expected one axis or more");
}

TEST(Flatten, KeepsTheFirstAxis) {
  Model m;
  EXPECT_EQ(m.add(nn::Flatten(), m.input("x", {f32, {2, 3, 4}})).shape(), (Shape{2, 12}));
  EXPECT_EQ(m.add(nn::Flatten(), m.input("y", {f32, {2, 3}})).shape(), (Shape{2, 3}));
  EXPECT_EQ(message_of([&] {
              m.add(nn::Flatten(), m.input("z", {f32, {2}}), "f");
            }),
            "flatten f(f32[2]): expected 2 axes or more");
}

TEST(Norms, NormaliseTheLastAxis) {
  const Tensor x = ramp({2, 3, 8});
  Model a, b;
  const Tensor layer = run(a, a.add(nn::LayerNorm(1e-3), a.input("x", {f32, {2, 3, 8}}), "n"), x);
  const Tensor rms = run(b, b.add(nn::RmsNorm(1e-3), b.input("x", {f32, {2, 3, 8}}), "n"), x);
  for (int64_t r = 0; r < 6; ++r) {
    double mean = 0, square = 0;
    for (int64_t i = 0; i < 8; ++i) mean += x.at(r * 8 + i) / 8;
    for (int64_t i = 0; i < 8; ++i) square += x.at(r * 8 + i) * x.at(r * 8 + i) / 8;
    for (int64_t i = 0; i < 8; ++i) {
      const double v = x.at(r * 8 + i);
      // Values of a few units, some twenty f32 roundings.
      EXPECT_NEAR(layer.at(r * 8 + i), (v - mean) / std::sqrt(square - mean * mean + 1e-3), 5e-6);
      EXPECT_NEAR(rms.at(r * 8 + i), v / std::sqrt(square + 1e-3), 5e-6);
    }
  }
  EXPECT_EQ(attr(a, "n.weight", "init"), "ones");
  EXPECT_EQ(attr(a, "n.bias", "init"), "zeros");
  EXPECT_EQ(attr(b, "n.weight", "init"), "ones");
  EXPECT_EQ(b.graph().find_external("n.bias"), ir::kNoValue);
  EXPECT_EQ(message_of([] { nn::LayerNorm(-1); }), "layer_norm: expected eps finite and 0 or more, got -1.000000");
  EXPECT_EQ(message_of([] { nn::RmsNorm(std::nan("")); }), "rms_norm: expected eps finite and 0 or more, got nan");
}

// Each query's own average of the values, by loops, with the two layers around it.
TEST(SelfAttention, AttendsByHeads) {
  constexpr int64_t B = 2, T = 3, C = 4, H = 2, D = C / H;
  for (const bool causal : {false, true}) {
    Model m(5);
    const Value y = m.add(nn::SelfAttention(C, H, causal, 0.5), m.input("x", {f32, {B, T, C}}), "attn");
    EXPECT_EQ(attr(m, "attn.qkv.weight", "init"), "normal(0x0p+0,0x1p-1)");
    EXPECT_EQ(attr(m, "attn.qkv.bias", "init"), "zeros");
    EXPECT_EQ(attr(m, "attn.proj.bias", "init"), "zeros");
    const Tensor x = ramp({B, T, C}), got = run(m, y, x);
    const Tensor qkv = ir::initial_value("attn.qkv.weight", {f32, {3 * C, C}}, "normal(0,0.5)", 5);
    const Tensor proj = ir::initial_value("attn.proj.weight", {f32, {C, C}}, "normal(0,0.5)", 5);
    const auto part = [&](int64_t which, int64_t b, int64_t t, int64_t c) {
      double sum = 0;
      for (int64_t k = 0; k < C; ++k) sum += x.at((b * T + t) * C + k) * qkv.at((which * C + c) * C + k);
      return sum;
    };
    for (int64_t b = 0; b < B; ++b) {
      for (int64_t t = 0; t < T; ++t) {
        double brought[C] = {};
        for (int64_t c = 0; c < C; ++c) {
          double total = 0;
          for (int64_t s = 0; s < (causal ? t + 1 : T); ++s) {
            double score = 0;
            for (int64_t k = c / D * D; k < (c / D + 1) * D; ++k) score += part(0, b, t, k) * part(1, b, s, k);
            const double weight = std::exp(score / std::sqrt(static_cast<double>(D)));
            total += weight;
            brought[c] += weight * part(2, b, s, c);
          }
          brought[c] /= total;
        }
        for (int64_t c = 0; c < C; ++c) {
          double want = 0;
          for (int64_t k = 0; k < C; ++k) want += brought[k] * proj.at(c * C + k);
          EXPECT_NEAR(got.at((b * T + t) * C + c), want, 2e-6);  // a few sums of four f32 products below 2
        }
      }
    }
  }
  EXPECT_EQ(message_of([] { nn::SelfAttention(6, 4); }),
            "self_attention: expected a width divisible by the heads, got 6 and 4");
  Model m;
  EXPECT_EQ(message_of([&] {
              m.add(nn::SelfAttention(4, 2), m.input("x", {f32, {2, 3, 5}}), "a");
            }),
            "self_attention a(f32[2,3,5]): expected (…, T, 4)");
}

TEST(Gpt, HasTheParametersOfGpt2) {
  Model m;
  const nn::Gpt gpt({.vocabulary = 7, .context = 5, .layers = 2, .width = 4, .heads = 2});
  const Value logits = m.add(gpt, m.input("x", {i32, {3, 4}}), "lm");
  EXPECT_EQ(logits.type(), (TensorType{f32, {3, 4, 7}}));
  std::vector<std::string> names;
  for (const ir::ValueInfo& v : m.graph().values()) {
    if (v.role == ir::Role::param) names.push_back(v.name + " " + to_string(v.type.shape));
  }
  const std::vector<std::string> block = {"ln1.weight [4]",     "ln1.bias [4]",           "attn.qkv.weight [12,4]",
                                          "attn.qkv.bias [12]", "attn.proj.weight [4,4]", "attn.proj.bias [4]",
                                          "ln2.weight [4]",     "ln2.bias [4]",           "mlp.fc.weight [16,4]",
                                          "mlp.fc.bias [16]",   "mlp.proj.weight [4,16]", "mlp.proj.bias [4]"};
  std::vector<std::string> want = {"lm.wpe.weight [5,4]", "lm.wte.weight [7,4]"};
  for (const char* h : {"lm.h0.", "lm.h1."}) {
    for (const std::string& name : block) want.push_back(h + name);
  }
  want.insert(want.end(), {"lm.lnf.weight [4]", "lm.lnf.bias [4]"});
  EXPECT_EQ(std::set<std::string>(names.begin(), names.end()), std::set<std::string>(want.begin(), want.end()));
  EXPECT_EQ(names.size(), want.size());
  EXPECT_EQ(attr(m, "lm.wte.weight", "init"), attr(m, "lm.wpe.weight", "init"));
  EXPECT_EQ(message_of([&] {
              m.add(gpt, m.input("long", {i32, {1, 6}}));
            }),
            "gpt lm(i32[1,6]): expected T <= 5, the context");
  EXPECT_EQ(message_of([] { nn::Gpt({.layers = 0}); }), "gpt: expected 1 or more layers, got 0");
}

TEST(Embedding, PicksRows) {
  Model m;
  const Value y = m.add(nn::Embedding(5, 3), m.input("x", {i32, {2, 2}}), "tok");
  const Tensor got = run(m, y, Tensor::of<int32_t>({2, 2}, {4, 0, 0, 2}));
  EXPECT_EQ(got.shape(), (Shape{2, 2, 3}));
  EXPECT_EQ(attr(m, "tok.weight", "init"), "normal(0x0p+0,0x1p+0)");
  const Tensor w = ir::initial_value("tok.weight", {f32, {5, 3}}, "normal(0,1)", 0);
  const int64_t rows[] = {4, 0, 0, 2};
  for (int64_t i = 0; i < 12; ++i) EXPECT_EQ(got.at(i), w.at(rows[i / 3] * 3 + i % 3));
  EXPECT_EQ(message_of([&] {
              m.add(nn::Embedding(5, 3), m.input("f", {f32, {2}}), "e");
            }),
            "embedding e(f32[2]): expected an index of type i32 or i64");
  EXPECT_EQ(message_of([] { nn::Embedding(0, 3); }), "embedding: expected 1 or more rows and columns, got 0 and 3");
}

}  // namespace
}  // namespace aicf
