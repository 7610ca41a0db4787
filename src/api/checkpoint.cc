// A run saved and restored: what belongs to one, and what must be right before anything is copied.
#include "aicf/checkpoint.h"

#include <fmt/format.h>

#include <algorithm>
#include <set>
#include <string_view>
#include <utility>

#include "aicf/error.h"
#include "aicf/safetensors.h"
#include "aicf/suggest.h"
#include "api/examples.h"
#include "api/machine.h"
#include "base/hash.h"
#include "io/bytes.h"
#include "io/checkpoint_format.h"
#include "ir/op.h"
#include "ir/text.h"
#include "passes/input_checks.h"
#include "runtime/program.h"

namespace aicf {
namespace {

using Impl = Program::Impl;

Impl& impl_of(const Program& program, const char* call) {
  if (!program.valid()) throw Error(fmt::format("{}: use of an empty Program", call), "compile() makes one");
  Impl& impl = *program.impl();
  const std::lock_guard<std::mutex> lock(impl.store()->mutex());
  impl.require_current(call);
  return impl;
}

// What the updates are, and of what: initial values are the caller's to change, outputs his to choose.
uint64_t structure_of(const ir::Graph& step) {
  std::vector<bool> live(static_cast<size_t>(step.num_values()), false);
  const auto mark = [&](ir::ValueId v) {
    if (v != ir::kNoValue) live[static_cast<size_t>(v)] = true;
  };
  for (const ir::Update& u : step.updates()) {
    mark(u.value);
    mark(u.guard);
  }
  std::vector<bool> kept(static_cast<size_t>(step.num_ops()), false);
  for (ir::OpId id = step.num_ops() - 1; id >= 0; --id) {
    const ir::Op& op = step.op(id);
    const bool needed =
        std::any_of(op.outputs.begin(), op.outputs.end(), [&](ir::ValueId v) { return live[static_cast<size_t>(v)]; });
    if (!needed) continue;
    kept[static_cast<size_t>(id)] = true;
    for (ir::ValueId v : op.inputs) mark(v);
  }
  ir::Graph graph;
  std::vector<ir::ValueId> map(live.size(), ir::kNoValue);
  for (ir::ValueId id = 0; id < step.num_values(); ++id) {
    const ir::ValueInfo& v = step.value(id);
    if (v.role == ir::Role::constant) {
      if (live[static_cast<size_t>(id)]) map[static_cast<size_t>(id)] = graph.add_constant(v.data, v.name);
    } else if (step.is_external(id) && (v.role != ir::Role::input || live[static_cast<size_t>(id)])) {
      ir::Attrs attrs = v.attrs;
      attrs.erase("init");
      map[static_cast<size_t>(id)] = graph.add_external(v.role, v.name, v.type, std::move(attrs));
    }
  }
  const auto mapped = [&](ir::ValueId v) { return v == ir::kNoValue ? v : map[static_cast<size_t>(v)]; };
  for (ir::OpId id = 0; id < step.num_ops(); ++id) {
    if (!kept[static_cast<size_t>(id)]) continue;
    const ir::Op& op = step.op(id);
    std::vector<ir::ValueId> inputs;
    for (ir::ValueId v : op.inputs) inputs.push_back(mapped(v));
    const ir::OpId copy = graph.add_op(*op.def, std::move(inputs), op.attrs, op.region);
    for (size_t i = 0; i < op.outputs.size(); ++i) {
      map[static_cast<size_t>(op.outputs[i])] = graph.op(copy).outputs[i];
    }
  }
  for (const ir::Update& u : step.updates()) graph.add_update(mapped(u.target), mapped(u.value), mapped(u.guard));
  return ir::structural_hash(graph);
}

constexpr std::string_view kRng[] = {"rng.seed", "rng.offset"};

bool is_step_counter(std::string_view name) {
  if (name == passes::kStepsApplied || name == passes::kStepsSkipped) return true;
  return name.starts_with("optimizer.") && name.ends_with(".step") && name.find('/') == std::string_view::npos;
}

class Waivers {
 public:
  explicit Waivers(const std::vector<std::string>& names) : names_(names) {}

  bool has(std::string_view name) const { return std::find(names_.begin(), names_.end(), name) != names_.end(); }
  bool covers_tensor(std::string_view name) const {
    if (has(name)) return true;
    if (std::find(std::begin(kRng), std::end(kRng), name) != std::end(kRng)) return has("rng");
    return is_step_counter(name) && has("step");
  }
  // Throws Error on a name that is none of the things that can be waived.
  void check(const std::vector<std::string>& tensors) const {
    std::vector<std::string> known = {"rng", "step", "data", "structure", io::kWaiveChecksum};
    known.insert(known.end(), tensors.begin(), tensors.end());
    for (const std::string& name : names_) {
      if (std::find(known.begin(), known.end(), name) != known.end()) continue;
      throw Error(
          fmt::format("waive: {} is neither rng, step, data, structure, checksum nor a tensor's name", io::quote(name)),
          base::did_you_mean(name, known));
    }
  }

