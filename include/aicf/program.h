// compile() and Program: the training step as one replayable plan over a store of fixed buffers.
#pragma once

#include <cstdint>
#include <initializer_list>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "aicf/mode.h"
#include "aicf/model.h"
#include "aicf/optim.h"
#include "aicf/tensor.h"

namespace aicf {

struct CompileOptions;
class Program;
class Dataset;  // aicf/data.h, these three
struct LoaderOptions;
struct LoaderState;

// What one call of step() copies from the feeds besides the inputs.
enum class StepMode : uint8_t {
  train,        // nothing: feeding a param or state is an error
  train_reset,  // fed params and states first, then the step
};

struct StepOptions {
  StepMode mode = StepMode::train;
  // CUDA: a cudaStream_t of the caller (null: the legacy default stream). The step runs after the work in it so far,
  // and later work in it runs after the step; the host waits for neither. Error on the CPU.
  std::optional<void*> stream = {};
  // StepMode::train: params and states may be fed too, so that one list of feeds serves both modes. They are checked as
  // train_reset checks them, name, shape and dtype, and not copied.
  bool strict_static_signature = false;
};

// The graph of one step: what a launch of it runs.
struct GraphInfo {
  bool captured = false;  // false: the plan's launches, which are run one by one
  int nodes = 0;
  int critical_path = 0;  // nodes on the longest path
  int launches = 0;       // of the plan
  int unrolled = 1;       // steps that one launch of steps() holds at most
};

// What one step returned: snapshots, never overwritten by a later step. Cheap to copy; dropping the last copy gives the
// memory back to the program. On a GPU a step may still run when it is returned: reading waits for it, and throws Error
// when its labels or indices were out of range.
class StepResult {
 public:
  StepResult() = default;
  StepResult(const StepResult& other) noexcept;
  StepResult(StepResult&& other) noexcept;
  StepResult& operator=(StepResult other) noexcept;
  ~StepResult();

  // Throw Error (nearest name offered) when there is no such output.
  Tensor operator[](std::string_view name) const;
  double scalar(std::string_view name) const;    // of one element
  TensorView view(std::string_view name) const;  // valid while this result is
  std::vector<std::string> names() const;

  struct Block;
  explicit StepResult(Block* block) : block_(block) {}  // takes one reference

 private:
  Block* block_ = nullptr;
};

struct LoadOptions {
  bool params = true;
  bool states = true;
  // True: every param and state selected must be present, and nothing else. False: names in common are copied.
  bool strict = true;
  // Of these roles only the names that match one of these; * stands for any text ("fc1.*") and ? for any character.
  // Empty: all. Error on one that matches no param or state.
  std::vector<std::string> names = {};
};

// What load() did, by name.
struct LoadReport {
  std::vector<std::string> loaded;   // copied, in the order given
  std::vector<std::string> missing;  // selected and not given: they keep their values
  std::vector<std::string> unused;   // given and not copied: not selected, or not known here
};

struct MemoryTotals {
  size_t external = 0, constant = 0, arena = 0, fetched = 0, total = 0;  // bytes
  size_t live_peak = 0;                                                  // the arena's lower bound in this order
};

// A handle; copies are the same program. Programs of one store run in call order, from any thread.
class Program {
 public:
  Program() = default;
  bool valid() const { return impl_ != nullptr; }

