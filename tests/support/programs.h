// Small models and the list of optimizers, shared by the tests of whole programs.
#pragma once

#include <string>
#include <vector>

#include "aicf/error.h"
#include "aicf/model.h"
#include "aicf/ops.h"
#include "aicf/optim.h"
#include "aicf/program.h"

namespace aicf::test {

struct NamedOptimizer {
  std::string name;
  optim::Optimizer optimizer;
};

// Every optimizer in its plain form and with all its options away from their defaults.
inline std::vector<NamedOptimizer> all_optimizers(double lr = 0.1) {
  const optim::Schedule schedule = optim::Schedule::cosine(10, 2, 0.1);
  return {
      {"sgd", optim::SGD{.lr = lr}},
      {"sgd momentum",
       optim::SGD{.lr = lr, .momentum = 0.9, .dampening = 0.5, .weight_decay = 0.1, .schedule = schedule}},
      {"sgd nesterov", optim::SGD{.lr = lr, .momentum = 0.9, .weight_decay = 0.1, .nesterov = true}},
      {"adam", optim::Adam{.lr = lr}},
      {"adam decay",
       optim::Adam{.lr = lr, .beta1 = 0.8, .beta2 = 0.95, .eps = 1e-3, .weight_decay = 0.1, .schedule = schedule}},
      {"adamw", optim::AdamW{.lr = lr}},
      {"adamw table", optim::AdamW{.lr = lr,
                                   .beta1 = 0.8,
                                   .beta2 = 0.95,
                                   .eps = 1e-3,
                                   .weight_decay = 0.1,
                                   .schedule = optim::Schedule::table({1.0, 0.5, 0.25})}},
      {"adamw warmup", optim::AdamW{.lr = lr, .schedule = optim::Schedule::linear_warmup(4)}},
  };
}

// L = w·x over scalars, w starts at `w0`.
struct ScalarModel {
  Model model;
  Value x, w, loss;
  explicit ScalarModel(double w0 = 1, DType dtype = f32) : model(0) {
    x = model.input("x", {dtype, {}});
    w = model.param("w", {dtype, {}}, Init::value(w0));
    loss = w * x;
  }
};

// x (4, 3) → tanh → softmax cross-entropy over labels y (4); two linear layers "fc1" and "fc2".
struct SmallMlp {
  Model model;
  Value x, y, logits, loss;
  explicit SmallMlp(uint64_t seed = 1) : model(seed) {
    x = model.input("x", {f32, {4, 3}});
    y = model.input("y", {i32, {4}});
    const Value h = tanh(model.add(nn::Linear(5), x, "fc1"));
    logits = model.add(nn::Linear(3), h, "fc2");
    loss = cross_entropy(logits, y);
  }
};

// Inputs of SmallMlp that differ from step to step.
inline NamedTensors small_mlp_batch(int step) {
  std::vector<float> x(12);
  for (size_t i = 0; i < x.size(); ++i)
    x[i] = static_cast<float>(static_cast<int>(i * 7 + static_cast<size_t>(step) * 5) % 11) / 4 - 1;
  std::vector<int32_t> y(4);
  for (size_t i = 0; i < y.size(); ++i) y[i] = static_cast<int32_t>((i + static_cast<size_t>(step)) % 3);
  return {{"x", Tensor::of<float>({4, 3}, x)}, {"y", Tensor::of<int32_t>({4}, y)}};
}

inline std::vector<Feed> feeds_of(const NamedTensors& tensors) {
  std::vector<Feed> feeds;
  for (const auto& [name, tensor] : tensors) feeds.push_back({name, tensor});
  return feeds;
}

// The message of the Error that `f` throws; "" when it throws none.
template <class F>
std::string error_of(F&& f) {
  try {
    f();
  } catch (const Error& e) {
    return e.what();
  }
  return "";
}

}  // namespace aicf::test
