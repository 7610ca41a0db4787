// aicf train: the recipe's steps, a progress bar, checkpoints, and the test metric at the end.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <csignal>
#include <cstdlib>
#include <filesystem>
#include <map>
#include <optional>
#include <utility>
#include <vector>

#include "common.h"
#include "progress.h"

namespace aicf::cli {
namespace {

volatile std::sig_atomic_t interrupted = 0;

// The first signal ends the run after the step; a second one ends the process.
void on_signal(int signal) {
  interrupted = 1;
  std::signal(signal, SIG_DFL);
}

int64_t parameters(const Program& program) {
  int64_t count = 0;
  for (const std::string& name : program.params()) count += program.type(name).shape.elements();
  return count;
}

void print_header(const Recipe& recipe, const Program& program, int64_t steps, const std::string& asked) {
  std::string chosen;
  for (const BackendInfo& backend : list_backends()) {
    if (backend.name == program.backend()) chosen = backend.description;
  }
  fmt::print("{}: {} parameters, {} steps of batch {}\n", recipe.name, parameters(program), steps, recipe.train.batch);
  fmt::print("backend {}: {}\n", program.backend(), chosen);
  for (const BackendInfo& backend : list_backends()) {
    if (asked == "auto" && program.backend() == "cpu" && !backend.available) {
      fmt::print("  (auto: {})\n", backend.description);
    }
  }
  fmt::print("plan: {} launches, {} planned (arena {})\n", program.launches(), bytes_text(program.memory().total),
             bytes_text(program.memory().arena));
  for (const std::string& name : program.untrained())
    fmt::print("not trained: {} (no path to the loss, or frozen)\n", name);
}

// The order of a run's batches: each example's place in the data set.
Loader places_of(const Dataset& data, const LoaderOptions& order) {
  Tensor places(TensorType{i32, {data.size()}});
  for (int64_t i = 0; i < data.size(); ++i) places.as<int32_t>()[i] = static_cast<int32_t>(i);
  return Loader(Dataset({{"places", std::move(places)}}), order);
}

// What another program needs to take the same steps, and to see that it does.
class Record {
 public:
  Record(std::string path, const Program& program, Loader places) : path_(std::move(path)), places_(std::move(places)) {
    check_json(path_);
    tensors_ = program.snapshot({.params = true, .states = false});
  }
  // Of the next step.
  void loss(double value) {
    const TensorView places = places_.next().feeds[0].tensor;
    const auto* first = static_cast<const int32_t*>(places.data);
    examples_.insert(examples_.end(), first, first + places.type.shape.elements());
    losses_.push_back(static_cast<float>(value));
  }
  void write() {
    const auto steps = static_cast<int64_t>(losses_.size());
    if (steps == 0) return;
    tensors_.emplace_back("examples",
                          Tensor::of<int32_t>({steps, static_cast<int64_t>(examples_.size()) / steps}, examples_));
    tensors_.emplace_back("losses", Tensor::of<float>({steps}, losses_));
    write_safetensors(path_, tensors_);
  }

 private:
  std::string path_;
  Loader places_;
  NamedTensors tensors_;
  std::vector<int32_t> examples_;
  std::vector<float> losses_;
};

// Takes a run's steps: on batches that a loader feeds, one by one, or on the data set in the device's memory, many by
// one call. The bits are the same.
class Steps {
 public:
  // `loader` is of the same data and order.
  Steps(Program& program, const Dataset& data, const LoaderOptions& order, Loader loader, const std::string& attach)
      : program_(program), batch_(order.batch), examples_(data.size()) {
    std::string why;
    if (attach == "on" || (attach == "auto" && wanted(data, why))) {
      try {
        program_.attach(data, order);
        fmt::print("data: {} examples, {} in the memory of {}\n", examples_, bytes_text(bytes(data)),
                   program.backend());
        return;
      } catch (const Error& e) {
        if (attach == "on") throw;
        why = std::string(": ") + e.what();
      }
    }
    loader_.emplace(std::move(loader));
    fmt::print("data: {} examples, fed batch by batch{}\n", examples_, why);
  }

  // Null: the data set is attached.
  Loader* loader() { return loader_ ? &*loader_ : nullptr; }
  LoaderState next() const { return loader_ ? loader_->state() : program_.position(); }
  int64_t left_in_epoch() const { return (examples_ - next().position) / batch_; }
  // So many in one call that it, and the one before it that may still run, end soon after a signal.
  int64_t at_once() const { return at_once_; }

