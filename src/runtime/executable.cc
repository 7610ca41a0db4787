#include "runtime/executable.h"

#include <algorithm>
#include <random>
#include <sstream>

#include "aicf/error.h"
#include "ir/op.h"

namespace aicf::runtime {
namespace {

bool is_private(const ir::ValueInfo& info) { return info.attrs.get_bool("private"); }

bool is_used(const ir::Graph& graph, ir::ValueId id) {
  const auto is = [id](ir::ValueId v) { return v == id; };
  return std::any_of(graph.ops().begin(), graph.ops().end(),
                     [&](const ir::Op& op) { return std::any_of(op.inputs.begin(), op.inputs.end(), is); }) ||
         std::any_of(graph.outputs().begin(), graph.outputs().end(),
                     [&](const ir::Output& o) { return is(o.value); }) ||
         std::any_of(graph.updates().begin(), graph.updates().end(),
                     [&](const ir::Update& u) { return is(u.value) || is(u.guard); });
}

}  // namespace

Executable::Executable(std::shared_ptr<const Compiled> compiled, Store& store, int threads)
    : compiled_(std::move(compiled)), store_(store), threads_(threads) {
  bind_buffers();
  bind_launches();
  error_ = private_state("inputs.error");
  error_step_ = private_state("inputs.error_step");
}

void Executable::bind_buffers() {
  backend::Backend& backend = store_.backend();
  const ir::Graph& graph = compiled_->graph;
  for (ir::ValueId id = 0; id < graph.num_values(); ++id) {
    const ir::ValueInfo& info = graph.value(id);
    if ((info.role == ir::Role::param || info.role == ir::Role::state) && !is_private(info)) {
      const bool derived = compiled_->step.find_derivation(compiled_->step.find_external(info.name)) != nullptr;
      const bool of_model = compiled_->model.find_external(info.name) != ir::kNoValue;
      const std::shared_ptr<External> external = store_.declare(info, derived, of_model);
      if (is_used(graph, id) || graph.find_update(id) >= 0) externals_.push_back(external);
    }
  }
  auto* arena = static_cast<char*>(store_.arena(plan().arena_bytes));
  for (const plan::Buffer& buffer : plan().buffers) {
    if (is_input(buffer)) inputs_.push_back({nullptr, buffer.bytes});
  }
  const backend::HostLayout layout = backend::host_layout(inputs_);
  memory_.emplace_back(backend, layout.bytes);
  for (size_t i = 0; i < inputs_.size(); ++i) {
    inputs_[i].address = static_cast<char*>(memory_.back().data()) + layout.offsets[i];
  }
  size_t next_input = 0;
  for (const plan::Buffer& buffer : plan().buffers) {
    void* address = nullptr;
    switch (buffer.home) {
      case plan::Home::arena:
        address = arena == nullptr ? nullptr : arena + buffer.offset;
        break;
      case plan::Home::external: {
        const ir::ValueInfo& info = graph.value(buffer.owner);
        if (info.role != ir::Role::input && !is_private(info)) {
          address = store_.find(info.name)->memory.data();
          break;
        }
        if (is_input(buffer)) {
          address = inputs_[next_input++].address;
        } else {
          memory_.emplace_back(backend, info.type.bytes());
          address = memory_.back().data();
        }
        own_.push_back({info.name, info.role, info.type, address, is_used(graph, buffer.owner)});
        break;
      }
      case plan::Home::constant: {
        memory_.emplace_back(backend, buffer.bytes);
        address = memory_.back().data();
        store_.queue().upload(address, graph.value(buffer.owner).data->data(), buffer.bytes);
        break;
      }
      case plan::Home::fetched: {
        memory_.emplace_back(backend, buffer.bytes);
        address = memory_.back().data();
        break;
      }
    }
    addresses_.push_back(address);
  }
}

void Executable::bind_launches() {
  const size_t count = plan().launches.size();
  launch_buffers_.reserve(count);
  for (size_t i = 0; i < count; ++i) {
    const plan::Launch& launch = plan().launches[i];
    std::vector<void*> buffers;
    for (plan::BufferId b : launch.reads) buffers.push_back(address(b));
    for (plan::BufferId b : launch.writes) buffers.push_back(address(b));
    if (launch.workspace != plan::kNoBuffer) buffers.push_back(address(launch.workspace));
    launch_buffers_.push_back(std::move(buffers));
    backend::BoundLaunch bound;
    bound.kernel = &launch.kernel;
    bound.buffers = launch_buffers_.back().data();
    if (launch.guard != plan::kNoBuffer) bound.guard = static_cast<const uint8_t*>(address(launch.guard));
    launches_.push_back(bound);
  }
}

bool Executable::is_input(const plan::Buffer& buffer) const {
  return buffer.home == plan::Home::external && compiled_->graph.value(buffer.owner).role == ir::Role::input;
}

void Executable::make_runner(Mode mode) {
  backend::StepSpec spec;
  spec.inputs = inputs_;
  spec.threads = threads_;
  spec.error = static_cast<const int64_t*>(error_);
  spec.error_named = static_cast<const int64_t*>(error_step_);
  spec.keep = compiled_;
  spec.check = [compiled = compiled_](const backend::CapturedGraph& graph) {
    plan::check_captured(compiled->graph, compiled->plan, graph);
  };
  for (plan::BufferId b : plan().outputs)
    spec.outputs.push_back({address(b), plan().buffers[static_cast<size_t>(b)].bytes});
  for (size_t i = 0; i < launches_.size(); ++i) {
    const plan::Launch& launch = plan().launches[i];
    backend::StepLaunch step{launches_[i], launch.name, {}, false};
    for (plan::BufferId b : launch.reads) step.reads_input |= is_input(plan().buffers[static_cast<size_t>(b)]);
    if (launch.guard != plan::kNoBuffer)
      step.reads_input |= is_input(plan().buffers[static_cast<size_t>(launch.guard)]);
    spec.launches.push_back(std::move(step));
  }
  for (const plan::Edge& edge : plan().edges) {
    std::vector<int>& predecessors = spec.launches[static_cast<size_t>(edge.to)].predecessors;
    // Sorted by (from, to): a pair's hazards follow one another.
    if (predecessors.empty() || predecessors.back() != edge.from) predecessors.push_back(edge.from);
  }
  runner_ = store_.queue().make_runner(std::move(spec), mode);
}

Executable::~Executable() {
  try {
    store_.queue().wait();  // memory that work in flight uses is not given back
  } catch (const std::exception&) {
    // The device failed: whoever uses it next is told.
  }
}

void Executable::run() { store_.queue().run(launches_, threads_); }

void* Executable::private_state(std::string_view name) const {
  for (const OwnExternal& own : own_) {
    if (own.role == ir::Role::state && own.name == name) return own.address;
  }
  return nullptr;
}

std::string Executable::check_message(int64_t code) const {
  const ir::Graph& graph = compiled_->graph;
  std::istringstream lines(graph.value(graph.find_external("inputs.error")).attrs.get_string("checks"));
  std::string line;
  for (int64_t i = 0; i < code; ++i) std::getline(lines, line);
  return line;
}

std::string Executable::message_of(const backend::InputFault& fault) const {
  const int64_t step = fault.named > 0 ? fault.named : static_cast<int64_t>(fault.step);
  return check_message(fault.code) + (step > 0 ? " at step " + std::to_string(step) : "") + "; nothing was updated";
}

void Executable::clear_input_error() {
  backend::Queue& queue = store_.queue();
  const int64_t zero = 0;
  if (error_step_ != nullptr) queue.upload(error_step_, &zero, sizeof zero);
  queue.upload(error_, &zero, sizeof zero);
  queue.wait();
  if (runner_ != nullptr) runner_->clear_fault();
}

void Executable::throw_on_input_error() {
  if (error_ == nullptr) return;
  int64_t code = 0;
  store_.queue().download(&code, error_, sizeof code);
  if (code == 0) return;
  clear_input_error();
  throw Error(message_of({code, 0, 0}));
}

bool Executable::makes_stale(const Executable& other) const {
  const ir::Graph& mine = compiled_->graph;
  const auto updates = [&](const std::string& name) {
    const ir::ValueId id = mine.find_external(name);
    return id != ir::kNoValue && mine.find_update(id) >= 0;
  };
  const ir::Graph& step = other.compiled_->step;
  for (const ir::Derivation& d : step.derivations()) {
    if (updates(step.value(d.state).name)) continue;
    const std::vector<ir::ValueId> sources = ir::externals_of(step, d.value);
    const auto updated = [&](ir::ValueId v) { return updates(step.value(v).name); };
    if (std::any_of(sources.begin(), sources.end(), updated)) return true;
  }
  return false;
}

std::vector<int> random_order(const plan::ExecPlan& plan, uint64_t seed) {
  const size_t count = plan.launches.size();
  std::vector<std::vector<int>> next(count);
  std::vector<int> waiting(count, 0);
  int from = -1, to = -1;
  for (const plan::Edge& edge : plan.edges) {
    if (edge.from == from && edge.to == to) continue;  // sorted: one count a pair, whatever its hazards
    from = edge.from;
    to = edge.to;
    next[static_cast<size_t>(from)].push_back(to);
    ++waiting[static_cast<size_t>(to)];
  }
  std::vector<int> ready, order;
  for (size_t i = 0; i < count; ++i) {
    if (waiting[i] == 0) ready.push_back(static_cast<int>(i));
  }
  std::mt19937_64 random(seed);
  while (!ready.empty()) {
    const size_t pick = random() % ready.size();
    const int launch = ready[pick];
    ready[pick] = ready.back();
    ready.pop_back();
    order.push_back(launch);
    for (int n : next[static_cast<size_t>(launch)]) {
      if (--waiting[static_cast<size_t>(n)] == 0) ready.push_back(n);
    }
  }
  if (order.size() != count) throw InternalError("random_order: the plan's edges have a cycle");
  return order;
}

}  // namespace aicf::runtime
