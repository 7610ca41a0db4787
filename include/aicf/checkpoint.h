// Checkpoints: all that a training run needs to go on as if it had not stopped, in one safetensors file.
// docs/checkpoints.md describes the file.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "aicf/data.h"
#include "aicf/program.h"
#include "aicf/safetensors.h"
#include "aicf/tensor.h"

namespace aicf {

// Where a run's data stands: the loader's next batch, and the size of the data set that this is a place in.
struct DataPosition {
  LoaderState next;
  int64_t examples = 0;

  bool operator==(const DataPosition&) const = default;
};

// A run between two steps, in host memory.
struct Checkpoint {
  // Every param and state that is not derived, in its own dtype, named as in Program::read. Random draws are among them
  // (rng.seed, rng.offset), and so are the schedule and every hyper-parameter.
  NamedTensors tensors;
  std::optional<int64_t> step;       // steps done
  std::optional<DataPosition> data;  // none: saved without a loader or an attached data set
  // Of the step that saved it: a hash of what it updates and how (model, optimizer, schedule, precision, batch),
  // initial values and outputs left out.
  std::optional<uint64_t> structure;
  std::string backend;  // what it ran on
  // The choice table: what each matrix product was computed by. CompileOptions::kernels takes it, and kernels_of the
  // backend.
  std::map<std::string, std::string> kernels;
  std::map<std::string, std::string> notes;  // the caller's own; no key begins with "aicf."

  bool operator==(const Checkpoint&) const = default;
};

struct CheckpointOptions {
  // Its position is saved; default: that of the data set attached to the program, if there is one.
  const Loader* loader = nullptr;
  std::optional<int64_t> step = {};  // default: the state steps.applied, or 0 where there is none
  std::map<std::string, std::string> notes = {};
};

struct RestoreOptions {
  // Continues where the saved one stood; default: the data set attached to the program does. A loader may go on where
  // an attached data set stood, and the other way round. With neither, the checkpoint must have been saved without.
  Loader* loader = nullptr;
  // What may be missing or differ: it then keeps the value it has. "rng" (rng.seed and rng.offset), "step" (the number,
  // steps.applied and optimizer.step of every group), "data" (the loader's position), "structure", "checksum", or the
  // name of a tensor that either side lacks. Error on any other.
  std::vector<std::string> waive = {};
};

struct Restored {
  std::optional<int64_t> step;  // none: missing, and waived
  std::map<std::string, std::string> notes;
  // A line for each thing that was otherwise when it was saved, to be shown: the backend and the variants of matrix
  // products (the last bits of the steps that follow may then differ), and the hyper-parameters, of which the saved
  // value is now in force.
  std::vector<std::string> differences;
};

// A copy of the run: what comes after does not wait for it to be written. Throws Error as snapshot() does, and on a
// note whose key begins with "aicf.".
Checkpoint take_checkpoint(const Program& program, const CheckpointOptions& options = {});

// Atomic and durable, as write_safetensors; throws Error as it does, naming the path and what the system said.
void write_checkpoint(const std::string& path, const Checkpoint& checkpoint);

// Throws Error, naming the file and what is wrong, on anything that read_safetensors refuses, a file that is no
// checkpoint, one of a later version, malformed metadata, and contents that do not have the checksum they were saved
// with. `waive`: as in RestoreOptions.
Checkpoint read_checkpoint(const std::string& path, const std::vector<std::string>& waive = {});
// The same of a file that was read already; `name` stands for it in messages.
Checkpoint checkpoint_of(Safetensors file, const std::string& name, const std::vector<std::string>& waive = {});
bool is_checkpoint(const Safetensors& file);

// All or nothing. Everything is checked before anything is copied: throws Error, with program and loader as they were,
// on a tensor that is missing, unknown or of another type (named, expected and got), a missing step, structure or data
// position, another structure, a position outside the loader's data set — but for what is waived. Derived states are
// refreshed. A checkpoint fits any backend.
Restored restore_checkpoint(Program& program, const Checkpoint& checkpoint, const RestoreOptions& options = {});

void save_checkpoint(const Program& program, const std::string& path, const CheckpointOptions& options = {});
Restored load_checkpoint(Program& program, const std::string& path, const RestoreOptions& options = {});

struct CheckpointFile {
  std::string path;
  int64_t step = 0;
};

// The checkpoints of one run: checkpoint-STEP.safetensors in a folder of its own, the newest few kept. Used from one
// thread at a time.
class CheckpointFolder {
 public:
  // Makes the folder when there is none, and removes temporary files that a killed process left in it. `keep`: so many
  // of the newest are kept; 0: all. Throws Error when another process has the folder, or it cannot be written.
  explicit CheckpointFolder(const std::string& path, int keep = 3);
  // Waits for what is being written; its error is lost, unless wait() was called.
  ~CheckpointFolder();
  CheckpointFolder(CheckpointFolder&&) noexcept;
  CheckpointFolder& operator=(CheckpointFolder&&) noexcept;

  // Writes it, then removes the oldest beyond `keep`. Throws Error when it has no step, or writing fails: those written
  // before are untouched.
  void save(const Checkpoint& checkpoint);
  // The same by a thread of its own. At most one is being written: the next call waits for it. What it throws, the next
  // call of save(), save_in_background() or wait() throws instead of doing its work.
  void save_in_background(Checkpoint checkpoint);
  void wait();

  // Newest first.
  std::vector<CheckpointFile> files() const;

  struct Newest {
    CheckpointFile file;
    Checkpoint checkpoint;
    std::vector<std::string> damaged;  // what is wrong with each newer one, newest first
  };
  // The newest that reads without error. Damaged newer ones are renamed to NAME.damaged, so that what is saved from
  // here on is the newest again. Throws Error when there is none, saying what is wrong with the newest, and when a
  // newer one cannot be opened or is of a later version: that one is whole. `waive`: as in RestoreOptions.
  Newest newest(const std::vector<std::string>& waive = {});

 private:
  class Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace aicf