  // One step: feed the inputs, run forward, backward and update. Throws Error, with nothing changed, on a wrong name,
  // shape or dtype, a missing feed, or a label or index out of range (what train_reset copied by then stays). A (1)
  // feed for a rank-0 input is taken as it. Allocates nothing on the host once its results are being dropped.
  // On a GPU it returns before the step is done; what the feeds point to may be reused at once. A label or index out of
  // range is then reported, naming op, tensor and step, by the first call that sees it: a later step(), wait(), read()
  // or a reading of the result. Until then no step changes anything.
  StepResult step(std::span<const Feed> feeds, const StepOptions& options);
  StepResult step(std::span<const Feed> feeds, StepMode mode = StepMode::train) {
    return step(feeds, StepOptions{.mode = mode});
  }
  StepResult step(std::initializer_list<Feed> feeds, StepMode mode = StepMode::train) {
    return step(std::span<const Feed>(feeds.begin(), feeds.size()), mode);
  }
  StepResult step(std::initializer_list<Feed> feeds, const StepOptions& options) {
    return step(std::span<const Feed>(feeds.begin(), feeds.size()), options);
  }
  // A step on the inputs of the last one, which are still on the device: nothing is copied. Throws Error when one was
  // never fed.
  StepResult repeat();
  // `n` steps, started by this one call: each on the next batch of the data set that was attached, or, where there is
  // none, on the inputs of the last step. A backend that captures runs many in one launch of a graph
  // (GraphInfo::unrolled says how many), and the host has nothing to do in between. The results are those of the steps,
  // in order, none lost. Throws Error as repeat() does, and, with nothing run, when an output is too large to be kept
  // for every step (on a GPU more than 1024 bytes: drop it from `outputs` and `fetch`, or use step()). After a label or
  // index out of range the steps that were started have taken their batches and changed nothing; set_position() goes
  // back.
  std::vector<StepResult> steps(int64_t n);
  // Copies the data set into the program's device memory. From now on steps() takes its inputs from it: batch after
  // batch, in the order in which a Loader with these options hands them out. Throws Error, with nothing changed, when
  // an input that the program reads is not among the tensors or has another type than a batch of them, and on options
  // that a device cannot follow: a transform, or drop_last = false.
  void attach(const Dataset& data, const LoaderOptions& order);
  // Where the next batch of steps() begins, and to go there. Throw Error when no data set is attached, or as
  // Loader::set_state does.
  LoaderState position() const;
  void set_position(const LoaderState& at);
  // Returns when every step started so far is done.
  void wait();

  // Copies of an external, by name. Throws Error when there is no such external, or it was fused or removed.
  Tensor read(const std::string& name) const;
  // Copies into the fixed buffer: acts at the next step. Throws Error, with nothing changed, on an unknown name,
  // another type, or a derived state. A (1) tensor fits a rank-0 external; the double form sets a scalar.
  void write(const std::string& name, const TensorView& value);
  void write(const std::string& name, double value);
  // All or nothing: everything is checked first, and derived states are refreshed after. Throws Error naming the first
  // tensor that is missing, unknown, derived or of another type (expected and got). When strict, the report lists
  // nothing missing or unused.
  LoadReport load(const NamedTensors& tensors, const LoadOptions& options = {});
  // Params and states back to their initial values.
  void reset();
  // Every param and state that is not derived, by name, as they are between two steps. `strict` plays no part.
  NamedTensors snapshot(const LoadOptions& which = {}) const;

  std::vector<std::string> inputs() const;
  std::vector<std::string> outputs() const;
  std::vector<std::string> params() const;
  std::vector<std::string> states() const;
  TensorType type(const std::string& external) const;

  // Parameters without a path to the loss, or frozen: left untouched, decay included.
  std::vector<std::string> untrained() const;

  // The address of an external on the program's device: fixed for life. To be used in the order of StepOptions::stream,
  // or after wait(). Throws Error as read() does.
  void* address(const std::string& external) const;

  // `stage`: model, grad, step, passes, opt, plan, memory, graph. `format`: text, dot or json (plan: all three; the
  // others: text and dot). Throws Error naming the stages or formats there are.
  std::string dump(const std::string& stage, const std::string& format = "text") const;
  MemoryTotals memory() const;
  int launches() const;
  GraphInfo graph() const;
  std::string backend() const;
  uint64_t hash() const;

  void set_mode(Mode mode);
  Mode mode() const;

  class Impl;
  explicit Program(std::shared_ptr<Impl> impl) : impl_(std::move(impl)) {}
  const std::shared_ptr<Impl>& impl() const { return impl_; }

