// What the commands share: options, exit codes, and the way from a recipe to programs.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <nlohmann/json.hpp>

#include "aicf/aicf.h"

namespace CLI {
class App;
}

namespace aicf::cli {

enum ExitCode : int { kOk = 0, kCheckFailed = 1, kUserMistake = 2, kOurBug = 3, kInterrupted = 130 };

struct Options {
  std::string recipe;
  std::string backend = "auto";
  std::string mode = "graph";
  std::optional<int64_t> steps;
  std::optional<int64_t> seed;
  std::string precision;  // "": the recipe's
  std::vector<std::string> sets;
  bool no_alias = false;
  bool no_reuse = false;
  std::vector<std::string> disabled_passes;
  bool tune = false;                           // choose kernel variants by timing them
  std::map<std::string, std::string> kernels;  // CompileOptions::kernels and kernels_of
  std::string kernels_of;
  std::string json;
};

// Adds the options to a subcommand: RECIPE and what every use of one takes; `steps` and `seed` for those that train.
void add_recipe_options(CLI::App& app, Options& options);
void add_common_options(CLI::App& app, Options& options);  // without RECIPE
void add_training_options(CLI::App& app, Options& options);

// The recipe with --set, --steps, --seed and --precision applied.
Recipe recipe_of(const Options& options);
CompileOptions compile_options(const Options& options, const Recipe& recipe);

// Training as the recipe says: the loss and, where the model has one, the share of right answers.
Program compile_training(RecipeModel& model, const Recipe& recipe, int64_t steps_per_epoch, const Options& options);

struct Evaluation {
  int64_t examples = 0;
  double loss = 0;                 // mean over the examples
  std::optional<double> accuracy;  // of classifiers, in [0, 1]
};

// Over the recipe's test set. `base` carries the store (share) or the backend.
Program compile_evaluation(RecipeModel& model, const CompileOptions& base);
Evaluation evaluate(Program& program, const Recipe& recipe);
std::string text_of(const Evaluation& evaluation);  // "test accuracy 88.95 %, loss 0.3214 (10000 examples)"
nlohmann::json json_of(const Evaluation& evaluation);
int64_t eval_batch(const Recipe& recipe);

// Params and the model's own states: not the optimizer's, nor counters.
bool is_weight(std::string_view name);
NamedTensors weights_of(const Program& program);
// The same with the averages of the parameters that have one.
NamedTensors averages_of(const Program& program);

inline constexpr const char* kGradNorm = "grad_norm";
// Of one element; none where the program has no such state.
std::optional<double> read_state(const Program& program, const std::string& name);

// Throws Error when a file was asked for and cannot be written: before the work, not after it.
void check_json(const std::string& path);
// Throws Error naming the option when there is no such folder and none can be made.
void make_folder(const std::string& path, const std::string& option);
// Writes the document when a file was asked for. Throws Error when it cannot be written.
void write_json(const std::string& path, const nlohmann::json& document);

std::string bytes_text(size_t bytes);  // "3.2 MiB"

// One line on standard error, with the hint.
void print_error(const std::string& message, const std::string& hint);

struct BenchRequest {
  std::vector<std::string> recipes;
  double seconds = 1;  // of each measurement
  int64_t steps = 0;   // of a timed batch; 0: as many as take 50 ms
  std::string export_folder;
  int64_t export_steps = 20;
  bool per_launch = false;
  bool ops = false;       // the built-in programs instead
  std::string ops_named;  // those with this in their names
  size_t megabytes = 0;   // of their largest tensors; 0: as the device asks
};
Mode mode_of(const std::string& name);

struct TrainRequest {
  std::string out;     // folder; "": none
  std::string resume;  // folder of the run to go on with; "": a new run
  int64_t every = 0;   // steps between checkpoints; 0: at the end alone
  int keep = 3;
  std::vector<std::string> waive;  // with `resume`: RestoreOptions::waive
  std::string record;              // a file for Record (train.cc); "": none
  bool retune = false;             // with `resume`: matrix products are chosen anew
  std::string attach = "auto";     // auto, on or off: Program::attach
};

// The commands.
int train(const Options& options, const TrainRequest& request);
int eval(const Options& options, const std::string& weights);
int verify(const Options& options, int orders);
int bench(const Options& options, const BenchRequest& request);
int dump(const Options& options, const std::string& stage, const std::string& format);
int ops(const std::string& name, const std::string& json);
int info(const std::string& json);

}  // namespace aicf::cli
