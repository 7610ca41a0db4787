// The command line: parses, runs one command, turns exceptions into exit codes.
#include <CLI/CLI.hpp>
#include <algorithm>
#include <functional>
#include <new>

#include "aicf/suggest.h"
#include "common.h"

namespace {

using namespace aicf;
using namespace aicf::cli;

struct CommandLine {
  CLI::App app{"AICF: compiles a whole training step and replays it", "aicf"};
  Options options;
  TrainRequest training;
  std::string weights, stage = "opt", format = "text", op;
  int orders = 20;
  BenchRequest request;
  std::function<int()> run;

  // Throws Error on a first word that is no command: CLI11 would only say that one is required.
  void check_command(int argc, char** argv) const {
    if (argc < 2 || argv[1][0] == '-') return;
    std::vector<std::string> known;
    for (const CLI::App* sub : app.get_subcommands({})) known.push_back(sub->get_name());
    if (std::find(known.begin(), known.end(), argv[1]) != known.end()) return;
    const std::string near = base::did_you_mean(argv[1], known);
    throw Error("no command is named '" + std::string(argv[1]) + "'", near.empty() ? "aicf --help lists them" : near);
  }

  // What to try instead of an option that the command does not have.
  std::string hint_for(int argc, char** argv) const {
    for (const CLI::App* sub : app.get_subcommands()) {
      std::vector<std::string> known;
      for (const CLI::Option* option : sub->get_options()) known.push_back(option->get_name());
      for (int i = 2; i < argc; ++i) {
        const std::string word = std::string(argv[i]).substr(0, std::string(argv[i]).find('='));
        if (!word.starts_with("--") || std::find(known.begin(), known.end(), word) != known.end()) continue;
        if (const std::string near = base::did_you_mean(word, known); !near.empty()) return near;
      }
      return "aicf " + sub->get_name() + " --help";
    }
    return "aicf --help";
  }

  CLI::App* command(const char* name, const char* description, std::function<int()> action) {
    CLI::App* sub = app.add_subcommand(name, description);
    sub->callback([this, action = std::move(action)] { run = action; });
    return sub;
  }

  CommandLine() {
    app.set_version_flag("--version", version());
    app.require_subcommand(1);
    CLI::App* train_app = command("train", "train as a recipe says", [this] { return train(options, training); });
    add_recipe_options(*train_app, options);
    add_training_options(*train_app, options);
    train_app->add_option("--out", training.out, "folder for metrics.jsonl, weights.safetensors and checkpoints");
    CLI::Option* resume =
        train_app->add_option("--resume", training.resume, "go on with the run in this folder, bit for bit");
    train_app->add_option("--checkpoint-every", training.every, "steps between checkpoints (default: one at the end)")
        ->check(CLI::PositiveNumber);
    train_app->add_option("--keep", training.keep, "so many of the newest checkpoints are kept; 0: all")
        ->check(CLI::NonNegativeNumber)
        ->capture_default_str();
    train_app
        ->add_option("--waive", training.waive,
                     "with --resume, what may be missing or differ: rng, step, data, structure, checksum, or a tensor")
        ->expected(1)
        ->multi_option_policy(CLI::MultiOptionPolicy::TakeAll)
        ->needs(resume);
    train_app
        ->add_flag("--retune", training.retune,
                   "with --resume, choose the kernels of matrix products anew: the run goes on, not bit for bit")
        ->needs(resume);
    CLI::Option* record = train_app->add_option(
        "--record", training.record,
        "a safetensors file for another program to take the same steps: the weights before the first "
        "step, and each step's examples and loss");
    train_app
        ->add_option("--attach", training.attach,
                     "keep the data set in the device's memory and start many steps at once: the same bits (auto: on a "
                     "GPU, where it fits)")
        ->check(CLI::IsMember({"auto", "on", "off"}))
        ->capture_default_str();
    resume->excludes("--out");
    resume->excludes(record);

    CLI::App* eval_app = command("eval", "test metric of saved weights", [this] { return eval(options, weights); });
    add_recipe_options(*eval_app, options);
    eval_app->add_option("--weights", weights, "a safetensors file: weights, or a checkpoint")->required();

    CLI::App* verify_app = command("verify", "prove that every way to run the step gives the same bits",
                                   [this] { return cli::verify(options, orders); });
    add_recipe_options(*verify_app, options);
    add_training_options(*verify_app, options);
    verify_app->add_option("--orders", orders, "random topological orders to try")
        ->check(CLI::NonNegativeNumber)
        ->capture_default_str();

    CLI::App* bench_app =
        command("bench", "time the step of each recipe", [this] { return cli::bench(options, request); });
    bench_app->add_option("RECIPE", request.recipes, "recipe files (TOML)");
    add_common_options(*bench_app, options);
    bench_app->add_flag("--ops", request.ops, "time the optimizer and single layers, and how near a copy they come");
    bench_app->add_option("--only", request.ops_named, "with --ops: those with this in their names");
    bench_app->add_option("--megabytes", request.megabytes, "with --ops: MiB of the largest tensor of each");
    bench_app->add_option("--time", request.seconds, "seconds for each of the two measurements")
        ->check(CLI::NonNegativeNumber)
        ->capture_default_str();
    bench_app->add_option("--steps", request.steps, "steps of a timed batch (default: as many as take 50 ms)")
        ->check(CLI::PositiveNumber);
    bench_app->add_flag("--per-launch", request.per_launch, "time each launch of the step by itself instead");
    bench_app->add_option("--export", request.export_folder,
                          "folder for NAME.safetensors: the weights before the first step, one batch, and the losses "
                          "of the first steps on it");
    bench_app->add_option("--export-steps", request.export_steps, "how many losses")
        ->check(CLI::PositiveNumber)
        ->capture_default_str();

    CLI::App* dump_app =
        command("dump", "print a stage of the training step", [this] { return dump(options, stage, format); });
    add_recipe_options(*dump_app, options);
    dump_app->add_option("--stage", stage, "model, grad, step, passes, opt, plan, memory or graph")
        ->capture_default_str();
    dump_app->add_option("--format", format, "text, dot or json")->capture_default_str();

    CLI::App* ops_app = command("ops", "list the ops, or show one", [this] { return ops(op, options.json); });
    ops_app->add_option("OP", op, "the op to show");
    ops_app->add_option("--json", options.json, "also write the list to this file");

    CLI::App* info_app = command("info", "version, backends, passes", [this] { return info(options.json); });
    info_app->add_option("--json", options.json, "also write it to this file");
  }
};

}  // namespace

int main(int argc, char** argv) {
  CommandLine line;
  try {
    line.check_command(argc, argv);
    line.app.parse(argc, argv);
    return line.run ? line.run() : kUserMistake;
  } catch (const CLI::ParseError& e) {
    if (e.get_exit_code() == 0) return line.app.exit(e);  // --help, --version
    print_error(e.what(), line.hint_for(argc, argv));
    return kUserMistake;
  } catch (const Error& e) {
    print_error(e.what(), e.hint());
    return kUserMistake;
  } catch (const std::bad_alloc&) {
    print_error("out of memory", "");
    return kUserMistake;
  } catch (const std::exception& e) {
    print_error(std::string("internal error: ") + e.what(), "this is a bug in aicf: please report it");
    return kOurBug;
  }
}
