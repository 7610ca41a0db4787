// Programs in tf32, bf16 and f16: within a bound of f32; master weights and moments in f32; compute copies that are
// always the cast of their parameter; every way to run them bit-equal.
#include <gtest/gtest.h>

#include <cmath>
#include <random>

#include "aicf/verify.h"
#include "support/programs.h"

namespace aicf {
namespace {

using test::error_of;
using test::feeds_of;

const std::vector<std::string>& narrow_precisions() {
  static const std::vector<std::string> names = {"tf32", "bf16", "f16"};
  return names;
}

// Half an ulp at 1 of what the factors of products are rounded to. A GPU may cut tf32 off instead: a whole ulp.
double unit(const std::string& precision) {
  return precision == "bf16" ? 0x1p-8 : precision == "f16" ? 0x1p-11 : 0x1p-10;
}

// Images of 784 pixels, 64 hidden units, 10 classes: what the Fashion-MNIST recipes train.
struct ImageMlp {
  static constexpr int64_t kBatch = 32, kPixels = 784, kHidden = 64;
  Model model;
  Value x, y, hidden, logits, loss;

  explicit ImageMlp(uint64_t seed = 3) : model(seed) {
    x = model.input("x", {f32, {kBatch, kPixels}});
    y = model.input("y", {i32, {kBatch}});
    hidden = relu(model.add(nn::Linear(kHidden), x, "fc1")).named("hidden");
    logits = model.add(nn::Linear(10), hidden, "fc2");
    loss = cross_entropy(logits, y);
  }
};

NamedTensors images(int step) {
  std::minstd_rand random(static_cast<uint32_t>(step) + 1);
  std::uniform_real_distribution<float> pixel(-1, 2);
  std::vector<float> x(ImageMlp::kBatch * ImageMlp::kPixels);
  for (float& v : x) v = pixel(random);
  std::vector<int32_t> y(ImageMlp::kBatch);
  for (int32_t& v : y) v = static_cast<int32_t>(random() % 10);
  return {{"x", Tensor::of<float>({ImageMlp::kBatch, ImageMlp::kPixels}, x)},
          {"y", Tensor::of<int32_t>({ImageMlp::kBatch}, y)}};
}

double norm(const Tensor& t) {
  double sum = 0;
  for (const double v : t.to_doubles()) sum += v * v;
  return std::sqrt(sum);
}

double distance(const Tensor& a, const Tensor& b) {
  double sum = 0;
  for (int64_t i = 0; i < a.elements(); ++i) sum += (a.at(i) - b.at(i)) * (a.at(i) - b.at(i));
  return std::sqrt(sum);
}

Tensor rounded(const Tensor& from, DType dtype) {
  Tensor to(TensorType{dtype, from.shape()});
  for (int64_t i = 0; i < to.elements(); ++i) set_element(dtype, to.data(), i, from.at(i));
  return to;
}

// Whether every compute copy in the store is the cast of its parameter.
void expect_copies_fresh(const Program& program, const std::string& precision, const std::string& when) {
  DType dtype = f32;
  ASSERT_TRUE(parse_dtype(precision, dtype));
  int copies = 0;
  for (const std::string& param : program.params()) {
    const std::string copy = param + "." + precision;
    const std::vector<std::string> states = program.states();
    if (std::find(states.begin(), states.end(), copy) == states.end()) continue;
    ++copies;
    EXPECT_EQ(program.read(copy), rounded(program.read(param), dtype)) << copy << " " << when;
  }
  EXPECT_GT(copies, 0) << when;
}

// --- numbers ------------------------------------------------------------------------------------------------------

// A relative error of k·u·√d in every tensor's norm: u of the factors and, in 16 bits, of each activation; d = 4
// rounded steps one after another (two products, an activation, the loss's operand; as many back). Roundings of the
// elements are independent, so that over a tensor they do not add up further. k = 4.
TEST(Precision, LossAndGradientsStayWithinTheirBoundOfF32) {
  ImageMlp m;
  CompileOptions options = {
      .loss = m.loss,
      .outputs = {{"logits", m.logits}},
      .fetch = {"fc1.weight.grad", "fc1.bias.grad", "fc2.weight.grad", "fc2.bias.grad", "x.grad", "hidden"}};
  const NamedTensors batch = images(0);
  const StepResult want = compile(m.model, options).step(feeds_of(batch));
  for (const std::string& precision : narrow_precisions()) {
    options.precision = precision;
    const StepResult got = compile(m.model, options).step(feeds_of(batch));
    const double bound = 4 * unit(precision) * std::sqrt(4.0);
    for (const std::string& name : want.names()) {
      SCOPED_TRACE(precision + " " + name);
      EXPECT_EQ(got[name].type(), want[name].type()) << "what is returned is f32";
      EXPECT_LE(distance(got[name], want[name]), bound * norm(want[name]));
      EXPECT_NE(got[name], want[name]) << "nothing was rounded";
    }
  }
}

TEST(Precision, TrainingFollowsF32) {
  for (const std::string& precision : narrow_precisions()) {
    ImageMlp m;
    CompileOptions options = {.loss = m.loss, .optimizer = optim::AdamW{.lr = 1e-3}};
    Program want = compile(m.model, options);
    options.precision = precision;
    Program got = compile(m.model, options);
    double first = 0, last = 0;
    for (int step = 0; step < 30; ++step) {
      const NamedTensors batch = images(step % 3);
      last = got.step(feeds_of(batch)).scalar("loss");
      if (step == 0) first = last;
      EXPECT_NEAR(last, want.step(feeds_of(batch)).scalar("loss"), 16 * unit(precision)) << precision << " " << step;
    }
    EXPECT_LT(last, 0.5 * first) << precision;
    for (const std::string& name : got.params()) EXPECT_EQ(got.type(name).dtype, f32) << name;
    for (const std::string& name : got.states()) {
      const bool copy = name.ends_with("." + precision);
      EXPECT_TRUE(copy || !is_float(got.type(name).dtype) || got.type(name).dtype == f32) << name;
    }
  }
}

// Case K3: updates of less than half an ulp of the 16-bit copy must not be lost.
TEST(Precision, CaseK3TheMasterMovesWhereTheCopyCannot) {
  Model m;
  const Value x = m.input("x", {f32, {1, 1}});
  const Value w = m.param("w", {f32, {1, 1}}, Init::ones());
  const Value loss = sum(matmul(x, w));
  Program p = compile(m, {.loss = loss, .optimizer = optim::SGD{.lr = 6e-4}, .precision = "bf16"});
  const Tensor one = Tensor::of<float>({1, 1}, {1});
  for (int step = 0; step < 100; ++step) p.step({{"x", one}});
  EXPECT_NEAR(p.read("w").item(), 0.940002, 1e-6);
  EXPECT_EQ(p.read("w.bf16").item(), 0.94140625);
}

TEST(Precision, F32IsTheDefaultAndChangesNothing) {
  ImageMlp m;
  const CompileOptions options = {.loss = m.loss, .optimizer = optim::SGD{}};
  CompileOptions named = options;
  named.precision = "f32";
  EXPECT_EQ(compile(m.model, options).hash(), compile(m.model, named).hash());
  named.precision = "tf32";
  EXPECT_NE(compile(m.model, options).hash(), compile(m.model, named).hash());
}

// --- compute copies -----------------------------------------------------------------------------------------------

TEST(Precision, CopiesFollowTheirParameters) {
  for (const std::string precision : {"bf16", "f16"}) {
    ImageMlp m;
    Program p = compile(m.model, {.loss = m.loss, .optimizer = optim::AdamW{.lr = 1e-2}, .precision = precision});
    const NamedTensors batch = images(0);
    expect_copies_fresh(p, precision, "at first");
    const Tensor first = p.read("fc1.weight");
    p.step(feeds_of(batch));
    expect_copies_fresh(p, precision, "after a step");
    EXPECT_NE(p.read("fc1.weight"), first);
    Tensor other = p.read("fc1.weight");
    for (int64_t i = 0; i < other.elements(); ++i) other.as<float>()[i] = static_cast<float>(i % 17) / 100;
    p.write("fc1.weight", other);
    expect_copies_fresh(p, precision, "after write");
    NamedTensors saved = p.snapshot();
    for (const auto& [name, tensor] : saved) EXPECT_FALSE(name.ends_with("." + precision)) << name << " is saved";
    p.step(feeds_of(batch));
    p.load(saved);
    EXPECT_EQ(p.read("fc1.weight"), other);
    expect_copies_fresh(p, precision, "after load");
    NamedTensors fed = batch;
    fed.emplace_back("fc1.weight", first);
    p.step(feeds_of(fed), StepMode::train_reset);
    expect_copies_fresh(p, precision, "after train_reset");
    p.reset();
    EXPECT_EQ(p.read("fc1.weight"), first);
    expect_copies_fresh(p, precision, "after reset");
    const std::string message = error_of([&] { p.write("fc1.weight." + precision, rounded(other, bf16)); });
    EXPECT_NE(message.find("derived"), std::string::npos) << message;
  }
}

// A step that is skipped because a label is out of range changes no copy either.
TEST(Precision, ASkippedStepLeavesCopiesAlone) {
  ImageMlp m;
  Program p = compile(m.model, {.loss = m.loss, .optimizer = optim::SGD{.lr = 0.1}, .precision = "bf16"});
  NamedTensors batch = images(0);
  p.step(feeds_of(batch));
  const Tensor master = p.read("fc1.weight"), copy = p.read("fc1.weight.bf16");
  batch[1].second.as<int32_t>()[0] = 10;
  error_of([&] {
    p.step(feeds_of(batch));
    p.wait();
  });
  EXPECT_EQ(p.read("fc1.weight"), master);
  EXPECT_EQ(p.read("fc1.weight.bf16"), copy);
}

TEST(Precision, ProgramsOfSeveralPrecisionsShareAStore) {
  ImageMlp m;
  Program train = compile(m.model, {.loss = m.loss, .optimizer = optim::AdamW{.lr = 1e-2}, .precision = "bf16"});
  const auto eval = [&](const std::string& precision) {
    return compile(m.model, {.outputs = {{"logits", m.logits}}, .precision = precision, .share = train});
  };
  Program same = eval("bf16"), wide = eval("f32"), half = eval("f16");
  const NamedTensors batch = images(0);
  for (int step = 0; step < 3; ++step) {
    train.step(feeds_of(batch));
    expect_copies_fresh(train, "bf16", "of the trained program");
    expect_copies_fresh(train, "f16", "of another program: refreshed by the step too");
    const Tensor want = wide.step(feeds_of(batch))["logits"];
    EXPECT_LE(distance(same.step(feeds_of(batch))["logits"], want), 8 * unit("bf16") * norm(want));
    EXPECT_LE(distance(half.step(feeds_of(batch))["logits"], want), 8 * unit("f16") * norm(want));
  }
  train.reset();
  expect_copies_fresh(train, "bf16", "after reset");
  expect_copies_fresh(train, "f16", "after reset");
}

// The store's first program is f32; one compiled later brings its copies along, and the f32 steps refresh them.
TEST(Precision, CopiesAddedLaterFollowAnF32Program) {
  ImageMlp m;
  Program train = compile(m.model, {.loss = m.loss, .optimizer = optim::SGD{.lr = 0.1}});
  train.step(feeds_of(images(0)));
  Program later = compile(m.model, {.outputs = {{"logits", m.logits}}, .precision = "bf16", .share = train});
  expect_copies_fresh(later, "bf16", "when it is compiled");
  train.step(feeds_of(images(1)));
  expect_copies_fresh(later, "bf16", "after a step of the other program");
}

TEST(Precision, AnotherExternalOfACopysNameIsRefused) {
  Model m;
  const Value x = m.input("x", {f32, {1, 2}});
  const Value w = m.param("w", {f32, {2, 2}}, Init::ones());
  m.state("w.bf16", {f32, {}});
  const Value loss = sum(matmul(x, w));
  const std::string message = error_of([&] { compile(m, {.loss = loss, .precision = "bf16"}); });
  EXPECT_EQ(message,
            "'w.bf16' is the name of the compute copy of the parameter 'w', and the model has another value of this "
            "name");
  EXPECT_EQ(error_of([&] { compile(m, {.loss = loss, .precision = "f16"}); }), "");
}

// --- the rest of the model ----------------------------------------------------------------------------------------

// Derived states are facts of the model: the same in programs of any precision, and a copy of a product of params too.
TEST(Precision, DerivedStatesDoNotDependOnIt) {
  Model m;
  const Value x = m.input("x", {f32, {2, 3}});
  const Value a = m.param("a", {f32, {3, 2}}, Init::uniform(-1, 1)),
              b = m.param("b", {f32, {2, 3}}, Init::uniform(-1, 1));
  const Value ab = m.derived("ab", matmul(a, b));
  const Value loss = mean(square(matmul(x, ab)));
  const CompileOptions options = {.loss = loss, .optimizer = optim::SGD{.lr = 0.1}};
  CompileOptions narrow = options;
  narrow.precision = "bf16";
  Program wide = compile(m, options), program = compile(m, narrow);
  EXPECT_EQ(program.read("ab"), wide.read("ab"));
  const Tensor ones = Tensor::of<float>({2, 3}, {1, 1, 1, 1, 1, 1});
  program.step({{"x", ones}});
  wide.write("a", program.read("a"));
  wide.write("b", program.read("b"));
  EXPECT_EQ(program.read("ab"), wide.read("ab"));
}

TEST(Precision, OwnAndStoppedGradientsWork) {
  for (const std::string& precision : narrow_precisions()) {
    Model m(5);
    const Value x = m.input("x", {f32, {4, 8}});
    const Value h = m.add(nn::Linear(8), x, "fc1");
    // A straight-through sign: the gradient is the cotangent where |h| < 1.
    const Value s = with_gradient(
        {h}, [](const std::vector<Value>& in) { return sign(in[0]); },
        [](const std::vector<Value>& in, Value, Value dy) {
          return std::vector<Value>{select(less(abs(in[0]), literal(in[0], 1)), dy, literal(dy, 0))};
        });
    const Value y = m.add(nn::Linear(8), s + stop_gradient(h) * 0.5, "fc2");
    const Value loss = mean(square(y));
    Program p = compile(m, {.loss = loss,
                            .optimizer = optim::SGD{.lr = 0.05},
                            .fetch = {"fc1.weight.grad", "fc2.weight.grad"},
                            .precision = precision});
    std::vector<float> data(32);
    for (size_t i = 0; i < data.size(); ++i) data[i] = static_cast<float>(i % 7) / 4 - 0.75f;
    const Tensor batch = Tensor::of<float>({4, 8}, data);
    const StepResult r = p.step({{"x", batch}});
    EXPECT_GT(norm(r["fc1.weight.grad"]), 0) << precision;
    const double first = r.scalar("loss");
    for (int step = 0; step < 20; ++step) p.step({{"x", batch}});
    EXPECT_LT(p.step({{"x", batch}}).scalar("loss"), first) << precision;
  }
}

// Tables, norms and a residual stream; tied weights.
TEST(Precision, EmbeddingsNormsAndResidualsTrain) {
  for (const std::string& precision : narrow_precisions()) {
    Model m(7);
    const Value i = m.input("i", {i32, {16}}), y = m.input("y", {i32, {16}});
    const Value table = m.param("table", {f32, {20, 12}}, Init::normal(0, 0.5));
    Value h = gather(table, i);
    for (int block = 0; block < 2; ++block) {
      const std::string name = "block" + std::to_string(block);
      const Value normed = m.add(nn::LayerNorm(), h, name + ".norm");
      const Value inner = gelu(m.add(nn::Linear(24), normed, name + ".up"));
      h = h + m.add(nn::Linear(12), inner, name + ".down");
    }
    const Value loss = cross_entropy(matmul(h, table, false, true), y);
    Program p = compile(m, {.loss = loss, .optimizer = optim::AdamW{.lr = 1e-2}, .precision = precision});
    std::vector<int32_t> from(16), to(16);
    for (int32_t k = 0; k < 16; ++k) {
      from[static_cast<size_t>(k)] = k;
      to[static_cast<size_t>(k)] = (k * 7 + 3) % 20;
    }
    const Tensor index = Tensor::of<int32_t>({16}, from), labels = Tensor::of<int32_t>({16}, to);
    const double first = p.step({{"i", index}, {"y", labels}}).scalar("loss");
    for (int step = 0; step < 60; ++step) p.step({{"i", index}, {"y", labels}});
    EXPECT_LT(p.step({{"i", index}, {"y", labels}}).scalar("loss"), 0.2 * first) << precision;
    if (precision != "tf32") expect_copies_fresh(p, precision, "with a tied table");
  }
}

TEST(Precision, EveryWayToRunGivesTheSameBits) {
  for (const std::string& precision : narrow_precisions()) {
    test::SmallMlp m;
    std::vector<NamedTensors> batches;
    for (int step = 0; step < 8; ++step) batches.push_back(test::small_mlp_batch(step));
    const CompileOptions options = {.loss = m.loss, .optimizer = optim::AdamW{.lr = 0.05}, .precision = precision};
    const auto rows =
        verify(m.model, options, [&](int step) { return feeds_of(batches[static_cast<size_t>(step)]); }, {.orders = 5});
    EXPECT_GT(rows.size(), 8u);
    for (const VerifyRow& row : rows) EXPECT_TRUE(row.equal) << precision << ": " << row.name << ": " << row.detail;
  }
}

TEST(Precision, AnUnknownNameIsRefused) {
  ImageMlp m;
  try {
    compile(m.model, {.loss = m.loss, .precision = "bf61"});
    FAIL() << "accepted";
  } catch (const Error& e) {
    EXPECT_STREQ(e.what(), "precision: expected f32, tf32, bf16 or f16, got \"bf61\"");
    EXPECT_EQ(e.hint(), "did you mean bf16?");
  }
}

}  // namespace
}  // namespace aicf
