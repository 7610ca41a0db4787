// An MLP's losses, gradients and parameters over 50 steps of each optimizer against JAX in float64
// (tests/reference/make_mlp_reference.py made the stored values).
#include <gtest/gtest.h>

#include <cmath>
#include <fstream>
#include <nlohmann/json.hpp>

#include "support/programs.h"

namespace aicf {
namespace {

constexpr int64_t kDims[] = {12, 16, 10, 5};
constexpr int64_t kBatch = 8;

// The same closed formula as the script's.
Tensor formula(DType dtype, Shape shape, int64_t a, int64_t b, double scale) {
  Tensor t(TensorType{dtype, shape});
  for (int64_t i = 0; i < t.elements(); ++i) {
    set_element(dtype, t.data(), i, static_cast<double>((i * a + b) % 2048 - 1024) / 1024 * scale);
  }
  return t;
}

struct Network {
  Model model;
  Value loss;
  explicit Network(DType dtype) : model(0) {
    const Value x = model.input("x", {dtype, {kBatch, kDims[0]}}), y = model.input("y", {i32, {kBatch}});
    const auto linear = [&](Value in, const std::string& name, int64_t from, int64_t to) {
      const Value w = model.param(name + ".weight", {dtype, {to, from}});
      const Value b = model.param(name + ".bias", {dtype, {to}});
      return matmul(in, w, false, true) + b;
    };
    Value h = tanh(linear(x, "fc1", kDims[0], kDims[1]));
    h = relu(linear(h, "fc2", kDims[1], kDims[2]));
    loss = cross_entropy(linear(h, "fc3", kDims[2], kDims[3]), y);
  }
};

NamedTensors weights(DType dtype) {
  NamedTensors list;
  for (int64_t k = 0; k < 3; ++k) {
    const std::string name = "fc" + std::to_string(k + 1);
    list.emplace_back(name + ".weight", formula(dtype, {kDims[k + 1], kDims[k]}, 389, 17 * k, 0.5));
    list.emplace_back(name + ".bias", formula(dtype, {kDims[k + 1]}, 701, 31 * k, 0.25));
  }
  return list;
}

struct Case {
  const char* name;
  optim::Optimizer optimizer;
};

std::vector<Case> all_cases() {
  return {
      {"sgd", optim::SGD{.lr = 0.1}},
      {"sgd_momentum", optim::SGD{.lr = 0.05, .momentum = 0.9, .dampening = 0.1, .weight_decay = 0.01}},
      {"sgd_nesterov", optim::SGD{.lr = 0.05, .momentum = 0.9, .weight_decay = 0.01, .nesterov = true}},
      {"adam", optim::Adam{.lr = 0.01, .weight_decay = 0.01}},
      {"adamw", optim::AdamW{.lr = 0.01, .weight_decay = 0.1}},
      {"adamw_cosine", optim::AdamW{.lr = 0.02,
                                    .beta1 = 0.8,
                                    .beta2 = 0.95,
                                    .eps = 1e-3,
                                    .weight_decay = 0.1,
                                    .schedule = optim::Schedule::cosine(40, 5, 0.1)}},
  };
}

const nlohmann::json& reference() {
  static const nlohmann::json json = [] {
    std::ifstream file(AICF_SOURCE_DIR "/tests/reference/mlp_reference.json");
    return nlohmann::json::parse(file);
  }();
  return json;
}

// The largest |got - want| / max(|want|, floor).
double worst(const Tensor& got, const nlohmann::json& want, double floor) {
  EXPECT_EQ(static_cast<size_t>(got.elements()), want.size());
  double most = 0;
  for (int64_t i = 0; i < got.elements(); ++i) {
    const double w = want[static_cast<size_t>(i)].get<double>();
    most = std::max(most, std::abs(got.at(i) - w) / std::max(std::abs(w), floor));
  }
  return most;
}

struct Errors {
  double loss = 0, gradients = 0, parameters = 0;
};

Errors compare(const Case& run, DType dtype) {
  const nlohmann::json& want = reference()["runs"][run.name];
  Network net(dtype);
  std::vector<std::string> fetch;
  for (const auto& [name, tensor] : weights(dtype)) fetch.push_back(name + ".grad");
  CompileOptions options = {.loss = net.loss, .optimizer = run.optimizer, .fetch = fetch};
  if (dtype == f64) options.backend = "cpu";  // the only one that has it
  Program p = compile(net.model, options);
  p.load(weights(dtype), {.states = false});
  Errors errors;
  for (int step = 0; step < 50; ++step) {
    const Tensor x = formula(dtype, {kBatch, kDims[0]}, 577, 97 * step, 2.0);
    Tensor y(TensorType{i32, {kBatch}});
    for (int64_t i = 0; i < kBatch; ++i) set_element(i32, y.data(), i, static_cast<double>((i * 3 + step) % kDims[3]));
    const StepResult r = p.step({{"x", x}, {"y", y}});
    const double loss = want["losses"][static_cast<size_t>(step)].get<double>();
    errors.loss = std::max(errors.loss, std::abs(r.scalar("loss") - loss) / loss);
    if (step > 0) continue;
    // Elements near zero are sums that cancel: they are measured against the gradients' own scale.
    for (const auto& [name, grad] : want["first_gradients"].items()) {
      errors.gradients = std::max(errors.gradients, worst(r[name + ".grad"], grad, 1e-3));
    }
  }
  for (const auto& [name, value] : want["final_parameters"].items()) {
    errors.parameters = std::max(errors.parameters, worst(p.read(name), value, 1e-3));
  }
  return errors;
}

// 1e-9: both sides round at 2^-53, and 50 steps amplify that by the curvature, not beyond 1e6.
TEST(Reference, F64AgreesWithJax) {
  for (const Case& run : all_cases()) {
    const Errors e = compare(run, f64);
    EXPECT_LE(e.loss, 1e-9) << run.name;
    EXPECT_LE(e.gradients, 1e-9) << run.name;
    EXPECT_LE(e.parameters, 1e-9) << run.name;
  }
}

// f32: the loss to 1e-4. A first-step gradient is a sum of at most 16·10·8 products: 1e-4 of its scale is 40 times
// eps·√1280.
TEST(Reference, F32AgreesWithJax) {
  for (const Case& run : all_cases()) {
    const Errors e = compare(run, f32);
    EXPECT_LE(e.loss, 1e-4) << run.name;
    EXPECT_LE(e.gradients, 1e-4) << run.name;
  }
}

}  // namespace
}  // namespace aicf
