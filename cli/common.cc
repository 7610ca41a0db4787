#include "common.h"

#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cstdio>
#include <filesystem>
#include <fstream>

namespace aicf::cli {

void add_recipe_options(CLI::App& app, Options& options) {
  app.add_option("RECIPE", options.recipe, "a recipe file (TOML)")->required();
  add_common_options(app, options);
}

void add_common_options(CLI::App& app, Options& options) {
  app.add_option("--backend", options.backend, "auto, cpu or cuda")->capture_default_str();
  app.add_option("--mode", options.mode, "how the plan is run")
      ->check(CLI::IsMember({"graph", "replay", "eager"}))
      ->capture_default_str();
  app.add_option("--precision", options.precision, "f32, tf32, bf16 or f16 instead of the recipe's");
  app.add_option("--set", options.sets, "KEY=VALUE: overrides a key of the recipe, e.g. optimizer.lr=0.01")
      ->take_last()
      ->expected(1)
      ->multi_option_policy(CLI::MultiOptionPolicy::TakeAll);
  app.add_flag("--no-alias", options.no_alias, "no result shares storage: same bits, more memory");
  app.add_flag("--no-reuse", options.no_reuse, "no two buffers overlap: same bits, more memory");
  app.add_option("--disable-pass", options.disabled_passes, "switch a pass off (aicf info lists them)")
      ->expected(1)
      ->multi_option_policy(CLI::MultiOptionPolicy::TakeAll);
  app.add_option("--json", options.json, "also write the result to this file");
}

void add_training_options(CLI::App& app, Options& options) {
  app.add_option("--steps", options.steps, "steps to run")->check(CLI::PositiveNumber);
  app.add_option("--seed", options.seed, "of initial values and data order")->check(CLI::NonNegativeNumber);
}

Recipe recipe_of(const Options& options) {
  std::vector<std::string> sets = options.sets;
  if (options.steps) sets.push_back(fmt::format("train.steps={}", *options.steps));
  if (options.seed) sets.push_back(fmt::format("train.seed={}", *options.seed));
  if (!options.precision.empty()) sets.push_back("precision=" + options.precision);
  return load_recipe(options.recipe, sets);
}

Mode mode_of(const std::string& name) {
  return name == "eager" ? Mode::eager : name == "replay" ? Mode::replay : Mode::graph;
}

CompileOptions compile_options(const Options& options, const Recipe& recipe) {
  CompileOptions compile;
  compile.backend = options.backend;
  compile.mode = mode_of(options.mode);
  compile.alias = !options.no_alias;
  compile.reuse = !options.no_reuse;
  compile.disable_passes = options.disabled_passes;
  compile.precision = recipe.precision;
  compile.tune = options.tune;
  compile.kernels = options.kernels;
  compile.kernels_of = options.kernels_of;
  return compile;
}

Program compile_training(RecipeModel& model, const Recipe& recipe, int64_t steps_per_epoch, const Options& options) {
  CompileOptions compile_with = training_options(recipe, model, steps_per_epoch, compile_options(options, recipe));
  compile_with.outputs = {{"loss", model.loss}};  // none of the model's own: they cost time
  return compile(model.model, compile_with);
}

int64_t eval_batch(const Recipe& recipe) {
  return recipe.train.eval_batch > 0 ? recipe.train.eval_batch : recipe.train.batch;
}

Program compile_evaluation(RecipeModel& model, const CompileOptions& base) {
  CompileOptions compile_with = base;
  for (const char* name : {"losses", "correct"}) {
    const auto output = model.outputs.find(name);
    if (output != model.outputs.end()) compile_with.outputs.emplace_back(name, output->second);
  }
  return compile(model.model, compile_with);
}

Evaluation evaluate(Program& program, const Recipe& recipe) {
  const Dataset data = load_data(recipe, false);
  Loader loader(data, {.batch = eval_batch(recipe), .shuffle = false, .drop_last = false});
  const std::vector<std::string> outputs = program.outputs();
  const bool classifies = std::find(outputs.begin(), outputs.end(), "correct") != outputs.end();
  Evaluation result;
  double loss = 0, correct = 0, count = 0;
  // Of the examples that are real: one element each, or one a token.
  const auto total = [&](const TensorView& all, const Batch& batch) {
    const int64_t each = all.type.shape.elements() / all.type.shape[0];
    double sum = 0;
    for (int64_t i = 0; i < batch.count * each; ++i) sum += element_as_double(all.type.dtype, all.data, i);
    return sum;
  };
  for (bool last = false; !last;) {
    const Batch& batch = loader.next();
    last = batch.last;
    const StepResult step = program.step(batch.feeds);
    const TensorView losses = step.view("losses");
    loss += total(losses, batch);
    count += static_cast<double>(batch.count * (losses.type.shape.elements() / losses.type.shape[0]));
    if (classifies) correct += total(step.view("correct"), batch);
    result.examples += batch.count;
  }
  result.loss = loss / count;
  if (classifies) result.accuracy = correct / count;
  return result;
}

std::string text_of(const Evaluation& e) {
  const std::string accuracy = e.accuracy ? fmt::format("accuracy {:.2f} %, ", *e.accuracy * 100) : "";
  return fmt::format("test {}loss {:.4f} ({} examples)", accuracy, e.loss, e.examples);
}

nlohmann::json json_of(const Evaluation& e) {
  nlohmann::json json = {{"loss", e.loss}, {"examples", e.examples}};
  if (e.accuracy) json["accuracy"] = *e.accuracy;
  return json;
}

bool is_weight(std::string_view name) {
  for (std::string_view prefix : {"optimizer.", "steps.", "loss_scale.", "ema/"}) {
    if (name.starts_with(prefix)) return false;
  }
  return name != kGradNorm;
}

NamedTensors weights_of(const Program& program) {
  NamedTensors weights;
  for (auto& [name, tensor] : program.snapshot()) {
    if (is_weight(name)) weights.emplace_back(name, std::move(tensor));
  }
  return weights;
}

NamedTensors averages_of(const Program& program) {
  NamedTensors weights = weights_of(program);
  NamedTensors all = program.snapshot();
  for (auto& [name, tensor] : weights) {
    const auto average =
        std::find_if(all.begin(), all.end(), [&, &n = name](auto& e) { return e.first == "ema/" + n; });
    if (average != all.end()) tensor = std::move(average->second);
  }
  return weights;
}

std::optional<double> read_state(const Program& program, const std::string& name) {
  const std::vector<std::string> states = program.states();
  if (std::find(states.begin(), states.end(), name) == states.end()) return {};
  return program.read(name).item();
}

void check_json(const std::string& path) {
  if (path.empty() || std::ofstream(path, std::ios::app)) return;
  throw Error(fmt::format("{}: cannot be written", path), "--json takes the name of a file to create");
}

void make_folder(const std::string& path, const std::string& option) {
  std::error_code error;
  std::filesystem::create_directories(path, error);
  if (error) throw Error(fmt::format("{}: {}", path, error.message()), option + " takes a folder to write to");
}

std::string bytes_text(size_t bytes) {
  return bytes < (1u << 20) ? fmt::format("{:.1f} KiB", static_cast<double>(bytes) / 1024)
                            : fmt::format("{:.1f} MiB", static_cast<double>(bytes) / (1 << 20));
}

void write_json(const std::string& path, const nlohmann::json& document) {
  if (path.empty()) return;
  std::ofstream file(path);
  file << document.dump(2) << "\n";
  file.flush();
  if (!file) throw Error(fmt::format("{}: writing failed", path));
}

void print_error(const std::string& message, const std::string& hint) {
  fmt::print(stderr, "aicf: {}{}\n", message, hint.empty() ? "" : " (" + hint + ")");
}

}  // namespace aicf::cli