  std::vector<StepResult> take(int64_t n) {
    if (!loader_) return program_.steps(n);
    return {program_.step(loader_->next().feeds)};
  }
  // What a call of n steps took.
  void took(int64_t n, double seconds) {
    if (loader_ || n < at_once_) return;
    if (seconds < kShort && at_once_ < kMost) at_once_ *= 2;  // powers of two: a graph is captured for each
    if (seconds > 2 * kShort && at_once_ > 1) at_once_ /= 2;
  }

 private:
  static constexpr double kShort = 0.04;  // seconds
  static constexpr int64_t kMost = 256;
  static constexpr size_t kMostBytes = size_t{4} << 30;  // of a GPU's memory, unasked

  static size_t bytes(const Dataset& data) {
    size_t sum = 0;
    for (const auto& [name, tensor] : data.tensors()) sum += tensor.bytes();
    return sum;
  }
  bool wanted(const Dataset& data, std::string& why) const {
    if (program_.backend() == "cpu") return false;  // where the loader's thread does the same work meanwhile
    if (bytes(data) <= kMostBytes) return true;
    why = fmt::format(": {} (--attach on keeps them on the device)", bytes_text(bytes(data)));
    return false;
  }

  Program& program_;
  const int64_t batch_, examples_;
  std::optional<Loader> loader_;
  int64_t at_once_ = 1;
};

constexpr const char* kLossSum = "train.loss_sum";
constexpr const char* kLossCount = "train.loss_count";
constexpr const char* kSmoothLoss = "train.smooth_loss";
constexpr const char* kMetricsBytes = "train.metrics_bytes";

// Where a run lies on disk, if it does: its checkpoints and its metrics, which go on together.
class RunFolder {
 public:
  explicit RunFolder(const TrainRequest& request)
      : path_(request.resume.empty() ? request.out : request.resume),
        resumes_(!request.resume.empty()),
        waive_(request.waive) {
    if (request.every > 0 && path_.empty()) {
      throw Error("--checkpoint-every: there is no folder for checkpoints", "give --out DIR");
    }
    if (path_.empty()) return;
    if (resumes_ && !std::filesystem::is_directory(path_)) {
      throw Error(fmt::format("--resume {}: there is no such folder", path_), "it takes the --out of the run");
    }
    if (!resumes_) make_folder(path_, "--out");
    checkpoints_.emplace(path_, request.keep);
    if (resumes_) {
      newest_ = checkpoints_->newest(request.waive);
      for (const std::string& why : newest_->damaged) fmt::print("damaged, set aside: {}\n", why);
      if (!newest_->damaged.empty()) fmt::print("falling back to {}\n", newest_->file.path);
    } else if (const auto files = checkpoints_->files(); !files.empty()) {
      throw Error(fmt::format("--out {}: it holds the checkpoints of a run, up to step {}", path_, files[0].step),
                  fmt::format("--resume {} goes on with it", path_));
    }
  }

  bool given() const { return !path_.empty(); }
  // What the run goes on from; null: a new run, or begin() was called.
  const Checkpoint* newest() const { return newest_ ? &newest_->checkpoint : nullptr; }
  const std::string& path() const { return path_; }

  // Program, data, metrics and losses as the checkpoint has them; returns the steps done.
  int64_t begin(Program& program, Loader* loader, Progress& progress) {
    if (!given()) return 0;
    uint64_t metrics_bytes = UINT64_MAX;
    if (resumes_) {
      Restored restored;
      try {
        restored = restore_checkpoint(program, newest_->checkpoint, {.loader = loader, .waive = waive_});
      } catch (const Error& e) {
        throw Error(fmt::format("{}: {}", newest_->file.path, e.what()), e.hint());
      }
      saved_ = restored.step.value_or(0);
      const auto note = [&](const char* key) { return restored.notes.count(key) ? restored.notes.at(key) : "0"; };
      progress.resume(saved_, {.smooth = std::strtod(note(kSmoothLoss).c_str(), nullptr),
                               .sum = std::strtod(note(kLossSum).c_str(), nullptr),
                               .count = std::strtoll(note(kLossCount).c_str(), nullptr, 10)});
      if (restored.notes.count(kMetricsBytes))  // else it was saved by another program: none of the lines are later
        metrics_bytes = std::strtoull(note(kMetricsBytes).c_str(), nullptr, 10);
      fmt::print("resumed after step {} from {}\n", saved_, newest_->file.path);
      for (const std::string& difference : restored.differences) fmt::print("  {}\n", difference);
      newest_.reset();
    }
    metrics_.emplace(path_ + "/metrics.jsonl", metrics_bytes);
    return std::max<int64_t>(saved_, 0);
  }

