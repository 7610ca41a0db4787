// Executable: one plan bound to one store: every address decided, ready to run in any mode.
#pragma once

#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "aicf/program.h"
#include "ir/graph.h"
#include "plan/plan.h"
#include "runtime/store.h"

namespace aicf::runtime {

// What compile() made: immutable, shared by every program with the same content.
struct Compiled {
  ir::Graph model;  // as declared
  ir::Graph grad;   // with outputs, the precision's casts, and backward
  ir::Graph step;   // with updates, and all derived states: the model's and compute copies
  ir::Graph graph;  // after the passes: what the plan is of
  plan::ExecPlan plan;
  std::vector<std::string> untrained;
  std::vector<TrainedGroup> groups;
  std::vector<std::string> disabled_passes;
  backend::Choices kernels;  // what each matrix product is computed by
  uint64_t hash = 0;
};

// An external that belongs to this executable alone: inputs, and private states.
struct OwnExternal {
  std::string name;
  ir::Role role = ir::Role::input;
  TensorType type;
  void* address = nullptr;
  bool used = true;  // an input this program never reads need not be fed
};

class Executable {
 public:
  // Declares the graph's params and states in the store. REQUIRES the store's mutex.
  Executable(std::shared_ptr<const Compiled> compiled, Store& store, int threads);
  Executable(const Executable&) = delete;
  Executable& operator=(const Executable&) = delete;
  ~Executable();

  const Compiled& compiled() const { return *compiled_; }
  const plan::ExecPlan& plan() const { return compiled_->plan; }
  Store& store() { return store_; }

  // Makes the runner, capturing in graph mode: throws Error naming the launch that cannot be captured.
  void make_runner(Mode mode);
  const std::shared_ptr<backend::StepRunner>& runner() const { return runner_; }

  // The bound list, in plan order, on the store's queue. REQUIRES the store's mutex, as all that runs.
  void run();
  // What to tell the user of a fault.
  std::string message_of(const backend::InputFault& fault) const;
  // Waits for what is in flight and clears the words of the input checks.
  void clear_input_error();
  // For what ran by run(): throws Error when a label or index was out of range, told once.
  void throw_on_input_error();
  // True when a run may leave a state stale that `other`, a refresher, derives: it updates a source of it, not itself.
  bool makes_stale(const Executable& other) const;

  const std::vector<OwnExternal>& own() const { return own_; }
  // Of the store, read or updated here: kept for as long as the launches name their addresses.
  const std::vector<std::shared_ptr<External>>& externals() const { return externals_; }
  void* address(plan::BufferId buffer) const { return addresses_[static_cast<size_t>(buffer)]; }

 private:
  bool is_input(const plan::Buffer& buffer) const;
  void bind_buffers();
  void bind_launches();
  void* private_state(std::string_view name) const;  // null when there is none
  std::string check_message(int64_t code) const;

  std::shared_ptr<const Compiled> compiled_;
  Store& store_;
  int threads_;
  std::vector<Allocation> memory_;  // inputs, private states, constants, fetched buffers
  std::vector<OwnExternal> own_;
  std::vector<std::shared_ptr<External>> externals_;
  std::vector<void*> addresses_;  // by buffer
  std::vector<std::vector<void*>> launch_buffers_;
  std::vector<backend::BoundLaunch> launches_;
  std::vector<backend::Block> inputs_;  // one block, in the order of own()
  std::shared_ptr<backend::StepRunner> runner_;
  void* error_ = nullptr;  // of the input checks, or null
  void* error_step_ = nullptr;
};

// A permutation of the launches that keeps every edge, drawn with this seed.
std::vector<int> random_order(const plan::ExecPlan& plan, uint64_t seed);

}  // namespace aicf::runtime
