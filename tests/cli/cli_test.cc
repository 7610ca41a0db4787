// The command line as a user meets it: exit codes, one line for a mistake with the nearest name offered, and nothing
// changed.
#include "cli/cli.h"

#include <gtest/gtest.h>

#include <map>
#include <nlohmann/json.hpp>

#include "aicf/program.h"
#include "aicf/recipe.h"
#include "aicf/safetensors.h"

namespace aicf {
namespace {

TEST_F(Cli, TrainsSavesAndEvaluates) {
  const Result trained =
      run("train " + kRecipe + " --steps 60 --seed 3 --out " + path("run") + " --json " + path("train.json"));
  ASSERT_EQ(trained.code, 0) << trained.err;
  EXPECT_NE(trained.out.find("test accuracy"), std::string::npos) << trained.out;
  const Result evaluated =
      run("eval " + kRecipe + " --weights " + path("run/weights.safetensors") + " --json " + path("eval.json"));
  ASSERT_EQ(evaluated.code, 0) << evaluated.err;
  const auto a = nlohmann::json::parse(contents(path("train.json"))),
             b = nlohmann::json::parse(contents(path("eval.json")));
  EXPECT_EQ(a["test"], b["test"]) << "the weights read back give the same loss and accuracy";
  EXPECT_GT(a["test"]["accuracy"].get<double>(), 0.5);
  EXPECT_NE(contents(path("run/metrics.jsonl")).find("test_accuracy"), std::string::npos);
}

TEST_F(Cli, TheSameSeedGivesTheSameWeights) {
  const auto weights = [&](const std::string& options) {
    EXPECT_EQ(run("train " + kRecipe + " --steps 20 --out " + path("w") + " " + options).code, 0);
    const std::string bytes = contents(path("w/weights.safetensors"));
    fs::remove_all(path("w"));
    return bytes;
  };
  const std::string first = weights("--seed 1");
  EXPECT_EQ(weights("--seed 1"), first);
  EXPECT_EQ(weights("--seed 1 --no-alias --no-reuse --mode eager --disable-pass dce"), first);
  EXPECT_NE(weights("--seed 2"), first);
}

TEST_F(Cli, VerifyPasses) {
  const Result r = run("verify " + kRecipe + " --steps 2 --orders 2");
  EXPECT_EQ(r.code, 0) << r.out << r.err;
  EXPECT_NE(r.out.find("hold"), std::string::npos) << r.out;
}

// A pass that reorders is compared within its bound where it does something, else bit for bit; a pass that stands twice
// in the pipeline is one row, and is switched off by its one name.
TEST_F(Cli, VerifyHoldsPassesThatReorderToTheirBounds) {
  const std::string recipe = AICF_SOURCE_DIR "/recipes/mlp-4096-mini.toml";
  const Result r = run("verify " + recipe + " --steps 4 --orders 1 --json " + path("verify.json"));
  EXPECT_EQ(r.code, 0) << r.out << r.err;
  std::map<std::string, std::string> rows;
  const nlohmann::json written = nlohmann::json::parse(contents(path("verify.json")));
  for (const auto& row : written["rows"]) {
    EXPECT_TRUE(rows.emplace(row["name"], row["detail"]).second) << row["name"];
  }
  for (const char* exact : {"canonicalize", "constant_folding", "simplify", "cse", "layout", "dce"}) {
    EXPECT_EQ(rows.at("pass " + std::string(exact) + " off"), "");
  }
  EXPECT_EQ(rows.at("pass fold_transposes off"), "") << "there are no transposes";
  const std::string gradients = rows.at("pass drop_roundtrip_casts off: gradients of step 1");
  EXPECT_NE(gradients.find("at most 0.031"), std::string::npos) << gradients;
  EXPECT_EQ(gradients.find(" is 0 apart"), std::string::npos) << "it does nothing: " << gradients;

  const auto count = [&](const std::string& options, const std::string& what) {
    const std::string text = run("dump " + recipe + options + " --stage passes").out;
    int found = 0;
    for (size_t at = text.find(what); at != std::string::npos; at = text.find(what, at + 1)) ++found;
    return found;
  };
  EXPECT_EQ(count("", "# cse"), 2);
  EXPECT_EQ(count(" --disable-pass cse", "# cse"), 0);
}

TEST_F(Cli, VerifyPassesOnGpts) {
  for (const char* name : {"gpt-nano-mini", "gpt-char-mini"}) {
    const Result r = run(std::string("verify " AICF_SOURCE_DIR "/recipes/") + name + ".toml --steps 3 --orders 1");
    EXPECT_EQ(r.code, 0) << r.out << r.err;
  }
}

// The same steps again from the record alone: the initial weights, and the examples of each batch.
// Micro-batches, clipping, a loss scale and averages: verified, trained, shown, and the averages saved for `eval`.
TEST_F(Cli, GradientPoliciesAreVerifiedAndShown) {
  const std::string keys =
      " --set precision=f16 --set train.micro_batches=2 --set optimizer.clip_norm=0.5 --set optimizer.ema=0.75";
  const std::string mini = AICF_SOURCE_DIR "/recipes/mlp-tiny-mini.toml";
  const Result verified = run("verify " + mini + keys + " --steps 3 --orders 2");
  EXPECT_EQ(verified.code, 0) << verified.out << verified.err;

  // 2⁴⁰ overflows f16 whatever the loss is: the first steps are skipped.
  const Result trained =
      run("train " + kRecipe + keys + " --set loss_scale.max=1099511627776 --set " +
          "loss_scale.initial=1099511627776 --steps 60 --out " + path("run") + " --json " + path("train.json"));
  ASSERT_EQ(trained.code, 0) << trained.out << trained.err;
  EXPECT_NE(trained.out.find("gradient norm "), std::string::npos) << trained.out;
  EXPECT_NE(trained.out.find(" steps skipped"), std::string::npos) << trained.out;
  const auto a = nlohmann::json::parse(contents(path("train.json")));
  EXPECT_GT(a["steps_skipped"].get<int>(), 5);
  EXPECT_LT(a["steps_skipped"].get<int>(), 40);
  const std::string metrics = contents(path("run/metrics.jsonl"));
  for (const char* key : {"\"grad_norm\"", "\"steps_skipped\"", "\"loss_scale\"", "\"test_loss_of_averages\""}) {
    EXPECT_NE(metrics.find(key), std::string::npos) << key << "\n" << metrics;
  }
  for (const auto& [file, key] : {std::pair("weights", "test"), {"averages", "test_of_averages"}}) {
    const Result evaluated = run("eval " + kRecipe + " --precision f16 --weights " + path("run/") + file +
                                 ".safetensors --json " + path("eval.json"));
    ASSERT_EQ(evaluated.code, 0) << evaluated.err;
    EXPECT_EQ(a[key], nlohmann::json::parse(contents(path("eval.json")))["test"]) << file;
  }
  EXPECT_NE(a["test"], a["test_of_averages"]);
}

TEST_F(Cli, TrainRecordsWhatItsStepsWere) {
  const std::string file = AICF_SOURCE_DIR "/recipes/gpt-nano-mini.toml";
  const Result trained = run("train " + file + " --steps 6 --seed 2 --record " + path("record"));
  ASSERT_EQ(trained.code, 0) << trained.err;
  NamedTensors weights;
  Tensor examples, losses;
  for (auto& [name, tensor] : read_safetensors(path("record")).tensors) {
    if (name == "examples" || name == "losses") {
      (name == "examples" ? examples : losses) = std::move(tensor);
    } else {
      weights.emplace_back(name, std::move(tensor));
    }
  }
  ASSERT_EQ(examples.type(), (TensorType{i32, {6, 2}}));
  ASSERT_EQ(losses.type(), (TensorType{f32, {6}}));

  const Recipe recipe = load_recipe(file, std::vector<std::string>{"train.seed=2"});
  const Dataset data = load_data(recipe, true);
  RecipeModel model = build_model(recipe, 2);
  Program program = compile(model.model, {.loss = model.loss,
                                          .optimizer = build_optimizer(recipe, 4),
                                          .outputs = {{"loss", model.loss}},
                                          .precision = recipe.precision});
  program.load(weights, {.states = false});
  const int64_t context = recipe.data.context;
  for (int64_t step = 0; step < 6; ++step) {
    Tensor x(TensorType{i32, {2, context}}), y(x.type());
    for (int64_t i = 0; i < 2 * context; ++i) {
      const int64_t from = examples.as<int32_t>()[step * 2 + i / context] * context + i % context;
      x.as<int32_t>()[i] = data["x"].as<int32_t>()[from];
      y.as<int32_t>()[i] = data["y"].as<int32_t>()[from];
    }
    EXPECT_EQ(static_cast<float>(program.step({{"x", x}, {"y", y}}).scalar("loss")), losses.at(step)) << step;
  }
}

TEST_F(Cli, PrecisionOverridesTheRecipes) {
  const std::string weights = path("run/weights.safetensors"), eval = "eval " + kRecipe + " --weights " + weights;
  const Result trained = run("train " + kRecipe + " --precision bf16 --steps 60 --out " + path("run"));
  ASSERT_EQ(trained.code, 0) << trained.err;
  for (const auto& [name, tensor] : read_safetensors(weights).tensors) EXPECT_EQ(tensor.dtype(), f32) << name;
  const auto loss = [&](const std::string& options) {
    const Result r = run(eval + options + " --json " + path("eval.json"));
    EXPECT_EQ(r.code, 0) << r.err;
    return nlohmann::json::parse(contents(path("eval.json")))["test"]["loss"].get<double>();
  };
  const double wide = loss(""), narrow = loss(" --precision bf16");
  EXPECT_NEAR(narrow, wide, 0.02);
  EXPECT_NE(narrow, wide);
  EXPECT_EQ(loss(" --set precision=bf16"), narrow);
  EXPECT_NE(run("dump " + kRecipe + " --precision f16").out.find(".weight.f16"), std::string::npos);
  EXPECT_EQ(run("dump " + kRecipe).out.find("f16"), std::string::npos);
  EXPECT_EQ(run("verify " + kRecipe + " --precision tf32 --steps 2 --orders 1").code, 0);
}

TEST_F(Cli, DumpsEveryStage) {
  for (const char* stage : {"model", "grad", "step", "passes", "opt", "plan", "memory"}) {
    const Result r = run("dump " + kRecipe + " --stage " + stage);
    EXPECT_EQ(r.code, 0) << stage << r.err;
    EXPECT_GT(r.out.size(), 100u) << stage;
  }
  EXPECT_NE(run("dump " + kRecipe + " --stage plan --format dot").out.find("digraph"), std::string::npos);
  EXPECT_TRUE(nlohmann::json::accept(run("dump " + kRecipe + " --stage plan --format json").out));
  refuses("dump " + kRecipe + " --stage plam", {"plam", "plan"});
  refuses("dump " + kRecipe + " --stage plan --format svg", {"svg", "dot"});
}

// The file of --export holds all that another program needs to take the same steps.
TEST_F(Cli, BenchTimesRecipesAndExportsTheirSteps) {
  const std::string recipes = AICF_SOURCE_DIR "/recipes/";
  const std::string tiny = recipes + "mlp-tiny-mini.toml", deep = recipes + "mlp-64x6-mini.toml";
  const Result r = run("bench " + tiny + " " + deep + " --backend cpu --time 0 --steps 2 --export " + path("x") +
                       " --export-steps 7 --json " + path("bench.json"));
  ASSERT_EQ(r.code, 0) << r.err;
  EXPECT_NE(r.out.find("mlp-64x6-mini"), std::string::npos) << r.out;
  const auto json = nlohmann::json::parse(contents(path("bench.json")));
  ASSERT_EQ(json["rows"].size(), 2u);
  for (const auto& row : json["rows"]) {
    for (const char* key : {"resident", "fed"}) {
      EXPECT_GT(row[key]["ms"].get<double>(), 0) << row;
      EXPECT_EQ(row[key]["steps"], 2) << row;
    }
    for (const char* key : {"nodes", "critical_path", "launches", "planned_bytes", "flops", "flops_per_second"}) {
      EXPECT_GT(row[key].get<double>(), 0) << key;
    }
    EXPECT_EQ(row["backend"], "cpu");
  }
  EXPECT_EQ(json["rows"][0]["name"], "mlp-tiny-mini");
  EXPECT_EQ(json["rows"][0]["precision"], "tf32");

  const Result each = run("bench " + tiny + " --backend cpu --time 0 --per-launch --json " + path("launches.json"));
  ASSERT_EQ(each.code, 0) << each.err;
  EXPECT_NE(each.out.find("matmul"), std::string::npos) << each.out;
  int launches = 0;
  const auto launch_rows = nlohmann::json::parse(contents(path("launches.json")))["rows"][0]["launches"];
  for (const auto& row : launch_rows) launches += row["count"].get<int>();
  EXPECT_EQ(launches, json["rows"][0]["launches"]);

  const Recipe recipe = load_recipe(tiny);
  RecipeModel m = build_model(recipe, recipe.train.batch);
  Program program =
      compile(m.model, {.loss = m.loss, .optimizer = build_optimizer(recipe, 8), .precision = recipe.precision});
  NamedTensors params, inputs, losses;
  for (auto& entry : read_safetensors(path("x/mlp-tiny-mini.safetensors")).tensors) {
    const bool input = entry.first == "x" || entry.first == "y";
    (entry.first == "losses" ? losses : input ? inputs : params).push_back(std::move(entry));
  }
  program.load(params, {.states = false});
  ASSERT_EQ(losses.size(), 1u);
  ASSERT_EQ(losses[0].second.elements(), 7);
  EXPECT_EQ(json["rows"][0]["losses"].get<std::vector<double>>(), losses[0].second.to_doubles());
  for (int i = 0; i < 7; ++i) {
    const StepResult step = program.step({{inputs[0].first, inputs[0].second}, {inputs[1].first, inputs[1].second}});
    EXPECT_EQ(step.scalar("loss"), losses[0].second.at(i)) << i;
  }
}

TEST_F(Cli, BenchRefusesMistakesBeforeTheWork) {
  const std::string tiny = AICF_SOURCE_DIR "/recipes/mlp-tiny-mini.toml";
  refuses("bench", {"RECIPE"});
  refuses("bench " + tiny + " " + path("none.toml"), {"none.toml"});
  refuses("bench " + tiny + " --precision bf17", {"bf17", "did you mean bf16"});
  refuses("bench " + tiny + " --export /dev/null/x", {"--export"});
  refuses("bench " + tiny + " --steps 0", {"--steps"});
  refuses("bench " + tiny + " --time -1", {"--time"});
  refuses("bench " + tiny + " --tme 1", {"--tme", "--time"});
}

TEST_F(Cli, OpsAndInfo) {
  EXPECT_NE(run("ops").out.find("matmul"), std::string::npos);
  EXPECT_NE(run("ops matmul").out.find("packed"), std::string::npos);
  const Result info = run("info");
  EXPECT_EQ(info.code, 0);
  EXPECT_NE(info.out.find("backend cuda: "), std::string::npos) << info.out;
  refuses("ops matmull", {"matmull"});
}

TEST_F(Cli, MistypedCommandsAndOptions) {
  refuses("", {});
  refuses("trian " + kRecipe, {"trian", "did you mean train"});
  refuses("train", {"RECIPE"});
  refuses("train " + kRecipe + " --stpes 3", {"--stpes", "--steps"});
  refuses("train " + kRecipe + " --steps -3", {"--steps"});
  refuses("train " + kRecipe + " --steps x", {"--steps"});
  refuses("train " + kRecipe + " --mode fast", {"--mode"});
  refuses("train " + kRecipe + " --precision bf17", {"bf17", "did you mean bf16"});
  refuses("train " + kRecipe + " --resume x", {"--resume"});
  refuses("train " + kRecipe + " --backend gpu", {"gpu", "cpu"});
  refuses("train " + kRecipe + " --disable-pass dec", {"dec", "dce"});
  refuses("train " + kRecipe + " --disable-pass expand", {"expand", "required"});
  refuses("eval " + kRecipe, {"--weights"});
}

// A copy of the library in a folder of its own has no plugin beside it.
TEST_F(Cli, APluginThatIsNotThereIsNamed) {
  fs::copy_file(AICF_LIBRARY, path(AICF_LIBRARY_NAME));
  const char* set = std::getenv("LD_LIBRARY_PATH");
  const std::string before = set != nullptr ? set : "";
  setenv("LD_LIBRARY_PATH", (folder_.string() + ":" + before).c_str(), 1);
  refuses("train " + kRecipe + " --backend cuda", {"libaicf_cuda.so", "AICF_PLUGIN_PATH", folder_.string()});
  EXPECT_NE(run("info").out.find("backend cuda: not available"), std::string::npos);
  setenv("LD_LIBRARY_PATH", before.c_str(), 1);
}

TEST_F(Cli, RecipesThatDoNotParse) {
  const std::string layer = "[[model]]\nlayer = \"linear\"\nname = \"fc\"\n";
  refuses("train " + path("none.toml"), {"none.toml"});
  refuses("train " + path(""), {});
  refuses("train " + recipe("model = "), {"r.toml:1"});
  refuses("train " + recipe("[[model]]\nlayer = \"liner\"\n"), {"liner", "linear", "r.toml:2"});
  refuses("train " + recipe(layer + "outt = 3\n"), {"outt", "out", "r.toml:4"});
  refuses("train " + recipe("[optimizer]\nkind = \"adamv\"\n" + layer), {"adamv", "adam"});
  refuses("train " + recipe("[optimizer]\nlearning_rate = 1.0\n" + layer), {"learning_rate"});
  refuses("train " + recipe("[optimiser]\nlr = 1.0\n" + layer), {"optimiser", "optimizer"});
  refuses("train " + recipe("[train]\nbatch = \"many\"\n" + layer), {"batch"});
  refuses("train " + recipe("[train]\nbatch = 0\n" + layer), {"batch"});
  refuses("train " + kRecipe + " --set optimizer.lrr=1", {"lrr", "optimizer.lr"});
  refuses("train " + kRecipe + " --set optimizer.lr", {"optimizer.lr"});
}

TEST_F(Cli, ShapesThatDoNotFitNameTheLayerAndBothShapes) {
  const std::string no_flatten = "[[model]]\nlayer = \"linear\"\nname = \"fc\"\n";
  refuses("train " + recipe(no_flatten), {"[64,28,10]", "[64,10]"});
  const std::string residual =
      "[data]\nshape = [784]\n[[model]]\nname = \"block\"\n[[model.residual]]\nlayer = \"linear\"\nname = \"fc\"\nout "
      "= 16\n";
  refuses("train " + recipe(residual), {"block", "[64,784]", "[64,16]"});
}

TEST_F(Cli, AShareThatIsNone) {
  const std::string gpt = std::string("train ") + AICF_SOURCE_DIR + "/recipes/gpt-nano-mini.toml --set gpt.dropout=";
  for (const char* share : {"1", "-0.1", "nan", "true"}) refuses(gpt + share, {"gpt.dropout", "[0, 1)", share});
  EXPECT_EQ(run(gpt + "0.2 --steps 2").code, 0);
}

TEST_F(Cli, DataThatIsNotWhatItSays) {
  const std::string images = "train-images-idx3-ubyte.gz", labels = "train-labels-idx1-ubyte.gz";
  refuses("train " + kRecipe + " --set data.path=" + path("nowhere"), {"nowhere"});
  refuses("train " + kRecipe + " " + data_with(images, [](std::string s) { return s.substr(0, s.size() / 2); }),
          {images});
  refuses("train " + kRecipe + " " + data_with(images, [](std::string s) { return s + s.substr(0, 100); }), {images});
  refuses("train " + kRecipe + " " +
              data_with(labels, [](std::string) { return std::string("\0\0\x08\x01\0\0\0\x02\x01", 9); }),
          {labels});
  refuses("train " + kRecipe + " " +
              data_with(labels, [](std::string) { return std::string("\0\0\x08\x01\0\0\0\x02\x01\x0b", 10); }),
          {labels});
  refuses("train " + kRecipe + " " +
              data_with(labels,
                        [](std::string s) {
                          s[0] = 'X';
                          return s;
                        }),
          {labels});
}

TEST_F(Cli, WeightsThatDoNotFit) {
  refuses("eval " + kRecipe + " --weights " + path("none"), {"none"});
  std::ofstream(path("junk")) << "0123456789abcdef";
  refuses("eval " + kRecipe + " --weights " + path("junk"), {"junk"});
  write_safetensors(path("other"), {{"fc1.weight", Tensor(TensorType{f32, {2, 2}})}});
  refuses("eval " + kRecipe + " --weights " + path("other"), {"fc1.weight", "f32[256,784]", "f32[2,2]"});
  write_safetensors(path("stranger"), {{"fc1.wieght", Tensor(TensorType{f32, {256, 784}})}});
  refuses("eval " + kRecipe + " --weights " + path("stranger"), {"fc1.wieght", "fc1.weight"});
}

TEST_F(Cli, OutputsThatCannotBeWritten) {
  refuses("train " + kRecipe + " --steps 1 --out /dev/null/x", {"/dev/null/x"});
  refuses("train " + kRecipe + " --steps 1 --json " + path("no/such/folder.json"), {"folder.json"});
}

// The first interrupt finishes the step, saves, and says so with 130.
TEST_F(Cli, AnInterruptSavesAndExits130) {
  const std::string command = "timeout --preserve-status -s INT 3 " + std::string(AICF_CLI) + " train " + kRecipe +
                              " --set train.epochs=1000 --out " + path("run") + " >" + path("out") + " 2>&1";
  const int status = std::system(command.c_str());
  EXPECT_EQ(WEXITSTATUS(status), 130) << contents(path("out"));
  EXPECT_NE(contents(path("out")).find("interrupted after step"), std::string::npos) << contents(path("out"));
  EXPECT_FALSE(read_safetensors(path("run/weights.safetensors")).tensors.empty());
}

}  // namespace
}  // namespace aicf
