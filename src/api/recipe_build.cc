// A recipe's model, loss and optimizer.
#include <fmt/format.h>

#include <cmath>

#include "aicf/error.h"
#include "aicf/ops.h"
#include "aicf/recipe.h"
#include "optim/gradients.h"

namespace aicf {
namespace {

TensorType batch_of(int64_t batch, DType dtype, const std::vector<int64_t>& shape) {
  std::vector<int64_t> dims = {batch};
  dims.insert(dims.end(), shape.begin(), shape.end());
  return {dtype, Shape(std::span<const int64_t>(dims))};
}

// Of the logits: what the data has, unless the model has more.
int64_t class_count(const Recipe& recipe) {
  if (recipe.gpt.vocabulary > 0) return recipe.gpt.vocabulary;
  if (recipe.data.kind == "synthetic-tokens") return recipe.data.vocabulary;
  if (recipe.data.is_tokens()) return 256;
  return recipe.data.kind == "fashion-mnist" ? ImageSetOptions().classes : recipe.data.classes;
}

Value build_gpt(const Recipe& recipe, Model& model, Value tokens) {
  nn::GptOptions options;
  options.vocabulary = class_count(recipe);
  options.context = recipe.gpt.context > 0 ? recipe.gpt.context : recipe.data.context;
  options.layers = recipe.gpt.layers;
  options.width = recipe.gpt.width;
  options.heads = recipe.gpt.heads;
  options.dropout = recipe.gpt.dropout;
  return nn::Gpt(options).impl()->emit({model, ""}, {tokens}).named("logits");
}

int64_t default_features(const Recipe& recipe) {
  if (recipe.loss.kind == "cross_entropy") return class_count(recipe);
  return recipe.data.target.empty() ? 1 : recipe.data.target.back();
}

// Names the recipe's line where the model does not fit.
template <class F>
auto located(const std::string& where, F&& f) {
  try {
    return f();
  } catch (const Error& e) {
    throw Error(where + ": " + e.what(), e.hint());
  }
}

class Builder {
 public:
  Builder(const Recipe& recipe, Model& model) : recipe_(recipe), model_(model) {}

  Value layers(const std::vector<RecipeLayer>& list, Value x, const std::string& prefix) {
    for (const RecipeLayer& layer : list) x = one(layer, x, prefix);
    return x;
  }

 private:
  Value one(const RecipeLayer& l, Value x, const std::string& prefix) {
    const std::string name = l.name.empty() ? "" : prefix + l.name;
    if (!l.residual.empty()) {
      const Value f = layers(l.residual, x, name.empty() ? prefix : name + ".");
      return located(l.where, [&] {
        if (f.type() != x.type()) {
          throw Error(fmt::format("residual: expected a block from {0} to {0}, got {1}", to_string(x.type()),
                                  to_string(f.type())));
        }
        return (x + f).named(name);
      });
    }
    return located(l.where, [&] {
      if (l.layer == "linear") return linear(l, x, name);
      if (l.layer == "flatten") return model_.add(nn::Flatten(), x, name);
      if (l.layer == "layer_norm") return model_.add(l.eps ? nn::LayerNorm(*l.eps) : nn::LayerNorm(), x, name);
      if (l.layer == "rms_norm") return model_.add(l.eps ? nn::RmsNorm(*l.eps) : nn::RmsNorm(), x, name);
      if (l.layer == "dropout") return model_.add(nn::Dropout(l.p), x, name);
      return model_.add(nn::Activation(l.layer), x, name);
    });
  }

  Value linear(const RecipeLayer& l, Value x, const std::string& name) {
    const nn::Linear layer(l.out == 0 ? default_features(recipe_) : l.out, l.bias);
    const Value y = model_.add(layer, x, name);
    if (l.activation.empty()) return y;
    return model_.add(nn::Activation(l.activation), y, model_.name_of(layer) + "." + l.activation);
  }

