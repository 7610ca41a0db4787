// Recipes: a training run as a TOML file: data, model, loss, optimizer, schedule. Every key is a member below under the
// same name, and its initial value here is its default.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "aicf/data.h"
#include "aicf/model.h"
#include "aicf/optim.h"
#include "aicf/program.h"

namespace aicf {

// One [[model]] entry: a layer, or a residual block x + f(x) whose f are the layers of `residual` ([[model.residual]]).
struct RecipeLayer {
  // linear, layer_norm, rms_norm, dropout, flatten, or a function of nn::Activation ("relu"). Required, unless
  // `residual` is given.
  std::string layer;
  std::string name;        // "": made from the kind and a count ("linear1"). Of a block: the prefix of the names in it
  int64_t out = 0;         // linear: 0 is the data's number of classes, or the last axis of its target
  bool bias = true;        // linear
  std::string activation;  // linear: a function of nn::Activation, after it; "": none
  std::optional<double> eps;  // layer_norm (1e-5), rms_norm (1e-6)
  double p = 0.5;             // dropout: the share of elements that a training step drops
  std::vector<RecipeLayer> residual;
  std::string where;  // not a key: "file:line", for messages
};

struct Recipe {
  std::string name;               // "": the file's name without folder and extension
  std::string precision = "f32";  // of matrix products: f32, tf32, bf16 or f16; parameters stay f32

  struct Data {
    // Or synthetic: inputs and targets N(0, 1), labels uniform over the classes; element i of a tensor is the Philox
    // draw (train.seed, data.train.NAME or data.test.NAME, i), so the examples are the same on every machine.
    // Or tokens: x and y i32 (batch, context), to predict y[t] from x[0] … x[t]:
    //   synthetic-tokens: all uniform over the vocabulary, drawn as synthetic's labels are;
    //   text: the bytes of a file in windows of `context`, y the byte after each of x (load_text_set);
    //   bible-kjv: the same of the text that Debian's package bible-kjv prints.
    std::string kind = "fashion-mnist";
    std::vector<int64_t> shape;              // of one input; default [28, 28] for fashion-mnist, [16] for synthetic
    std::string path = kFashionMnistFolder;  // fashion-mnist: its folder; text: its file, required
    double mean = 0.2860;                    // fashion-mnist: pixels become (x / 255 - mean) / deviation
    double deviation = 0.3530;
    int64_t examples = 1024;            // synthetic, synthetic-tokens: train.batch times the number of distinct batches
    int64_t classes = 10;               // synthetic: of the labels, for cross_entropy
    std::vector<int64_t> target = {1};  // synthetic: shape of one target, for mse
    int64_t vocabulary = 256;           // synthetic-tokens; of text it is 256
    int64_t context = 64;               // tokens: of one example
    double held_out = 0.1;              // text, bible-kjv: the part at the end that is the test set

    bool is_tokens() const { return kind == "synthetic-tokens" || kind == "text" || kind == "bible-kjv"; }
  } data;

  std::vector<RecipeLayer> model;  // required: a list of layers,
  std::string builder;             // or the name of a model, which `model` then holds: gpt

  // With model = "gpt": nn::Gpt, on tokens.
  struct Gpt {
    int64_t vocabulary = 0;  // 0: the data's; a larger one pads the table
    int64_t context = 0;     // 0: the data's
    int64_t layers = 12;
    int64_t width = 768;
    int64_t heads = 12;
    double dropout = 0;  // the share that a training step drops, at each place that nn::Gpt names
  } gpt;

  struct Loss {
    std::string kind = "cross_entropy";  // or mse
  } loss;

  struct Optimizer {
    std::string kind = "adamw";          // or adam, sgd
    std::optional<double> lr;            // default: the optimizer's own (aicf/optim.h)
    std::optional<double> weight_decay;  // the same
    double beta1 = 0.9;                  // adam, adamw
    double beta2 = 0.999;
    double eps = 1e-8;
    double momentum = 0;  // sgd
    double dampening = 0;
    bool nesterov = false;
    // As the options of these names in CompileOptions; left out: none.
    std::optional<double> clip_norm;
    std::optional<double> clip_value;
    std::optional<double> ema;            // ema_decay
    std::string skip_nonfinite = "auto";  // auto (with clip_norm or a loss scale), on, off
  } optimizer;

  struct LossScale : optim::LossScale {
    std::string kind = "auto";  // auto (with f16), dynamic, none
  } loss_scale;

  struct Schedule {
    std::string kind = "constant";  // or warmup, cosine (down to `min` at the last step), table
    int64_t warmup_steps = 0;       // warmup, cosine
    double warmup_epochs = 0;       // the same in epochs; give one of the two
    double min = 0;                 // cosine: a factor of lr
    std::vector<double> factors;    // table: of lr, one a step; the last one stays
  } schedule;

  struct Train {
    int64_t epochs = 1;
    int64_t steps = 0;          // stop after so many steps; 0: after the epochs
    int64_t batch = 64;         // a last partial batch is dropped in training
    int64_t micro_batches = 1;  // a divisor of batch: a step takes so many parts of it one after another
    int64_t eval_batch = 0;     // 0: as batch
    int64_t seed = 0;           // of the initial values, the shuffling and synthetic data
  } train;

  std::string file;  // not a key: as given, for messages
  // Not keys: "file:line" of each key that was given, by its path ("optimizer.lr").
  std::map<std::string, std::string> given;

  // "file:line" of the key, or the file when it was not given.
  const std::string& where(const std::string& key) const;
};

// Reads a recipe. `sets` are overrides KEY=VALUE in TOML's syntax, where text needs no quotes: "optimizer.lr=0.01",
// "model.fc1.out=64", "model.0.out=64" (a layer by its name or place). Throws Error "FILE:LINE: KEY: …" on malformed
// text, an unknown key (nearest name offered), a value of the wrong type or out of range, or a key that the chosen kind
// does not have (where an override chose the kind, the file's keys of the old one are left behind).
Recipe parse_recipe(std::string_view text, const std::string& file, std::span<const std::string> sets = {});
Recipe load_recipe(const std::string& path, std::span<const std::string> sets = {});

// The recipe's training (or test) set, with the tensors x and y.
Dataset load_data(const Recipe& recipe, bool train);

struct RecipeModel {
  Model model;
  // Inputs: f32 (batch, shape…), and i32 (batch) labels or f32 (batch, target…); of tokens both i32 (batch, context).
  Value x, y;
  Value loss;
  // Also outputs of the model, one row an example: cross_entropy: logits, correct (1 or 0), losses; mse: prediction,
  // losses. Of tokens a row has an element a token (of logits, a row).
  std::map<std::string, Value> outputs;
};

// Throws Error naming the recipe's line where a layer does not fit.
RecipeModel build_model(const Recipe& recipe, int64_t batch);

// `steps` of training, else those of the epochs.
int64_t total_steps(const Recipe& recipe, int64_t steps_per_epoch);
optim::Optimizer build_optimizer(const Recipe& recipe, int64_t steps_per_epoch);

// The batch that the training model is built with: train.batch / train.micro_batches.
int64_t micro_batch(const Recipe& recipe);
// `base` with all that the recipe says of its training program: loss, optimizer, precision, clipping and so on. `model`
// is build_model(recipe, micro_batch(recipe)).
CompileOptions training_options(const Recipe& recipe, const RecipeModel& model, int64_t steps_per_epoch,
                                CompileOptions base = {});

}  // namespace aicf