 private:
  std::shared_ptr<Impl> impl_;
};

struct CompileOptions {
  // Differentiated when given. With an optimizer, each step updates the parameters; the output "loss" is added.
  Value loss = {};
  optim::Optimizer optimizer = {};
  // What the step returns besides the loss, which may be listed too. Empty: the model's own outputs.
  std::vector<std::pair<std::string, Value>> outputs = {};
  // Whether the model's own state updates (Model::update) run. Default: yes with a loss, and when `outputs` is empty
  // too (the model's step as declared); no for a program that only computes `outputs` (an evaluation).
  std::optional<bool> updates = {};
  // Whether dropout drops, and the state `rng.offset` moves on by 1 a step, so that each step has masks of its own.
  // Default: where `updates` run.
  std::optional<bool> training = {};
  // More values to return, by name: an external (its value before the step), a labelled value, NAME.grad of a
  // parameter.
  std::vector<std::string> fetch = {};
  // auto, cpu or cuda. auto: what the environment variable AICF_BACKEND names, else cuda where it can be used, else
  // cpu.
  std::string backend = "auto";
  Mode mode = Mode::graph;
  // f32, tf32, bf16 or f16: what the factors of matrix products are rounded to; Error on another. Sums, norms, losses,
  // params, their gradients, the optimizer and outputs are f32 always; bf16 and f16 also keep the values between
  // products in that dtype, and a copy NAME.bf16 or NAME.f16 of each param that a product reads, written with it.
  std::string precision = "f32";
  // What a step does between gradients and update: it divides them by the loss scale, checks them, clips them. These
  // need an optimizer. NAME.grad of a parameter, where fetched, is divided by the scale and not clipped.
  //
  // Whether the loss is scaled as `loss_scale` says. Default: with precision f16.
  std::optional<bool> scale_loss = {};
  optim::LossScale loss_scale = {};
  // Whether a step with a gradient that is infinite or NaN, of any parameter, is skipped: it changes nothing but
  // rng.offset, loss_scale.*, grad_norm and the counter steps.skipped (i64). Default: where the loss is scaled or
  // clip_norm given. A scaled loss needs it.
  std::optional<bool> skip_nonfinite = {};
  // At most this L2 norm, of all gradients together: g·min(1, clip_norm / norm). The states optimizer.clip_norm, and
  // grad_norm: the last step's norm before clipping, infinity for a NaN. A norm that is not finite (beyond 1.8e19 its
  // square is not) counts as a gradient that is not. Infinity: the norm is computed, and nothing clipped.
  std::optional<double> clip_norm = {};
  // Each element into [-clip_value, clip_value], after clip_norm. The state optimizer.clip_value.
  std::optional<double> clip_value = {};
  // In [0, 1): the state ema/NAME averages the parameter's values, ema_decay·average + (1 - ema_decay)·value after each
  // step, from the first value it sees. The state optimizer.ema_decay.
  std::optional<double> ema_decay = {};
  // For a program that trains nothing and shares the store of one with ema_decay: it computes with the averages, of the
  // parameters that have one (before the first step: with the parameters).
  bool use_ema = false;
  // More than 1: the model's batch is a micro-batch, of which a step takes so many, one after another: the first axis
  // of each input is so many times as long. The gradients of the sum of the loss's elements add up in one buffer a
  // parameter and are divided by the number of elements that count (of labels, those not ignored), so that it does not
  // matter how the examples are split. The output loss is that of all; any other output or fetched value holds the
  // micro-batches' rows one after another. Each draws for itself; states that the model updates go from one to the
  // next. The loss must be a mean or a sum that shows: cross_entropy, mse, mean(), sum(), or a multiple of one.
  int64_t micro_batches = 1;
  // Inputs without a batch axis: every micro-batch reads all of them.
  std::vector<std::string> shared_inputs = {};
  // True: the cotangent of the loss is an input `grad_initial` of the loss's type instead of 1.
  bool grad_initial_input = false;
  // Use the store of this program: the same params and states. What the store holds keeps its value; params that it
  // lacks are added. Throws Error, the store unchanged, on an external of another type, a state declared to start
  // otherwise (another learning rate, say), or a group that another selection or optimizer trains already.
  Program share = {};
  // With `share` and an optimizer: this program takes the training of the store over, with whatever optimizer,
  // selection, clipping or precision. Params, the model's states and the optimizer's that both have keep their values;
  // a state declared to start otherwise starts so, and a group's counter and tensors start anew when one of its tensors
  // is new. States of the training that this program lacks are gone. Every other program that trains the store is stale
  // from now on, and so is one that reads what is gone: it throws Error that says so, instead of a step.
  bool reconfigure = false;
  std::vector<std::string> freeze = {};          // parameters not to train
  std::vector<std::string> disable_passes = {};  // Error on an unknown or required pass
  bool alias = true;
  bool reuse = true;
  // Where several kernel variants fit: choose by timing them (CUDA matmuls), within `tune_budget` seconds, instead of
  // by the backend's estimate. The choices are kept on disk.
  bool tune = false;
  double tune_budget = 2;
  // Of a checkpoint, its `kernels` and `backend`: the matrix products that `kernels` names run by the variants it
  // names, where they were chosen by this device and these libraries and still run. All others are chosen as ever.
  std::map<std::string, std::string> kernels = {};
  std::string kernels_of = {};
  int threads = 0;  // CPU: 0 is one for each available core
};

// Builds the step, optimizes, lowers, plans and proves it. Throws Error on what cannot be compiled, naming op and path.
Program compile(Model& model, const CompileOptions& options = {});

// Distinct compiled plans held by the process-wide cache, and dropping them (running programs keep theirs).
size_t compile_cache_size();
void clear_compile_cache();

}  // namespace aicf