  void log(const std::vector<std::pair<std::string, MetricValue>>& record) {
    if (metrics_) metrics_->write(record);
  }

  // Of the run as it is after this step; does nothing when that is what was saved last.
  enum class Wait { yes, no };
  void save(const Program& program, const Loader* loader, const Progress& progress, int64_t step, Wait wait) {
    if (!given()) return;
    if (step != saved_) {
      checkpoints_->wait();  // before the copy is made: there is never more than one
      const Progress::Losses& losses = progress.losses();
      checkpoints_->save_in_background(
          take_checkpoint(program, {.loader = loader,
                                    .step = step,
                                    .notes = {{kSmoothLoss, fmt::format("{:a}", losses.smooth)},
                                              {kLossSum, fmt::format("{:a}", losses.sum)},
                                              {kLossCount, std::to_string(losses.count)},
                                              {kMetricsBytes, std::to_string(metrics_->size())}}}));
      saved_ = step;
    }
    if (wait == Wait::yes) checkpoints_->wait();
  }

 private:
  const std::string path_;  // "": none
  const bool resumes_;
  const std::vector<std::string> waive_;
  std::optional<CheckpointFolder> checkpoints_;
  std::optional<CheckpointFolder::Newest> newest_;
  std::optional<MetricsWriter> metrics_;
  int64_t saved_ = -1;
};

// Of epoch `epoch`, from 0, or the part of it that was left to do.
void end_epoch(const Program& program, int64_t epoch, int64_t done, Progress& progress, RunFolder& folder) {
  const double mean = progress.take_mean_loss();
  const std::optional<double> norm = read_state(program, kGradNorm), skipped = read_state(program, "steps.skipped");
  std::string line =
      fmt::format("epoch {}: mean loss {:.4f}, {:.0f} steps/s", epoch + 1, mean, progress.steps_per_second());
  if (norm) line += fmt::format(", gradient norm {:.4g}", *norm);
  if (skipped) line += fmt::format(", {:.0f} steps skipped", *skipped);
  progress.line(line);
  if (!folder.given()) return;
  std::vector<std::pair<std::string, MetricValue>> entries = {{"step", done},
                                                              {"epoch", epoch + 1},
                                                              {"loss", mean},
                                                              {"lr", program.read("optimizer.lr_effective").item()},
                                                              {"steps_per_second", progress.steps_per_second()}};
  if (norm) entries.emplace_back("grad_norm", *norm);
  if (skipped) entries.emplace_back("steps_skipped", *skipped);
  if (const auto scale = read_state(program, "loss_scale.value")) entries.emplace_back("loss_scale", *scale);
  folder.log(entries);
}

}  // namespace

int train(const Options& options, const TrainRequest& request) {
  check_json(options.json);
  const Recipe recipe = recipe_of(options);
  RunFolder folder(request);
  const Dataset data = load_data(recipe, true);
  RecipeModel model = build_model(recipe, micro_batch(recipe));
  const LoaderOptions order = {.batch = recipe.train.batch, .seed = static_cast<uint64_t>(recipe.train.seed)};
  Loader loader(data, order);
  const int64_t per_epoch = loader.batches_per_epoch();
  const int64_t steps = total_steps(recipe, per_epoch);
  Options tuned = options;
  tuned.tune = true;  // seconds that the steps win back
  if (const Checkpoint* from = folder.newest(); from != nullptr && !request.retune) {
    tuned.kernels = from->kernels;
    tuned.kernels_of = from->backend;
  }
  if (request.retune)
    fmt::print("--retune: kernels are chosen anew, and the run goes on within bounds, not bit for bit\n");
  Program program = compile_training(model, recipe, per_epoch, tuned);
  std::optional<Record> record;
  if (!request.record.empty()) record.emplace(request.record, program, places_of(data, order));
  print_header(recipe, program, steps, options.backend);
  Steps run(program, data, order, std::move(loader), request.attach);
  Progress progress(steps, per_epoch);
  const int64_t before = folder.begin(program, run.loader(), progress);
  int64_t done = before;

  interrupted = 0;
  std::signal(SIGINT, on_signal);
  std::signal(SIGTERM, on_signal);
  // Losses are read one call late, so that a GPU never waits for the host.
  std::vector<StepResult> unread;
  const auto read_losses = [&] {
    for (const StepResult& result : unread) {
      const double loss = result.scalar("loss");
      progress.step(loss);
      if (record) record->loss(loss);
    }
    unread.clear();
  };
  while (done < steps && !interrupted) {
    const int64_t epoch = run.next().epoch, left = run.left_in_epoch();
    int64_t n = std::min({run.at_once(), left, steps - done});
    if (request.every > 0) n = std::min(n, request.every - done % request.every);
    const double begin = progress.seconds();
    std::vector<StepResult> results = run.take(n);
    read_losses();
    run.took(n, progress.seconds() - begin);
    unread = std::move(results);
    done += n;
    if (n == left || done == steps) {
      read_losses();
      end_epoch(program, epoch, done, progress, folder);
    }
    if (request.every > 0 && done % request.every == 0) {
      read_losses();
      folder.save(program, run.loader(), progress, done, RunFolder::Wait::no);
    }
  }
  read_losses();
  const double seconds = progress.seconds(), rate = progress.steps_per_second();
  progress.finish();
  if (record) record->write();
  folder.save(program, run.loader(), progress, done, RunFolder::Wait::yes);
  const std::string& out = folder.path();
  const bool averages = recipe.optimizer.ema.has_value();
  if (!out.empty()) {
    const std::map<std::string, std::string> about = {{"recipe", recipe.name}, {"step", std::to_string(done)}};
    write_safetensors(out + "/weights.safetensors", weights_of(program), about);
    if (averages) write_safetensors(out + "/averages.safetensors", averages_of(program), about);
  }
  std::signal(SIGINT, SIG_DFL);
  std::signal(SIGTERM, SIG_DFL);
  if (interrupted) {
    fmt::print("interrupted after step {} of {}{}\n", done, steps,
               out.empty() ? "" : fmt::format("; saved: aicf train {} --resume {}", options.recipe, out));
    return kInterrupted;
  }

  RecipeModel eval_model = build_model(recipe, eval_batch(recipe));
  CompileOptions eval_options = compile_options(options, recipe);
  eval_options.share = program;
  Program eval_program = compile_evaluation(eval_model, eval_options);
  const Evaluation result = evaluate(eval_program, recipe);
  std::optional<Evaluation> averaged;
  if (averages) {
    eval_options.use_ema = true;
    Program averaged_program = compile_evaluation(eval_model, eval_options);
    averaged = evaluate(averaged_program, recipe);
  }
  std::vector<std::pair<std::string, MetricValue>> last = {{"step", done}, {"test_loss", result.loss}};
  if (result.accuracy) last.emplace_back("test_accuracy", *result.accuracy);
  if (averaged) last.emplace_back("test_loss_of_averages", averaged->loss);
  if (averaged && averaged->accuracy) last.emplace_back("test_accuracy_of_averages", *averaged->accuracy);
  folder.log(last);
  fmt::print("{} steps in {:.1f} s ({:.0f} steps/s)\n{}\n", done - before, seconds, rate, text_of(result));
  if (averaged) fmt::print("with the averages of the weights: {}\n", text_of(*averaged));
  if (!out.empty()) fmt::print("weights: {}/weights.safetensors{}\n", out, averages ? ", averages.safetensors" : "");
  nlohmann::json json = {{"recipe", recipe.name},
                         {"steps", done},
                         {"seconds", seconds},
                         {"steps_per_second", rate},
                         {"final_loss", progress.losses().smooth},
                         {"test", json_of(result)}};
  if (averaged) json["test_of_averages"] = json_of(*averaged);
  if (const auto skipped = read_state(program, "steps.skipped")) json["steps_skipped"] = static_cast<int64_t>(*skipped);
  if (const auto norm = read_state(program, kGradNorm); norm && std::isfinite(*norm)) json["grad_norm"] = *norm;
  write_json(options.json, json);
  return kOk;
}

}  // namespace aicf::cli
