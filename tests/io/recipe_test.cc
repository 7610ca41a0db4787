// Recipes: every key of the schema, messages, overrides, the models they build, and hostile text.
#include "aicf/recipe.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <fstream>
#include <set>
#include <tuple>

#include "aicf/error.h"
#include "io/recipe_schema.h"
#include "ir/graph.h"
#include "ir/op.h"
#include "optim/optimizer.h"

namespace aicf {
namespace {

constexpr const char* kModel = "[[model]]\nlayer = \"linear\"\nname = \"fc1\"\n";

Recipe parse(const std::string& text, const std::vector<std::string>& sets = {}) {
  return parse_recipe(text, "r.toml", sets);
}

struct Failure {
  std::string message, hint;
};

template <class F>
Failure failure(F&& f) {
  try {
    f();
  } catch (const Error& e) {
    return {e.what(), e.hint()};
  }
  return {"no error", ""};
}

void expect_error(const std::string& text, const std::string& message, const std::string& hint = "",
                  const std::vector<std::string>& sets = {}) {
  const Failure f = failure([&] { parse(text, sets); });
  EXPECT_EQ(f.message, message) << text;
  if (!hint.empty()) {
    EXPECT_EQ(f.hint, hint) << text;
  }
}

TEST(Recipe, DefaultsAreThoseOfTheHeader) {
  const Recipe r = parse(kModel);
  EXPECT_EQ(r.name, "r");
  EXPECT_EQ(r.data.shape, (std::vector<int64_t>{28, 28}));
  EXPECT_EQ(r.optimizer.kind, "adamw");
  EXPECT_FALSE(r.optimizer.lr.has_value());
  EXPECT_EQ(r.train.batch, 64);
  EXPECT_EQ(r.precision, "f32");
  EXPECT_EQ(parse(std::string("data.kind = 'synthetic'\n") + kModel).data.shape, std::vector<int64_t>{16});
}

// Each row of the table is given once, in the file and as an override, and lands in its own slot.
TEST(Recipe, EveryKeyOfTheSchemaIsRead) {
  struct Text {
    std::string operator()(std::string*) const { return "'x'"; }
    std::string operator()(int64_t*) const { return "3"; }
    std::string operator()(double*) const { return "0.25"; }
    std::string operator()(bool* at) const { return *at ? "false" : "true"; }
    std::string operator()(std::optional<double>*) const { return "0.25"; }
    std::string operator()(std::vector<int64_t>*) const { return "[14, 56]"; }
    std::string operator()(std::vector<double>*) const { return "[0.25, 1]"; }
    std::string operator()(std::vector<RecipeLayer>*) const { return ""; }
  };
  const auto changed = [](const io::RecipeSlot& slot, const io::RecipeSlot& initial) {
    return std::visit(
        [&](auto* value) {
          if constexpr (std::is_same_v<decltype(value), std::vector<RecipeLayer>*>) {
            return false;
          } else {
            return *value != *std::get<decltype(value)>(initial);
          }
        },
        slot);
  };
  size_t read = 0;
  for (const io::RecipeKey& key : io::recipe_schema()) {
    Recipe fresh;
    RecipeLayer fresh_layer;
    const io::RecipeSlot initial = key.slot(fresh, fresh_layer);
    if (std::holds_alternative<std::vector<RecipeLayer>*>(initial)) continue;
    ++read;
    const std::string section = key.section, name = key.name;
    std::string value = std::visit(Text{}, initial);
    if (!key.choices.empty()) value = "'" + key.choices[1] + "'";
    const std::string kind = key.kinds.empty() ? "" : key.kinds[0];
    const bool of_layer = section == "model";
    const bool of_gpt = section == "gpt";
    const std::string kind_of_data = of_gpt ? "bible-kjv" : "synthetic";
    const std::string synthetic = section == "data" ? "" : "[data]\nkind = '" + kind_of_data + "'\n";
    if (name == "micro_batches") value = "4";  // 3 is no divisor of the batch
    std::string base, layer = "[[model]]\n";
    if (of_gpt) {
      // 3 is no divisor of the width, and less than the data has.
      if (name == "heads") value = "4";
      if (name == "width") value = "24";
      if (name == "vocabulary" || name == "context") value = "1000";
      layer = "";
      base = "model = 'gpt'\n";
    } else if (of_layer) {
      if (name != "layer") layer += "layer = '" + (kind.empty() ? "linear" : kind) + "'\n";
    } else {
      layer += "layer = 'linear'\n";
    }
    std::string table = section.empty() || of_layer ? "" : "[" + section + "]\n";
    if (!kind.empty() && !of_layer && !of_gpt) table += "kind = '" + kind + "'\n";
    if (kind == "text") table += "path = 'somewhere'\n";
    if (name == "kind" && key.choices[1] == "table") value = "'cosine'";
    if (name == "kind" && section == "loss") base = "";
    const std::string line = name + " = " + value + "\n";
    const std::string path = of_layer ? "model.0." + name : section.empty() ? name : section + "." + name;

    const auto check = [&](Recipe r) {
      RecipeLayer none;
      const io::RecipeSlot slot = key.slot(r, r.model.empty() ? none : r.model[0]);
      EXPECT_TRUE(changed(slot, initial)) << path;
      EXPECT_EQ(r.given.count(path), 1u) << path;
    };
    SCOPED_TRACE(path);
    if (of_layer) {
      check(parse(synthetic + layer + line));
      if (name == "layer") layer += "layer = 'linear'\n";
      check(parse(synthetic + layer, {path + "=" + value}));
    } else {
      check(parse(base + (section.empty() ? line : table + line) + synthetic + layer));
      check(parse(base + table + synthetic + layer, {path + "=" + value}));
    }
  }
  EXPECT_GT(read, 30u);
}

TEST(Recipe, NumbersTakeIntegersAndIntegersNoNumbers) {
  EXPECT_EQ(parse(std::string("[optimizer]\nlr = 1\n") + kModel).optimizer.lr, 1.0);
  expect_error(std::string("[train]\nbatch = 1.5\n") + kModel,
               "r.toml:2: train.batch: expected an integer in [1, 1000000000], got 1.5");
}

TEST(Recipe, UnknownNamesNameFileLineAndTheNearest) {
  expect_error(std::string("[optimizer]\nkind = 'adamw'\nbeta_1 = 0.9\n") + kModel,
               "r.toml:3: optimizer.beta_1: unknown key", "did you mean beta1?");
  expect_error(std::string("\n[optimiser]\n") + kModel, "r.toml:2: optimiser: unknown key", "did you mean optimizer?");
  expect_error(std::string(kModel) + "units = 3\n", "r.toml:4: model.0.units: unknown key");
  expect_error(std::string(kModel) + "biass = true\n", "r.toml:4: model.0.biass: unknown key", "did you mean bias?");
  expect_error("[[model]]\nlayer = 'linaer'\n",
               "r.toml:2: model.0.layer: expected one of linear, layer_norm, rms_norm, dropout, flatten, relu, tanh, "
               "sigmoid, gelu, gelu_tanh, softmax, log_softmax, got \"linaer\"",
               "did you mean linear?");
  expect_error(std::string("[optimizer]\nkind = 'sgdd'\n") + kModel,
               "r.toml:2: optimizer.kind: expected one of adamw, adam, sgd, got \"sgdd\"", "did you mean sgd?");
  expect_error(std::string("[loss]\nkind = 'cross_entrpy'\n") + kModel,
               "r.toml:2: loss.kind: expected one of cross_entropy, mse, got \"cross_entrpy\"",
               "did you mean cross_entropy?");
  expect_error(std::string("precision = 'bf6'\n") + kModel,
               "r.toml:1: precision: expected one of f32, tf32, bf16, f16, got \"bf6\"", "did you mean bf16?");
  expect_error(std::string("\"a\\nb\" = 1\n") + kModel, "r.toml:1: \"a\\nb\": unknown key");
}

TEST(Recipe, WrongTypesAndRanges) {
  const auto with = [](const std::string& text) { return text + "\n" + kModel; };
  expect_error(with("train = 3"), "r.toml:1: train: expected a table, got 3");
  expect_error(with("name = 3"), "r.toml:1: name: expected a text, got 3");
  expect_error(with("[optimizer]\nlr = '1'"), "r.toml:2: optimizer.lr: expected a number >= 0, got \"1\"");
  expect_error(with("[optimizer]\nlr = nan"), "r.toml:2: optimizer.lr: expected a number >= 0, got nan");
  expect_error(with("[optimizer]\nlr = inf"), "r.toml:2: optimizer.lr: expected a number >= 0, got inf");
  expect_error(with("[optimizer]\nlr = -1"), "r.toml:2: optimizer.lr: expected a number >= 0, got -1");
  expect_error(with("[optimizer]\nbeta1 = 1"), "r.toml:2: optimizer.beta1: expected a number in [0, 1), got 1");
  expect_error(with("[optimizer]\nkind = 'sgd'\nnesterov = 1"),
               "r.toml:3: optimizer.nesterov: expected true or false, got 1");
  expect_error(with("[data]\nshape = 784"), "r.toml:2: data.shape: expected a list of integers >= 1, got 784");
  expect_error(with("[data]\nshape = [28, 0]"), "r.toml:2: data.shape: expected a list of integers >= 1, got [28, 0]");
  expect_error(with("[data]\nshape = [28, 27]"), "r.toml:2: data.shape: expected 784 elements, got 756");
  expect_error(with("[schedule]\nkind = 'table'\nfactors = [1, 'a']"),
               "r.toml:3: schedule.factors: expected a list of numbers >= 0, got [1, \"a\"]");
  expect_error(with("[train]\nseed = 2020-01-01"),
               "r.toml:2: train.seed: expected an integer >= 0, got a date or time");
  expect_error("model = 3", "r.toml:1: model: expected a list of layers, got 3",
               "write each layer as a [[model]] table");
  expect_error("model = [1]", "r.toml:1: model.0: expected a layer, got 1");
  expect_error("", "r.toml: model: expected one layer or more");
  expect_error("model = []", "r.toml:1: model: expected one layer or more");
  expect_error("[[model]]\nout = 3\n", "r.toml:1: model.0: expected a key layer or residual");
  expect_error("[[model]]\nname = 'a'\n", "r.toml:1: model.0: expected a key layer or residual");
  expect_error("[[model]]\nresidual = []\n", "r.toml:1: model.0.residual: expected one layer or more");
  expect_error(with("[train]\nbatch = 3\nbatch = 4"),
               failure([&] { parse(with("[train]\nbatch = 3\nbatch = 4")); }).message);
  EXPECT_EQ(failure([&] { parse(with("x = = 1")); }).message.rfind("r.toml:1: ", 0), 0u);
}

// The parser would assert.
TEST(Recipe, ATableWithoutANameIsRefused) {
  for (const char* text : {"[#", "[=]", "[[ !", "[ .a]"}) {
    EXPECT_EQ(failure([&] { parse(text); }).message.rfind("r.toml: ", 0), 0u) << text;
  }
}

TEST(Recipe, AKeyOfAnotherKindIsRefused) {
  expect_error(std::string("[optimizer]\nkind = 'adamw'\nmomentum = 0.9\n") + kModel,
               "r.toml:3: optimizer.momentum: not a key of adamw", "it is one of sgd");
  expect_error("[[model]]\nlayer = 'relu'\nout = 3\n", "r.toml:3: model.0.out: not a key of relu",
               "it is one of linear");
  expect_error("[[model]]\nout = 3\n[[model.residual]]\nlayer = 'relu'\n",
               "r.toml:2: model.0.out: not a key of a block");
  expect_error("[[model]]\nlayer = 'relu'\n[[model.residual]]\nlayer = 'relu'\n",
               "r.toml:3: model.0.residual: not a key of relu", "it is one of a block");
  expect_error(std::string("[optimizer]\nkind = 'sgd'\n") + kModel, "--set: optimizer.beta1: not a key of sgd",
               "it is one of adam, adamw", {"optimizer.beta1=0.9"});
  expect_error(kModel, "--set: optimizer.beta1: not a key of sgd", "", {"optimizer.kind=sgd", "optimizer.beta1=0.9"});
  // An override of the kind leaves the file's keys of the old kind behind.
  EXPECT_EQ(parse(std::string("[optimizer]\nbeta1 = 0.9\n") + kModel, {"optimizer.kind=sgd"}).optimizer.kind, "sgd");
  EXPECT_EQ(parse(std::string(kModel) + "out = 3\n", {"model.0.layer=relu"}).model[0].layer, "relu");
  expect_error(std::string("[loss]\nkind = 'mse'\n") + kModel,
               "r.toml:2: loss.kind: mse needs targets, and fashion-mnist has labels");
  expect_error(std::string("[schedule]\nkind = 'cosine'\nwarmup_steps = 1\nwarmup_epochs = 1\n") + kModel,
               "r.toml:4: schedule.warmup_epochs: warmup_steps is given too", "keep one of the two");
}

TEST(Recipe, Overrides) {
  const std::string text = std::string(kModel) +
                           "[[model]]\nname = 'block'\n[[model.residual]]\nlayer = 'linear'\nname = 'in'\nout = 4\n"
                           "[[model.residual]]\nlayer = 'relu'\n";
  const Recipe r = parse(text, {"optimizer.lr=0.5", "optimizer.kind=sgd", "optimizer.kind=\"adam\"", "train.seed = 7",
                                "model.fc1.out=8", "model.0.bias=false", "model.block.residual.in.out=9",
                                "model.1.residual.1.layer=tanh", "data.shape=[784]", "name=two words"});
  EXPECT_EQ(r.optimizer.lr, 0.5);
  EXPECT_EQ(r.optimizer.kind, "adam");
  EXPECT_EQ(r.train.seed, 7);
  EXPECT_EQ(r.model[0].out, 8);
  EXPECT_FALSE(r.model[0].bias);
  EXPECT_EQ(r.model[1].residual[0].out, 9);
  EXPECT_EQ(r.model[1].residual[1].layer, "tanh");
  EXPECT_EQ(r.data.shape, std::vector<int64_t>{784});
  EXPECT_EQ(r.name, "two words");

  const auto bad = [&](const std::string& set, const std::string& message, const std::string& hint = "") {
    expect_error(text, message, hint, {set});
  };
  bad("optimizer.lrr=1", "--set optimizer.lrr: unknown key", "did you mean optimizer.lr?");
  bad("optimiser.lr=1", "--set optimiser.lr: unknown key", "did you mean optimizer.lr?");
  bad("nam=1", "--set nam: unknown key", "did you mean name?");
  bad("train.a.b=1", "--set train.a.b: unknown key");
  bad("train=1", "--set train: unknown key");
  bad("train.batch", "--set train.batch: expected KEY=VALUE");
  bad("train.batch=", "--set train.batch: expected a value in TOML's syntax, got \"\"");
  bad("train.batch=x", "--set train.batch: expected a value in TOML's syntax, got \"x\"");
  bad("train.batch=1\ntrain.x=2", "--set train.batch: expected a value in TOML's syntax, got \"1\\ntrain.x=2\"");
  bad("train.batch=0", "--set: train.batch: expected an integer in [1, 1000000000], got 0");
  bad("model.fc2.out=1", "--set model.fc2.out: no layer \"fc2\" among the 2 of model", "did you mean fc1?");
  bad("model.fc1.outt=1", "--set model.fc1.outt: unknown key", "did you mean model.0.out?");
  bad("model.block.residul.in.out=1", "--set model.block.residul.in.out: unknown key", "did you mean residual?");
  bad("model.0=1", "--set model.0: expected a key of a layer", "as in model.0.out=64");
  bad("model=1", "--set model: expected a key of a layer", "as in model.0.out=64");
  bad("model.block.residual=1", "--set model.block.residual: expected a key of a layer", "as in model.0.out=64");
  bad("=1", "--set : unknown key");
  bad("model..out=1", "--set model..out: no layer \"\" among the 2 of model");
}

// Text that would exhaust the stack of a recursive parser is refused, whatever hides its dots.
TEST(Recipe, DeepTextIsRefused) {
  const auto repeat = [](const std::string& part, int n) {
    std::string all;
    for (int i = 0; i < n; ++i) all += part;
    return all;
  };
  for (const std::string& text :
       {repeat("a.", 100000) + "a = 1", "[" + repeat("a.", 100000) + "a]", repeat("\"=\".", 100000) + "a = 1",
        repeat("'#' . ", 100000) + "a = 1", "x = {" + repeat("a.", 100000) + "a = 1}",
        "x = " + repeat("[", 100000) + repeat("]", 100000)}) {
    EXPECT_EQ(failure([&] { parse(text); }).message.rfind("r.toml:1: ", 0), 0u) << text.substr(0, 20);
  }
  std::string blocks = "[[model]]\n", path = "model";
  for (int i = 0; i < 9; ++i) {
    path += ".residual";
    blocks += "[[" + path + "]]\n";
  }
  EXPECT_EQ(failure([&] { parse(blocks); }).message.find("blocks nested more than 8 deep") != std::string::npos, true);
  // Dots that are no key: strings, comments, many numbers.
  parse("name = \"" + repeat(".", 100) + "\" # " + repeat(".", 100) + "\n[schedule]\nkind = 'table'\nfactors = [" +
        repeat("0.5, ", 100) + "]\n" + kModel);
  parse("name = '''\n" + repeat(".", 100) + "\"'''\n" + kModel);
}

TEST(Recipe, AModelMayBeABuilder) {
  const std::string tokens = "data.kind = 'synthetic-tokens'\n";
  const Recipe r = parse("model = 'gpt'\n" + tokens);
  EXPECT_EQ(r.builder, "gpt");
  EXPECT_TRUE(r.model.empty());
  EXPECT_EQ(r.data.shape, (std::vector<int64_t>{64}));
  expect_error("model = 'gtp'\n", "r.toml:1: model: expected gpt, or a list of layers, got \"gtp\"",
               "did you mean gpt?");
  expect_error("model = 'gpt'\n", "r.toml:1: model: gpt needs tokens, and fashion-mnist has none",
               "data.kind is synthetic-tokens, text or bible-kjv");
  expect_error(tokens + "[gpt]\nlayers = 2\n" + kModel, "r.toml:3: gpt.layers: not a key of a list of layers",
               "it is one of gpt");
  expect_error("model = 'gpt'\n" + tokens + "gpt.width = 10\n",
               "r.toml: gpt.heads: expected a divisor of the width 10, got 12");
  expect_error("model = 'gpt'\n" + tokens + "gpt.layer = 10\n", "r.toml:3: gpt.layer: unknown key",
               "did you mean layers?");
  expect_error("model = 'gpt'\n" + tokens + "gpt.vocabulary = 255\n",
               "r.toml:3: gpt.vocabulary: expected 256 or more, as the data has, got 255");
  expect_error("model = 'gpt'\n" + tokens + "gpt.context = 63\n",
               "r.toml:3: gpt.context: expected 64 or more, as the data has, got 63");
  expect_error("model = 'gpt'\n" + tokens + "data.shape = [3]\n",
               "r.toml:3: data.shape: not a key of synthetic-tokens");
  expect_error("model = 'gpt'\ndata.kind = 'text'\n", "r.toml:2: data.path: expected the file of the text");
  expect_error("model = 'gpt'\n" + tokens + "loss.kind = 'mse'\n",
               "r.toml:3: loss.kind: mse needs targets, and synthetic-tokens has labels");
}

std::string shape_of(RecipeModel& m, const std::string& name) { return to_string(m.model.value(name).type()); }

TEST(Recipe, BuildsTheFashionMlp) {
  const Recipe r = load_recipe(std::string(AICF_SOURCE_DIR) + "/recipes/fashion-mlp.toml");
  EXPECT_EQ(r.name, "fashion-mlp");
  RecipeModel m = build_model(r, r.train.batch);
  EXPECT_EQ(to_string(m.x.type()), "f32[64,28,28]");
  EXPECT_EQ(to_string(m.y.type()), "i32[64]");
  EXPECT_EQ(shape_of(m, "fc1.weight"), "f32[256,784]");
  EXPECT_EQ(shape_of(m, "fc2.weight"), "f32[128,256]");
  EXPECT_EQ(shape_of(m, "fc3.weight"), "f32[10,128]");
  EXPECT_EQ(shape_of(m, "fc1.relu"), "f32[64,256]");
  EXPECT_EQ(to_string(m.loss.type()), "f32[]");
  EXPECT_EQ(shape_of(m, "logits"), "f32[64,10]");
  EXPECT_EQ(shape_of(m, "correct"), "f32[64]");
  EXPECT_EQ(shape_of(m, "losses"), "f32[64]");
  EXPECT_EQ(total_steps(r, 937), 5 * 937);
  const optim::Optimizer o = build_optimizer(r, 937);
  EXPECT_EQ(o.name(), "adamw");
  EXPECT_EQ(o.impl()->schedule().total_steps, 5 * 937);
}

TEST(Recipe, BuildsAGpt) {
  const Recipe r = parse(R"(
model = "gpt"
data = {kind = "synthetic-tokens", vocabulary = 11, context = 6, examples = 10}
gpt = {vocabulary = 16, layers = 1, width = 8, heads = 2}
)");
  RecipeModel m = build_model(r, 5);
  EXPECT_EQ(to_string(m.x.type()), "i32[5,6]");
  EXPECT_EQ(to_string(m.y.type()), "i32[5,6]");
  EXPECT_EQ(shape_of(m, "wte.weight"), "f32[16,8]");
  EXPECT_EQ(shape_of(m, "wpe.weight"), "f32[6,8]");
  EXPECT_EQ(shape_of(m, "h0.attn.qkv.weight"), "f32[24,8]");
  EXPECT_EQ(shape_of(m, "logits"), "f32[5,6,16]");
  EXPECT_EQ(shape_of(m, "correct"), "f32[5,6]");
  EXPECT_EQ(shape_of(m, "losses"), "f32[5,6]");
  const Dataset data = load_data(r, true);
  EXPECT_EQ(to_string(data["x"].type()), "i32[10,6]");
  EXPECT_NE(data["x"], data["y"]);
  for (const char* name : {"x", "y"}) {
    for (double token : data[name].to_doubles()) EXPECT_TRUE(token >= 0 && token < 11) << token;
  }
}

TEST(Recipe, BuildsBlocksAndTargets) {
  const Recipe r = parse(R"(
data = {kind = "synthetic", shape = [3, 8], target = [3, 2], examples = 10}
loss.kind = "mse"
[[model]]
name = "block"
  [[model.residual]]
  layer = "layer_norm"
  name = "norm"
  eps = 1e-3
  [[model.residual]]
  layer = "linear"
  name = "in"
  out = 8
  bias = false
[[model]]
layer = "linear"
)");
  RecipeModel m = build_model(r, 5);
  EXPECT_EQ(shape_of(m, "block.in.weight"), "f32[8,8]");
  EXPECT_EQ(shape_of(m, "block.norm.bias"), "f32[8]");
  EXPECT_EQ(shape_of(m, "block"), "f32[5,3,8]");
  EXPECT_EQ(shape_of(m, "linear1.weight"), "f32[2,8]");  // out: the target's last axis
  EXPECT_EQ(shape_of(m, "prediction"), "f32[5,3,2]");
  EXPECT_EQ(shape_of(m, "losses"), "f32[5]");
  EXPECT_EQ(m.model.graph().find_external("block.in.bias"), ir::kNoValue);
}

TEST(Recipe, DropoutTakesItsP) {
  const auto dropped = [](const std::string& keys) {
    RecipeModel m =
        build_model(parse("[[model]]\nlayer = 'flatten'\n[[model]]\nlayer = 'dropout'\n" + keys + kModel), 5);
    return m.model.text();
  };
  EXPECT_NE(dropped("").find("= dropout("), std::string::npos);
  EXPECT_NE(dropped("").find("p=0x1p-1"), std::string::npos);
  EXPECT_NE(dropped("p = 0.25\n").find("p=0x1p-2"), std::string::npos);
  EXPECT_EQ(dropped("p = 0\n").find("= dropout("), std::string::npos);
  expect_error(std::string("[[model]]\nlayer = 'dropout'\np = 1\n") + kModel,
               "r.toml:3: model.0.p: expected a number in [0, 1), got 1");
  expect_error(std::string(kModel) + "p = 0.5\n", "r.toml:4: model.0.p: not a key of linear");
}

TEST(Recipe, AModelThatDoesNotFitNamesItsLine) {
  const auto message = [](const std::string& text) { return failure([&] { build_model(parse(text), 4); }).message; };
  EXPECT_EQ(message("[[model]]\nlayer = 'flatten'\n\n[[model]]\nlayer = 'linear'\nout = 12\n"),
            "r.toml: cross_entropy: expected logits [4,10], got [4,12]");
  EXPECT_EQ(message("[[model]]\nlayer='linear'\nname='a'\n[[model]]\nlayer='linear'\nname='a'\n"),
            "r.toml:4: layer a: the name is taken by another linear");
  EXPECT_EQ(message("[[model]]\n[[model.residual]]\nlayer = 'linear'\nout = 3\n"),
            "r.toml:1: residual: expected a block from f32[4,28,28] to f32[4,28,28], got f32[4,28,3]");
  EXPECT_EQ(failure([] {
              build_optimizer(parse(std::string("[schedule]\nkind = 'cosine'\nwarmup_epochs = 1\n") + kModel), 9);
            }).message,
            "r.toml:2: cosine: expected 0 <= warmup < total, got warmup 9 and total 9");
}

TEST(Recipe, OptimizersTakeTheirOptions) {
  for (const char* kind : {"sgd", "adam", "adamw"}) {
    const optim::Optimizer o = build_optimizer(parse(std::string("optimizer.kind = '") + kind + "'\n" + kModel), 10);
    EXPECT_EQ(o.name(), kind);
  }
  const optim::Optimizer o = build_optimizer(
      parse(std::string(
                "[optimizer]\nkind='sgd'\nlr=0.5\nmomentum=0.25\n[schedule]\nkind='warmup'\nwarmup_epochs=0.5\n") +
            kModel),
      10);
  EXPECT_EQ(o.impl()->schedule().warmup_steps, 5);
  ir::Graph graph;
  const Value p = graph.handle(graph.add_external(ir::Role::param, "p", {f32, {}}));
  o.impl()->emit(graph, {{p, graph.handle(graph.add_external(ir::Role::input, "g", {f32, {}}))}});
  const auto init = [&](const char* name) { return graph.value(graph.find_external(name)).attrs.get_string("init"); };
  EXPECT_EQ(init("optimizer.lr"), "value(0x1p-1)");
  EXPECT_EQ(init("optimizer.momentum"), "value(0x1p-2)");
}

TEST(Recipe, TrainingOptionsSayAllThatTheRecipeDoes) {
  const auto options_of = [](const std::string& text) {
    const Recipe r = parse("data.shape = [784]\n" + text + kModel);
    RecipeModel m = build_model(r, micro_batch(r));
    return training_options(r, m, 10, {.backend = "cpu", .alias = false});
  };
  const CompileOptions plain = options_of("");
  EXPECT_EQ(plain.backend, "cpu");
  EXPECT_FALSE(plain.alias);
  EXPECT_TRUE(plain.loss.valid());
  EXPECT_EQ(plain.optimizer.name(), "adamw");
  EXPECT_EQ(plain.micro_batches, 1);
  EXPECT_FALSE(plain.clip_norm || plain.clip_value || plain.ema_decay || plain.skip_nonfinite || plain.scale_loss);
  const CompileOptions all = options_of(
      "precision='bf16'\n[optimizer]\nclip_norm=1.5\nclip_value=0.5\nema=0.9\nskip_nonfinite='on'\n"
      "[loss_scale]\nkind='dynamic'\ninitial=8\ninterval=7\nmax=16\n[train]\nbatch=24\nmicro_batches=3\n");
  EXPECT_EQ(all.precision, "bf16");
  EXPECT_EQ(all.clip_norm, 1.5);
  EXPECT_EQ(all.clip_value, 0.5);
  EXPECT_EQ(all.ema_decay, 0.9);
  EXPECT_EQ(all.skip_nonfinite, true);
  EXPECT_EQ(all.scale_loss, true);
  EXPECT_EQ(all.loss_scale.initial, 8);
  EXPECT_EQ(all.loss_scale.interval, 7);
  EXPECT_EQ(all.loss_scale.max, 16);
  EXPECT_EQ(all.micro_batches, 3);
  EXPECT_EQ(options_of("loss_scale.kind='none'\noptimizer.skip_nonfinite='off'\n").scale_loss, false);
  expect_error(std::string("[train]\nbatch = 24\nmicro_batches = 5\n") + kModel,
               "r.toml:3: train.micro_batches: expected a divisor of the batch 24, got 5");
  EXPECT_EQ(failure([&] { options_of("[loss_scale]\ninitial = 3\n"); }).message,
            "r.toml:3: loss_scale: expected initial a power of two from 1 to 16777216, got 3");
}

TEST(Recipe, SyntheticDataIsFixed) {
  const Recipe r = parse(std::string("[data]\nkind='synthetic'\nshape=[2,3]\nexamples=500\nclasses=7\n") + kModel);
  const Dataset a = load_data(r, true), b = load_data(r, true), test = load_data(r, false);
  EXPECT_EQ(a.size(), 500);
  EXPECT_EQ(to_string(a["x"].type()), "f32[500,2,3]");
  EXPECT_EQ(a["x"], b["x"]);
  EXPECT_EQ(a["y"], b["y"]);
  EXPECT_NE(a["x"], test["x"]);
  std::set<double> labels;
  for (double y : a["y"].to_doubles()) labels.insert(y);
  EXPECT_EQ(labels, (std::set<double>{0, 1, 2, 3, 4, 5, 6}));
  const Recipe other =
      parse(std::string("[data]\nkind='synthetic'\nshape=[2,3]\nexamples=500\n") + kModel, {"train.seed=1"});
  EXPECT_NE(a["x"], load_data(other, true)["x"]);
  const Recipe targets =
      parse(std::string("data={kind='synthetic',target=[2],examples=5}\nloss.kind='mse'\n") + kModel);
  EXPECT_EQ(to_string(load_data(targets, true)["y"].type()), "f32[5,2]");
}

struct Workload {
  const char* file;
  std::vector<const char*> weights;  // in order, with their biases
  const char* precision;
  int64_t batch;
  const char* x;
  const char* y;
};

Recipe recipe_file(const std::string& name) {
  return load_recipe(std::string(AICF_SOURCE_DIR) + "/recipes/" + name + ".toml");
}

TEST(Recipe, TheBenchmarksAreTheWorkloadsTheyAreNamedFor) {
  const std::vector<Workload> all = {
      {"mlp-tiny", {"f32[128,784]", "f32[128,128]", "f32[10,128]"}, "tf32", 64, "f32[64,784]", "i32[64]"},
      {"mlp-64x6",
       {"f32[64,3]", "f32[64,64]", "f32[64,64]", "f32[64,64]", "f32[64,64]", "f32[1,64]"},
       "tf32",
       1024,
       "f32[1024,3]",
       "f32[1024,1]"},
      {"mlp-4096",
       {"f32[4096,4096]", "f32[4096,4096]", "f32[4096,4096]", "f32[4096,4096]"},
       "bf16",
       8192,
       "f32[8192,4096]",
       "f32[8192,4096]"},
  };
  for (const Workload& w : all) {
    SCOPED_TRACE(w.file);
    const Recipe r = recipe_file(w.file);
    EXPECT_EQ(r.precision, w.precision);
    EXPECT_EQ(r.train.batch, w.batch);
    EXPECT_EQ(r.optimizer.kind, "adamw");
    EXPECT_EQ(r.optimizer.lr, 1e-4);
    EXPECT_EQ(r.optimizer.weight_decay, 0.01);
    EXPECT_EQ(std::tuple(r.optimizer.beta1, r.optimizer.beta2, r.optimizer.eps), std::tuple(0.9, 0.999, 1e-8));
    EXPECT_EQ(r.schedule.kind, "constant");
    RecipeModel m = build_model(r, r.train.batch);
    EXPECT_EQ(to_string(m.x.type()), w.x);
    EXPECT_EQ(to_string(m.y.type()), w.y);
    for (size_t i = 0; i < w.weights.size(); ++i) {
      EXPECT_EQ(shape_of(m, "fc" + std::to_string(i + 1) + ".weight"), w.weights[i]);
    }
    EXPECT_EQ(m.model.graph().find_external("fc" + std::to_string(w.weights.size() + 1) + ".weight"), ir::kNoValue);
  }
}

struct GptWorkload {
  const char* file;
  const char* name;
  const char* precision;
  int64_t batch, vocabulary, padded, context, layers, width, heads;
};

TEST(Recipe, TheGptBenchmarksAreTheWorkloadsTheyAreNamedFor) {
  for (const GptWorkload& w :
       {GptWorkload{"gpt-nano", "gpt-nano-fp32", "tf32", 12, 65, 65, 64, 4, 128, 4},
        GptWorkload{"gpt-char", "gpt-char-bf16", "bf16", 64, 65, 65, 256, 6, 384, 6},
        GptWorkload{"gpt2-124m", "gpt2-124m-bf16", "bf16", 32, 50257, 50304, 1024, 12, 768, 12}}) {
    const Recipe r = recipe_file(w.file);
    EXPECT_EQ(std::tuple(r.name, r.precision, r.train.batch), std::tuple(w.name, w.precision, w.batch));
    EXPECT_EQ(std::tuple(r.data.vocabulary, r.data.context), std::tuple(w.vocabulary, w.context)) << w.file;
    EXPECT_EQ(std::tuple(r.gpt.layers, r.gpt.width, r.gpt.heads), std::tuple(w.layers, w.width, w.heads)) << w.file;
    EXPECT_EQ(std::tuple(r.optimizer.kind, r.optimizer.lr, r.optimizer.weight_decay), std::tuple("adamw", 1e-4, 0.01));
    EXPECT_EQ(std::tuple(r.optimizer.beta1, r.optimizer.beta2, r.optimizer.eps), std::tuple(0.9, 0.999, 1e-8));
    RecipeModel m = build_model(r, r.train.batch);
    EXPECT_EQ(m.outputs.at("logits").shape(), (Shape{w.batch, w.context, w.padded}));
  }
}

// The ops in order, with the values they read: what is left of a graph without its sizes.
std::string structure_of(const Recipe& r) {
  RecipeModel m = build_model(r, r.train.batch);
  std::string text;
  for (const ir::Op& op : m.model.graph().ops()) {
    text += op.def->name;
    for (ir::ValueId v : op.inputs) text += " " + std::to_string(v);
    text += "\n";
  }
  return text;
}

TEST(Recipe, AMiniTwinHasTheSameGraph) {
  for (const char* name : {"mlp-tiny", "mlp-64x6", "mlp-4096", "gpt-nano", "gpt-char", "gpt2-124m"}) {
    SCOPED_TRACE(name);
    const Recipe full = recipe_file(name), mini = recipe_file(name + std::string("-mini"));
    EXPECT_EQ(structure_of(full), structure_of(mini));
    EXPECT_EQ(full.precision, mini.precision);
    EXPECT_EQ(full.loss.kind, mini.loss.kind);
    std::set<std::string> keys, mini_keys;
    for (const auto& [key, where] : full.given) keys.insert(key);
    for (const auto& [key, where] : mini.given) mini_keys.insert(key);
    EXPECT_EQ(keys, mini_keys);
  }
}

TEST(Recipe, AMissingFileIsNamed) {
  const std::string message = failure([] { load_recipe("/nonexistent/r.toml"); }).message;
  EXPECT_NE(message.find("/nonexistent/r.toml"), std::string::npos) << message;
}

// toml++ 3.3 runs into undefined behaviour on these where white space may stand.
TEST(Recipe, CharactersBeyondAsciiStandInStringsAndComments) {
  const std::string head = "# größer\nname = \"übung\"\n[data]\nkind = 'fashion-mnist'  # é\n";
  const auto message = [](const std::string& text) {
    try {
      parse_recipe(text, "r.toml", {});
    } catch (const Error& e) {
      return std::string(e.what());
    }
    return std::string();
  };
  EXPECT_EQ(message(head).find("ASCII"), std::string::npos) << message(head);
  for (const std::string bad : {"é = 1\n", "x = é\n", "\u00e9[train]\n", "x = 1 é\n", "x = \"\"\"\né\"\"\"\n"}) {
    EXPECT_NE(message(head + bad).find("beyond ASCII"), std::string::npos) << bad << ": " << message(head + bad);
  }
  EXPECT_NE(message(head + "é = 1").find("r.toml:5:"), std::string::npos) << message(head + "é = 1");
}

}  // namespace
}  // namespace aicf
