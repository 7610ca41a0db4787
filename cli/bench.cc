// aicf bench: how long the recipes' steps take, with inputs on the device and fed, and what a step is made of.
#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdio>

#include "common.h"

namespace aicf::cli {
namespace {

constexpr int64_t kMaxBatches = 16;
constexpr size_t kMaxBatchBytes = size_t{256} << 20;

struct Batches {
  std::vector<NamedTensors> tensors;
  int64_t per_epoch = 0;
};

// The first batches, copied: a loader's thread would compete with what is timed.
Batches first_batches(const Recipe& recipe) {
  Loader loader(load_data(recipe, true),
                {.batch = recipe.train.batch, .seed = static_cast<uint64_t>(recipe.train.seed)});
  Batches batches{{}, loader.batches_per_epoch()};
  const auto count = static_cast<size_t>(std::min(kMaxBatches, batches.per_epoch));
  for (size_t bytes = 0; batches.tensors.size() < count && bytes < kMaxBatchBytes;) {
    NamedTensors copy;
    for (const Feed& feed : loader.next().feeds) {
      copy.emplace_back(std::string(feed.name), Tensor(feed.tensor));
      bytes += copy.back().second.bytes();
    }
    batches.tensors.push_back(std::move(copy));
  }
  return batches;
}

std::vector<Feed> feeds_of(const NamedTensors& batch) {
  std::vector<Feed> feeds;
  for (const auto& [name, tensor] : batch) feeds.push_back({name, tensor});
  return feeds;
}

// What another program needs to take the same steps, and to see that it does: the parameters before the first step, one
// batch, and the loss of each step on it.
std::vector<float> write_export(Program& program, const NamedTensors& batch, const std::string& folder,
                                const std::string& name, int64_t steps) {
  NamedTensors tensors = program.snapshot({.params = true, .states = false});
  tensors.insert(tensors.end(), batch.begin(), batch.end());
  std::vector<float> losses;
  for (int64_t i = 0; i < steps; ++i) {
    const StepResult result = i == 0 ? program.step(feeds_of(batch)) : program.repeat();
    losses.push_back(static_cast<float>(result.scalar("loss")));
  }
  tensors.emplace_back("losses", Tensor::of<float>({steps}, losses));
  write_safetensors(folder + "/" + name + ".safetensors", tensors);
  program.reset();
  return losses;
}

// Four significant digits.
std::string number(double value) {
  const int before = value > 0 ? static_cast<int>(std::floor(std::log10(value))) : 0;
  return fmt::format("{:.{}f}", value, std::clamp(3 - before, 0, 6));
}

std::string text_of(const StepTime& t) {
  return fmt::format("{:>8} ({} - {})", number(t.median), number(t.low), number(t.high));
}

nlohmann::json json_of(const StepTime& t) {
  return {{"ms", t.median}, {"low", t.low}, {"high", t.high}, {"steps", t.steps}, {"batches", t.batches}};
}

std::string description_of(const std::string& backend) {
  for (const BackendInfo& info : list_backends()) {
    if (info.name == backend) return info.description;
  }
  return "";
}

nlohmann::json print_launches(const std::vector<LaunchTime>& times) {
  constexpr const char* kLaunches = "{:>5} {:>10} {:>10} {:>7}  {:<14} {:<20} {}\n";
  double all = 0, low = 0;
  int count = 0;
  for (const LaunchTime& t : times) all += t.microseconds, low += t.low, count += t.count;
  const auto share = [&](double us) { return fmt::format("{:.1f} %", 100 * us / all); };
  nlohmann::json rows = nlohmann::json::array();
  fmt::print(kLaunches, "count", "us a step", "least", "share", "variant", "result", "launch");
  for (const LaunchTime& t : times) {
    fmt::print(kLaunches, t.count, number(t.microseconds), number(t.low), share(t.microseconds), t.variant, t.result,
               t.name);
    rows.push_back({{"name", t.name},
                    {"variant", t.variant},
                    {"result", t.result},
                    {"count", t.count},
                    {"us", t.microseconds},
                    {"us_low", t.low}});
  }
  fmt::print(kLaunches, count, number(all), number(low), share(all), "", "", "all\n");
  std::fflush(stdout);
  return rows;
}

constexpr const char* kRow = "{:<16} {:<9} {:>30} {:>30} {:>30} {:>6} {:>5} {:>8} {:>10} {:>8} {:>8}\n";

nlohmann::json bench_one(const Recipe& recipe, const Options& options, const BenchRequest& request, bool first) {
  const Batches batches = first_batches(recipe);
  std::vector<std::vector<Feed>> feeds;
  for (const NamedTensors& batch : batches.tensors) feeds.push_back(feeds_of(batch));

  RecipeModel model = build_model(recipe, micro_batch(recipe));
  CompileOptions compile_with = training_options(recipe, model, batches.per_epoch, compile_options(options, recipe));
  compile_with.outputs = {{"loss", model.loss}};
  compile_with.tune = true;
  const auto start = std::chrono::steady_clock::now();
  Program program = compile(model.model, compile_with);
  const double compile_s = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  const std::string device = description_of(program.backend());
  const BenchFeeds fed = [&](int64_t step) {
    return std::span<const Feed>(feeds[static_cast<size_t>(step) % feeds.size()]);
  };
  if (request.per_launch) {
    fmt::print("{}, {}, backend {}: {}\n\n", recipe.name, recipe.precision, program.backend(), device);
    return {{"recipe", recipe.file},
            {"name", recipe.name},
            {"precision", recipe.precision},
            {"backend", program.backend()},
            {"device", device},
            {"launches", print_launches(bench_launches(program, fed, {.seconds = request.seconds}))}};
  }
  if (first) {
    fmt::print("backend {}: {}; mode {}\n\n", program.backend(), device, options.mode);
    fmt::print(kRow, "workload", "precision", "ms/step (low - high)", "fed (low - high)", "steps(n) (low - high)",
               "nodes", "path", "launches", "planned", "TFLOP/s", "of limit");
    std::fflush(stdout);
  }
  std::vector<float> losses;
  if (!request.export_folder.empty()) {
    losses = write_export(program, batches.tensors[0], request.export_folder, recipe.name, request.export_steps);
  }

  const BenchResult r = aicf::bench(program, fed, {.seconds = request.seconds, .steps = request.steps});
  const double rate = r.flops / (r.resident.median * 1e-3);
  const std::optional<double> limit = known_peak(device, recipe.precision);
  fmt::print(kRow, recipe.name, recipe.precision, text_of(r.resident), text_of(r.fed), r.many ? text_of(*r.many) : "-",
             r.graph.nodes, r.graph.critical_path, r.graph.launches, bytes_text(r.planned_bytes), number(rate * 1e-12),
             limit ? fmt::format("{:.1f} %", 100 * rate / *limit) : "unknown");
  std::fflush(stdout);
  nlohmann::json row = {{"recipe", recipe.file},
                        {"name", recipe.name},
                        {"precision", recipe.precision},
                        {"batch", recipe.train.batch},
                        {"backend", program.backend()},
                        {"device", device},
                        {"mode", options.mode},
                        {"compile_s", compile_s},
                        {"resident", json_of(r.resident)},
                        {"fed", json_of(r.fed)},
                        {"many", nullptr},
                        {"unrolled", r.graph.unrolled},
                        {"captured", r.graph.captured},
                        {"nodes", r.graph.nodes},
                        {"critical_path", r.graph.critical_path},
                        {"launches", r.graph.launches},
                        {"planned_bytes", r.planned_bytes},
                        {"flops", r.flops},
                        {"flops_per_second", rate},
                        {"limit_flops_per_second", nullptr}};
  if (limit) row["limit_flops_per_second"] = *limit;
  if (r.many) row["many"] = json_of(*r.many);
  if (!losses.empty()) row["losses"] = losses;
  return row;
}

constexpr const char* kOpsRow = "{:<24} {:>30} {:>10} {:>8} {:>6} {:>9} {:>8}\n";

nlohmann::json bench_all_ops(const Options& options, const BenchRequest& request) {
  OpsBenchOptions with;
  with.backend = options.backend;
  with.mode = mode_of(options.mode);
  with.disable_passes = options.disabled_passes;
  with.only = request.ops_named;
  with.bytes = request.megabytes << 20;
  with.timing.seconds = request.seconds;
  fmt::print(kOpsRow, "program", "ms (low - high)", "moved", "launches", "nodes", "GB/s", "of copy");
  std::fflush(stdout);
  nlohmann::json rows = nlohmann::json::array();
  bench_ops(with, [&](const OpsBenchRow& r) {
    fmt::print(kOpsRow, r.name, text_of(r.time), bytes_text(r.bytes), r.launches, r.nodes,
               number(r.bytes_per_second * 1e-9), fmt::format("{:.1f} %", 100 * r.share));
    std::fflush(stdout);
    rows.push_back({{"name", r.name},
                    {"time", json_of(r.time)},
                    {"bytes", r.bytes},
                    {"launches", r.launches},
                    {"nodes", r.nodes},
                    {"bytes_per_second", r.bytes_per_second},
                    {"share_of_copy", r.share}});
  });
  return rows;
}

}  // namespace

int bench(const Options& options, const BenchRequest& request) {
  check_json(options.json);
  if (request.ops) {
    write_json(options.json, {{"version", version()}, {"ops", bench_all_ops(options, request)}});
    return kOk;
  }
  if (request.recipes.empty()) throw Error("bench: expected RECIPE… or --ops");
  if (!request.export_folder.empty()) make_folder(request.export_folder, "--export");
  std::vector<Recipe> recipes;  // all of them read first: a mistake costs no time
  for (const std::string& file : request.recipes) {
    Options one = options;
    one.recipe = file;
    recipes.push_back(recipe_of(one));
  }
  nlohmann::json rows = nlohmann::json::array();
  for (const Recipe& recipe : recipes) rows.push_back(bench_one(recipe, options, request, rows.empty()));
  write_json(options.json, {{"version", version()}, {"rows", rows}});
  return kOk;
}

}  // namespace aicf::cli