 private:
  const std::vector<std::string>& names_;
};

struct Known {
  std::string name;
  TensorType type;
  ir::Role role;
};

std::vector<Known> saved_externals(Impl& impl) {
  const std::lock_guard<std::mutex> lock(impl.store()->mutex());
  std::vector<Known> list;
  for (const auto& e : impl.store()->externals()) {
    if (!e->derived) list.push_back({e->name, e->type, e->role});
  }
  return list;
}

// Throws Error when the tensors are not the program's.
void check_tensors(const Checkpoint& checkpoint, const std::vector<Known>& known, const Waivers& waivers) {
  std::map<std::string_view, const Known*> by_name;
  std::vector<std::string> names;
  for (const Known& k : known) {
    by_name.emplace(k.name, &k);
    names.push_back(k.name);
  }
  std::set<std::string_view> given;
  for (const auto& [name, tensor] : checkpoint.tensors) {
    if (!given.insert(name).second) throw Error(fmt::format("checkpoint: {} is there twice", io::quote(name)));
    const auto it = by_name.find(name);
    if (it == by_name.end()) {
      if (waivers.covers_tensor(name)) continue;
      throw Error(fmt::format("checkpoint: {} : {} is saved, and no param or state has the name", io::quote(name),
                              to_string(tensor.type())),
                  base::did_you_mean(name, names));
    }
    if (it->second->type != tensor.type()) {
      throw Error(fmt::format("checkpoint: {} '{}': expected {}, got {}", ir::name_of(it->second->role), name,
                              to_string(it->second->type), to_string(tensor.type())));
    }
  }
  for (const Known& k : known) {
    if (given.count(k.name) || waivers.covers_tensor(k.name)) continue;
    throw Error(fmt::format("checkpoint: {} '{}' : {} is missing", ir::name_of(k.role), k.name, to_string(k.type)),
                fmt::format("waive \"{}\" to keep the value it has", k.name));
  }
}

// What hands out a run's batches: a loader, or else the data set attached to the program.
class Batches {
 public:
  Batches(const Program& program, const Loader* loader)
      : program_(program),
        loader_(loader),
        examples_(loader != nullptr ? loader->examples() : api::attached_examples(*program.impl())) {}

  // Nothing: there are none.
  const std::optional<int64_t>& examples() const { return examples_; }
  // REQUIRES: examples().
  LoaderState state() const { return loader_ != nullptr ? loader_->state() : program_.position(); }