  const Recipe& recipe_;
  Model& model_;
};

void add_cross_entropy(const Recipe& recipe, int64_t batch, Value logits, RecipeModel& m) {
  const std::vector<int64_t> labels = recipe.data.is_tokens() ? recipe.data.shape : std::vector<int64_t>{};
  std::vector<int64_t> classes = labels;
  classes.push_back(class_count(recipe));
  const Shape want = batch_of(batch, f32, classes).shape;
  if (logits.shape() != want) {
    throw Error(fmt::format("cross_entropy: expected logits {}, got {}", to_string(want), to_string(logits.shape())),
                "a last linear layer without `out` has one output a class");
  }
  m.y = m.model.input("y", batch_of(batch, i32, labels));
  m.loss = cross_entropy(logits, m.y).named("loss");
  m.outputs = {{"logits", logits},
               {"correct", cast(equal(argmax(logits), m.y), f32)},
               {"losses", cross_entropy(logits, m.y, Reduction::none)}};
}

void add_mse(const Recipe& recipe, int64_t batch, Value prediction, RecipeModel& m) {
  const TensorType target = batch_of(batch, f32, recipe.data.target);
  if (prediction.type() != target) {
    throw Error(fmt::format("mse: expected a prediction {}, got {}", to_string(target), to_string(prediction.type())));
  }
  m.y = m.model.input("y", target);
  m.loss = mse(prediction, m.y).named("loss");
  std::vector<int> axes;
  for (int i = 1; i < target.shape.rank(); ++i) axes.push_back(i);
  const Value squares = mse(prediction, m.y, Reduction::none);
  m.outputs = {{"prediction", prediction}, {"losses", axes.empty() ? squares : mean(squares, axes)}};
}

optim::Schedule build_schedule(const Recipe& recipe, int64_t steps_per_epoch) {
  const Recipe::Schedule& s = recipe.schedule;
  const int64_t warmup = s.warmup_steps + std::llround(s.warmup_epochs * static_cast<double>(steps_per_epoch));
  if (s.kind == "warmup") return optim::Schedule::linear_warmup(warmup);
  if (s.kind == "cosine") return optim::Schedule::cosine(total_steps(recipe, steps_per_epoch), warmup, s.min);
  if (s.kind == "table") return optim::Schedule::table(s.factors);
  return optim::Schedule::constant();
}

}  // namespace

RecipeModel build_model(const Recipe& recipe, int64_t batch) {
  if (batch < 1) throw Error(fmt::format("build_model: expected a batch of 1 or more, got {}", batch));
  RecipeModel m;
  m.model = Model(static_cast<uint64_t>(recipe.train.seed));
  m.x = m.model.input("x", batch_of(batch, recipe.data.is_tokens() ? i32 : f32, recipe.data.shape));
  const Value out = recipe.builder.empty()
                        ? Builder(recipe, m.model).layers(recipe.model, m.x, "")
                        : located(recipe.where("model"), [&] { return build_gpt(recipe, m.model, m.x); });
  located(recipe.where("loss.kind"), [&] {
    if (recipe.loss.kind == "cross_entropy") {
      add_cross_entropy(recipe, batch, out, m);
    } else {
      add_mse(recipe, batch, out, m);
    }
  });
  for (const auto& [name, value] : m.outputs) m.model.output(name, value);
  return m;
}

int64_t micro_batch(const Recipe& recipe) { return recipe.train.batch / recipe.train.micro_batches; }

int64_t total_steps(const Recipe& recipe, int64_t steps_per_epoch) {
  return recipe.train.steps > 0 ? recipe.train.steps : recipe.train.epochs * steps_per_epoch;
}

optim::Optimizer build_optimizer(const Recipe& recipe, int64_t steps_per_epoch) {
  const Recipe::Optimizer& o = recipe.optimizer;
  const optim::Schedule schedule =
      located(recipe.where("schedule.kind"), [&] { return build_schedule(recipe, steps_per_epoch); });
  const auto common = [&](auto options) {
    options.lr = o.lr.value_or(options.lr);
    options.weight_decay = o.weight_decay.value_or(options.weight_decay);
    options.schedule = schedule;
    if constexpr (requires { options.beta1; }) {
      options.beta1 = o.beta1;
      options.beta2 = o.beta2;
      options.eps = o.eps;
    } else {
      options.momentum = o.momentum;
      options.dampening = o.dampening;
      options.nesterov = o.nesterov;
    }
    return located(recipe.where("optimizer.kind"), [&] { return optim::Optimizer(options); });
  };
  if (o.kind == "sgd") return common(optim::SGD());
  if (o.kind == "adam") return common(optim::Adam());
  return common(optim::AdamW());
}

CompileOptions training_options(const Recipe& recipe, const RecipeModel& model, int64_t steps_per_epoch,
                                CompileOptions base) {
  const Recipe::Optimizer& o = recipe.optimizer;
  base.loss = model.loss;
  base.optimizer = build_optimizer(recipe, steps_per_epoch);
  base.precision = recipe.precision;
  base.micro_batches = recipe.train.micro_batches;
  base.clip_norm = o.clip_norm;
  base.clip_value = o.clip_value;
  base.ema_decay = o.ema;
  if (o.skip_nonfinite != "auto") base.skip_nonfinite = o.skip_nonfinite == "on";
  if (recipe.loss_scale.kind != "auto") base.scale_loss = recipe.loss_scale.kind == "dynamic";
  base.loss_scale = recipe.loss_scale;
  // The fields bound one another: what the recipe's table of keys cannot check.
  located(recipe.where("loss_scale.initial"), [&] { optim::validate(base.loss_scale); });
  return base;
}

}  // namespace aicf