 private:
  const Program& program_;
  const Loader* loader_;
  std::optional<int64_t> examples_;
};

void go_to(const LoaderState& at, Program& program, Loader* loader) {
  loader != nullptr ? loader->set_state(at) : program.set_position(at);
}

// Where the data is to go on; none: it stays.
std::optional<LoaderState> checked_position(const Checkpoint& checkpoint, const Batches& batches,
                                            const Waivers& waivers) {
  const std::optional<DataPosition>& data = checkpoint.data;
  const auto refuse = [](const std::string& message, const char* hint) { throw Error("checkpoint: " + message, hint); };
  if (!batches.examples()) {
    if (data && !waivers.has("data")) {
      refuse("a data position is saved, and no loader is given to continue there",
             "give RestoreOptions::loader or attach the data set, or waive \"data\"");
    }
    return std::nullopt;
  }
  if (!data) {
    if (!waivers.has("data")) {
      refuse("the data position is missing", "waive \"data\" to leave the loader where it is");
    }
    return std::nullopt;
  }
  if (data->examples != *batches.examples() || data->next.epoch < 0 || data->next.position < 0 ||
      data->next.position > data->examples) {
    if (waivers.has("data")) return std::nullopt;
    refuse(fmt::format("expected a data position among the {} examples here, got {} of {}", *batches.examples(),
                       data->next.position, data->examples),
           "the data set is another; waive \"data\" to leave the loader where it is");
  }
  return data->next;
}

void check_structure(const Checkpoint& checkpoint, uint64_t structure, const Waivers& waivers) {
  if (waivers.has("structure")) return;
  if (!checkpoint.structure) {
    throw Error("checkpoint: the structure of the step that saved it is missing", "waive \"structure\" to go on");
  }
  if (*checkpoint.structure == structure) return;
  throw Error(fmt::format("checkpoint: expected one of this step (structure {:016x}), got one of another ({:016x})",
                          structure, *checkpoint.structure),
              "the model, optimizer, schedule, precision or batch size differs; waive \"structure\" to load it anyway");
}

// The shortest text that reads back as the element.
std::string text_of(const Tensor& scalar) {
  return scalar.dtype() == f32 ? fmt::format("{}", *scalar.as<float>()) : fmt::format("{}", scalar.item());
}

// Hyper-parameters: states that no step changes.
void compare_constants(const Program& program, const NamedTensors& saved, std::vector<std::string>& differences) {
  const ir::Graph& step = program.impl()->compiled().step;
  for (const auto& [name, tensor] : saved) {
    const ir::ValueId id = step.find_external(name);
    if (id == ir::kNoValue || step.value(id).role != ir::Role::state || step.find_update(id) >= 0) continue;
    const Tensor here = program.read(name);
    if (here == tensor) continue;
    differences.push_back(here.elements() == 1
                              ? fmt::format("{} is {} as saved, not {}", name, text_of(tensor), text_of(here))
                              : fmt::format("{} is as saved", name));
  }
}

void compare_machines(const Impl& impl, const Checkpoint& checkpoint, std::vector<std::string>& differences) {
  // Of a file: quoted, so that nothing in it reaches a terminal as it is.
  if (const std::string here = api::machine_of(impl.store()->backend()); here != checkpoint.backend) {
    differences.push_back(fmt::format("saved by {}, continued by {}", io::quote(checkpoint.backend), io::quote(here)));
  }
  int count = 0;
  std::string first;
  // Without what only makes the choice again: ": ALGORITHM".
  const auto shown = [](const std::string& choice) { return choice.substr(0, choice.find(": ")); };
  for (const auto& [product, variant] : impl.compiled().kernels) {
    const auto it = checkpoint.kernels.find(product);
    if (it != checkpoint.kernels.end() && it->second == variant) continue;
    if (count++ > 0) continue;
    first = fmt::format("{}: {}, not {}", product, shown(variant),
                        it == checkpoint.kernels.end() ? "one saved" : io::quote(shown(it->second)));
  }
  if (count > 0) {
    differences.push_back(fmt::format("{} matrix product{} by other kernels than when saved ({})", count,
                                      count == 1 ? " runs" : "s run", first));
  }
}

}  // namespace

Checkpoint take_checkpoint(const Program& program, const CheckpointOptions& options) {
  const Impl& impl = impl_of(program, "take_checkpoint");
  Checkpoint c;
  c.tensors = program.snapshot();
  c.step = options.step;
  if (!c.step) {
    c.step = 0;
    for (const auto& [name, tensor] : c.tensors) {
      if (name == passes::kStepsApplied && tensor.type() == TensorType{i64, {}}) c.step = *tensor.as<int64_t>();
    }
  }
  const Batches batches(program, options.loader);
  if (batches.examples()) c.data = DataPosition{batches.state(), *batches.examples()};
  c.structure = structure_of(impl.compiled().step);
  c.backend = api::machine_of(impl.store()->backend());
  c.kernels = impl.compiled().kernels;
  c.notes = options.notes;
  io::checkpoint_metadata({{}, c.step, c.data, {}, {}, {}, c.notes}, "take_checkpoint");  // throws on a bad note
  return c;
}

void write_checkpoint(const std::string& path, const Checkpoint& checkpoint) {
  write_safetensors(path, checkpoint.tensors,
                    io::checkpoint_metadata(checkpoint, io::label_of("write_checkpoint", path)));
}

Checkpoint read_checkpoint(const std::string& path, const std::vector<std::string>& waive) {
  return io::checkpoint_of(read_safetensors(path), io::label_of("read_checkpoint", path), waive);
}

Checkpoint checkpoint_of(Safetensors file, const std::string& name, const std::vector<std::string>& waive) {
  return io::checkpoint_of(std::move(file), io::label_of("checkpoint_of", name), waive);
}

bool is_checkpoint(const Safetensors& file) { return file.metadata.count(io::kCheckpointVersion) > 0; }

Restored restore_checkpoint(Program& program, const Checkpoint& checkpoint, const RestoreOptions& options) {
  Impl& impl = impl_of(program, "restore_checkpoint");
  const Waivers waivers(options.waive);
  const std::vector<Known> known = saved_externals(impl);
  std::vector<std::string> names;
  names.reserve(known.size() + checkpoint.tensors.size());
  for (const Known& k : known) names.push_back(k.name);
  for (const auto& entry : checkpoint.tensors) names.push_back(entry.first);
  waivers.check(names);
  check_tensors(checkpoint, known, waivers);
  check_structure(checkpoint, structure_of(impl.compiled().step), waivers);
  if (!checkpoint.step && !waivers.has("step")) {
    throw Error("checkpoint: the step is missing", "waive \"step\" to go on");
  }
  const Batches batches(program, options.loader);
  const std::optional<LoaderState> position = checked_position(checkpoint, batches, waivers);

  Restored restored = {checkpoint.step, checkpoint.notes, {}};
  compare_machines(impl, checkpoint, restored.differences);
  compare_constants(program, checkpoint.tensors, restored.differences);
  std::optional<LoaderState> before;
  if (position) {
    before = batches.state();
    go_to(*position, program, options.loader);
  }
  try {
    program.load(checkpoint.tensors, {.strict = false});
  } catch (...) {
    if (before) go_to(*before, program, options.loader);
    throw;
  }
  return restored;
}

void save_checkpoint(const Program& program, const std::string& path, const CheckpointOptions& options) {
  write_checkpoint(path, take_checkpoint(program, options));
}

Restored load_checkpoint(Program& program, const std::string& path, const RestoreOptions& options) {
  const Checkpoint checkpoint = read_checkpoint(path, options.waive);
  try {
    return restore_checkpoint(program, checkpoint, options);
  } catch (const Error& e) {
    throw Error(fmt::format("{}: {}", io::label_of("load_checkpoint", path), e.what()), e.hint());
  }
}

}  // namespace aicf
