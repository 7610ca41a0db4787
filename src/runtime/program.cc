// Program: checks what is fed, runs one step, hands out snapshots.
#include "runtime/program.h"

#include <algorithm>

#include "aicf/error.h"
#include "aicf/suggest.h"
#include "base/pattern.h"

namespace aicf {
namespace {

using runtime::External;

// A (1) tensor stands for a scalar.
bool fits(const TensorType& wanted, const TensorType& got) {
  if (wanted == got) return true;
  return wanted.dtype == got.dtype && wanted.shape.rank() == 0 && got.shape == Shape{1};
}

[[noreturn]] void wrong_type(std::string_view what, std::string_view name, const TensorType& wanted,
                             const TensorType& got) {
  throw Error(std::string(what) + " '" + std::string(name) + "': expected " + to_string(wanted) + ", got " +
              to_string(got));
}

void check_tensor(std::string_view what, std::string_view name, const TensorType& wanted, const TensorView& got) {
  if (!fits(wanted, got.type)) wrong_type(what, name, wanted, got.type);
  if (got.data == nullptr && wanted.bytes() > 0) {
    throw Error(std::string(what) + " '" + std::string(name) + "' is given a null pointer");
  }
}

bool selected(const External& e, const LoadOptions& which) {
  if (e.derived || !(e.role == ir::Role::param ? which.params : which.states)) return false;
  return which.names.empty() || std::any_of(which.names.begin(), which.names.end(),
                                            [&](const std::string& p) { return base::matches(p, e.name); });
}

}  // namespace

Program::Impl::Impl(std::shared_ptr<const runtime::Compiled> compiled, std::shared_ptr<runtime::Store> store, Mode mode,
                    int threads)
    : compiled_(std::move(compiled)), store_(std::move(store)), executable_(compiled_, *store_, threads), mode_(mode) {
  for (const runtime::OwnExternal& own : executable_.own()) {
    if (own.role == ir::Role::input) inputs_.push_back({own.name, own.type, own.address, own.used});
  }
  fed_.resize(inputs_.size());
  const ir::Graph& graph = compiled_->graph;
  std::vector<std::string> names;
  std::vector<TensorType> types;
  for (const ir::Output& output : graph.outputs()) {
    names.push_back(output.name);
    types.push_back(graph.type(output.value));
  }
  executable_.make_runner(mode);
  results_ = std::make_shared<runtime::ResultPool>(store_->backend(), std::move(names), std::move(types));
}

// Without the store's mutex: a compile that fails comes here holding it.
Program::Impl::~Impl() { results_->detach(); }

void Program::Impl::joined() { joined_ = seen_ = store_->reconfigurations().size(); }

void Program::Impl::require_current(const char* call) {
  if (const size_t now = store_->reconfigurations().size(); seen_ != now) {
    seen_ = now;
    known_refreshers_ = 0;  // some may have gone
    makes_stale_ = false;
    stale_by_ = compiled_->groups.empty() ? External::kStays : joined_;
    for (const auto& e : executable_.externals()) stale_by_ = std::min(stale_by_, e->gone);
  }
  if (stale_by_ != External::kStays) throw_stale(call, stale_by_);
}

void Program::Impl::throw_stale(const char* call, size_t by) const {
  throw Error(std::string(call) + ": this program is stale: the training of its store was reconfigured (" +
                  store_->reconfigurations()[by] + ")",
              "use the program that was compiled with `reconfigure`, or compile this one again");
}

Program::Impl::Place Program::Impl::place(std::string_view name) const {
  // Inputs first, as in a feed: another program's param may have the name.
  for (const Input& input : inputs_) {
    if (input.name == name) return {ir::Role::input, input.type, input.address, nullptr};
  }
  for (const auto& e : executable_.externals()) {
    if (e->name == name && e->gone != External::kStays) throw_stale(e->name.c_str(), e->gone);
  }
  if (External* e = store_->find(name)) return {e->role, e->type, e->memory.data(), e};
  std::vector<std::string> known;
  for (const auto& e : store_->externals()) known.push_back(e->name);
  for (const Input& input : inputs_) known.push_back(input.name);
  if (compiled_->step.find(name) != ir::kNoValue) {
    throw Error("'" + std::string(name) + "' is not an external: it was fused or removed, or lives only inside a step",
                "list it in fetch at compile and read it from the step's result");
  }
  throw Error("no input, param or state is named '" + std::string(name) + "'", base::did_you_mean(name, known));
}

void Program::Impl::check_feeds(std::span<const Feed> feeds, const StepOptions& options) {
  const bool on_host = store_->backend().name() == "cpu";
  if (options.stream && on_host) throw Error("step: the CPU backend has no streams");
  std::fill(fed_.begin(), fed_.end(), 0);
  for (const Feed& feed : feeds) {
    if (feed.on_device && on_host) {
      throw Error("feed '" + std::string(feed.name) + "' is on a device, and the CPU backend has none");
    }
    if (feed.on_device && !options.stream) {
      throw Error("feed '" + std::string(feed.name) + "' is on the device, and nothing says when it is there",
                  "pass the stream that it is made on as StepOptions::stream");
    }
    size_t i = 0;
    while (i < inputs_.size() && inputs_[i].name != feed.name) ++i;
    if (i < inputs_.size()) {
      if (fed_[i]) throw Error("input '" + inputs_[i].name + "' is fed twice");
      check_tensor("input", feed.name, inputs_[i].type, feed.tensor);
      fed_[i] = 1;
      continue;
    }
    const External* e = store_->find(feed.name);
    if (e == nullptr) {
      std::vector<std::string> known;
      for (const Input& input : inputs_) known.push_back(input.name);
      const std::string near = base::did_you_mean(feed.name, known);
      std::string list;
      for (const std::string& k : known) list += (list.empty() ? "" : ", ") + k;
      throw Error("feed '" + std::string(feed.name) + "': this program has no such input",
                  near.empty() ? "its inputs are: " + (list.empty() ? "none" : list) : near);
    }
    if (options.mode != StepMode::train_reset && !options.strict_static_signature) {
      throw Error(std::string(ir::name_of(e->role)) + " '" + e->name + "' is fed, and a step copies inputs only",
                  "to copy it, use StepMode::train_reset, write() or load(); to have it checked and left alone, "
                  "StepOptions::strict_static_signature");
    }
    if (e->derived) throw Error("state '" + e->name + "' is derived from others and cannot be fed");
    if (feed.on_device) {
      throw Error(std::string(ir::name_of(e->role)) + " '" + e->name + "' is fed from the device: only inputs can be",
                  "copy it to address(\"" + e->name + "\") in the order of the step's stream");
    }
    check_tensor(ir::name_of(e->role), feed.name, e->type, feed.tensor);
    for (const Feed* earlier = feeds.data(); earlier != &feed; ++earlier) {
      if (earlier->name == feed.name) {
        throw Error(std::string(ir::name_of(e->role)) + " '" + e->name + "' is fed twice");
      }
    }
  }
  for (size_t i = 0; i < inputs_.size(); ++i) {
    if (!fed_[i] && inputs_[i].used) {
      throw Error("input '" + inputs_[i].name + "' : " + to_string(inputs_[i].type) + " is not fed");
    }
  }
}

bool Program::Impl::makes_stale() {
  const auto& refreshers = store_->refreshers();
  for (; known_refreshers_ < refreshers.size(); ++known_refreshers_) {
    makes_stale_ |= executable_.makes_stale(*refreshers[known_refreshers_]);
  }
  return makes_stale_;
}

void Program::Impl::assign(std::span<const Copy> copies) {
  backend::Queue& queue = store_->queue();
  std::vector<Tensor> old;
  if (!store_->refreshers().empty()) {
    for (const Copy& c : copies) {
      old.emplace_back(c.to->type);
      queue.download(old.back().data(), c.to->memory.data(), old.back().bytes());
    }
  }
  for (const Copy& c : copies) queue.upload(c.to->memory.data(), c.from, c.to->type.bytes());
  try {
    store_->refresh();
  } catch (const Error&) {
    for (size_t i = 0; i < old.size(); ++i) {
      queue.upload(copies[i].to->memory.data(), old[i].data(), old[i].bytes());
    }
    store_->refresh();
    throw;
  }
}

// Reports what the steps so far found out of range, and takes it.
void Program::Impl::throw_on_fault() {
  const std::shared_ptr<backend::StepRunner>& runner = executable_.runner();
  if (runner->fault().code == 0) return;
  runner->wait(0);
  const backend::InputFault fault = runner->fault();
  const std::string message = executable_.message_of(fault);
  results_->fail(fault.step, runner->started(),
                 message);  // before the words are cleared: a reader sees one or the other
  executable_.clear_input_error();
  throw Error(message);
}

StepResult Program::Impl::step(std::span<const Feed> feeds, const StepOptions& options) {
  const std::lock_guard<std::mutex> lock(store_->mutex());
  throw_on_fault();
  require_current("step");
  check_feeds(feeds, options);
  StepResult result = run(feeds, options);
  for (size_t i = 0; i < inputs_.size(); ++i) inputs_[i].fed |= fed_[i] != 0;
  return result;
}

StepResult Program::Impl::repeat() {
  const std::lock_guard<std::mutex> lock(store_->mutex());
  throw_on_fault();
  require_current("repeat");
  require_inputs("repeat");
  return run({}, {});
}

void Program::Impl::require_inputs(const char* call) const {
  for (const Input& input : inputs_) {
    if (input.used && !input.fed) {
      throw Error(std::string(call) + ": input '" + input.name + "' was never fed", "step() feeds it first");
    }
  }
}

std::vector<StepResult> Program::Impl::steps(int64_t n) {
  constexpr size_t kAtOnce = 512;  // half of a runner's window: the results of the one half are collected meanwhile
  if (n < 0) throw Error("steps: expected n >= 0, got " + std::to_string(n));
  const std::lock_guard<std::mutex> lock(store_->mutex());
  throw_on_fault();
  require_current("steps");
  if (order_of_examples_ == nullptr) require_inputs("steps");
  backend::StepRunner& runner = *executable_.runner();
  if (const std::vector<size_t> large = runner.kept_once(); !large.empty()) {
    const ir::Output& output = compiled_->graph.outputs()[large.front()];
    throw Error("steps: output '" + output.name + "' : " + to_string(compiled_->graph.type(output.value)) +
                    " is too large to be kept for every step",
                "leave it out of outputs and fetch, or call step()");
  }
  attach_results();
  std::vector<StepResult> results;
  try {
    results.reserve(static_cast<size_t>(n));
  } catch (const std::exception&) {
    throw Error("steps: no memory for the results of " + std::to_string(n) + " steps", "take fewer in a call");
  }
  backend::StepCall call;
  call.next_batch = order_of_examples_ != nullptr;
  call.mode = mode_;
  call.order = order_;
  call.after = &observer_;
  std::vector<StepResult::Block*> blocks;
  std::vector<void*> hosts;
  // What was started is done, whatever keeps the rest from it.
  const auto settle = [&, first = runner.started(), taken = batches_] {
    const uint64_t started = runner.started() - first;
    if (started == 0) return;
    if (call.next_batch) batches_ = taken + started;
    for (const backend::Examples::Column& column : examples_.columns)
      inputs_[static_cast<size_t>(column.input)].fed = true;
    if (makes_stale()) store_->refresh();
  };
  const auto start = [&] {
    const size_t count = std::min(kAtOnce, static_cast<size_t>(n) - results.size());
    blocks.clear();
    hosts.clear();
    for (size_t i = 0; i < count; ++i) {
      blocks.push_back(results_->acquire());
      results.emplace_back(blocks.back());
      hosts.push_back(blocks.back()->memory.data());
      results_->make_room(runner.started() + 1 + i);
    }
    const uint64_t last = runner.start(call, hosts);
    const bool done = runner.window() == UINT64_MAX;
    for (size_t i = 0; i < count; ++i) results_->started(blocks[i], last - count + 1 + i, done);
    if (done) throw_on_fault();
  };
  try {
    while (results.size() < static_cast<size_t>(n)) start();
  } catch (...) {
    settle();
    throw;
  }
  settle();
  return results;
}

void Program::Impl::attach(const Source& source, Order order) {
  const std::lock_guard<std::mutex> lock(store_->mutex());
  require_current("attach");
  std::vector<runtime::Allocation> rows;
  backend::Examples examples;
  examples.batch = source.batch;
  for (size_t i = 0; i < inputs_.size(); ++i) {
    const Input& input = inputs_[i];
    const auto column = std::find_if(source.columns.begin(), source.columns.end(),
                                     [&](const auto& named) { return named.first == input.name; });
    if (column == source.columns.end()) {
      if (!input.used) continue;
      std::vector<std::string> known;
      for (const auto& named : source.columns) known.push_back(named.first);
      throw Error("attach: the data set has no tensor for input '" + input.name + "'",
                  base::did_you_mean(input.name, known));
    }
    const Tensor& tensor = column->second;
    std::vector<int64_t> dims(tensor.shape().begin(), tensor.shape().end());
    dims[0] = source.batch;
    const TensorType batch = {tensor.dtype(), Shape(dims)};
    if (batch != input.type) wrong_type("attach: input", input.name, input.type, batch);
    rows.emplace_back(store_->backend(), tensor.bytes());
    store_->queue().upload(rows.back().data(), tensor.data(), tensor.bytes());
    examples.columns.push_back(
        {static_cast<int>(i), rows.back().data(), input.type.bytes() / static_cast<size_t>(source.batch)});
  }
  examples.next = std::move(order.next);
  executable_.runner()->set_examples(std::make_shared<const backend::Examples>(examples));
  rows_ = std::move(rows);  // those of before: no step in flight reads them any longer
  examples_ = std::move(examples);
  order_of_examples_ = std::move(order.kept);
  batches_ = 0;
}

void Program::Impl::reorder(const std::function<Order(const void* kept)>& make) {
  const std::lock_guard<std::mutex> lock(store_->mutex());
  Order order = make(order_of_examples_.get());
  backend::Examples examples = examples_;
  examples.next = std::move(order.next);
  executable_.runner()->set_examples(std::make_shared<const backend::Examples>(examples));
  examples_ = std::move(examples);
  order_of_examples_ = std::move(order.kept);
  batches_ = 0;
}

std::pair<std::shared_ptr<const void>, uint64_t> Program::Impl::order() {
  const std::lock_guard<std::mutex> lock(store_->mutex());
  return {order_of_examples_, batches_};
}

StepResult Program::Impl::run(std::span<const Feed> feeds, const StepOptions& options) {
  backend::StepRunner& runner = *executable_.runner();
  if (options.stream) runner.order_after(*options.stream);
  StepResult::Block* block = results_->acquire();  // first: without memory for the results nothing is run
  StepResult result(block);
  attach_results();
  copies_.clear();
  sources_.clear();
  for (const Feed& feed : feeds) {
    const auto input =
        std::find_if(inputs_.begin(), inputs_.end(), [&](const Input& i) { return i.name == feed.name; });
    if (input != inputs_.end()) {
      sources_.push_back({static_cast<int>(input - inputs_.begin()), feed.tensor.data, feed.on_device});
    } else if (options.mode == StepMode::train_reset) {
      copies_.push_back({store_->find(feed.name), feed.tensor.data});
    }
  }
  if (!copies_.empty()) assign(copies_);
  results_->make_room(runner.started() + 1);
  backend::StepCall call;
  call.feeds = sources_;
  call.mode = mode_;
  call.order = order_;
  call.after = &observer_;
  call.host = block->memory.data();
  const uint64_t step = runner.start(call);
  const bool done = runner.window() == UINT64_MAX;
  results_->started(block, step, done);
  if (done) throw_on_fault();
  if (makes_stale()) store_->refresh();
  if (options.stream) runner.order_before(*options.stream);
  return result;
}

void Program::Impl::attach_results() {
  if (attached_) return;
  // The pool outlives the program, in what it handed out.
  const auto on_fault = [self = weak_from_this()] {
    const std::shared_ptr<Impl> impl = self.lock();
    if (impl == nullptr) return;
    const std::lock_guard<std::mutex> held(impl->store_->mutex());
    try {
      impl->throw_on_fault();
    } catch (const Error&) {
      // The results of the failed steps tell.
    }
  };
  results_->attach(
      executable_.runner(), [this](const backend::InputFault& fault) { return executable_.message_of(fault); },
      on_fault);
  attached_ = true;
}

void Program::Impl::wait() {
  const std::lock_guard<std::mutex> lock(store_->mutex());
  executable_.runner()->wait(0);
  throw_on_fault();
}

void Program::Impl::set_mode(Mode mode) { mode_ = mode; }

backend::CapturedGraph Program::Impl::step_graph() {
  const std::lock_guard<std::mutex> lock(store_->mutex());
  const backend::CapturedGraph* captured = executable_.runner()->captured();
  return captured != nullptr ? *captured : plan::graph_of(compiled_->plan);
}

GraphInfo Program::Impl::graph_info() {
  const backend::CapturedGraph graph = step_graph();
  const std::lock_guard<std::mutex> lock(store_->mutex());
  return {executable_.runner()->captured() != nullptr, static_cast<int>(graph.nodes.size()), plan::critical_path(graph),
          static_cast<int>(compiled_->plan.launches.size()),
          executable_.runner()->captured() != nullptr ? executable_.runner()->steps_per_launch() : 1};
}

Tensor Program::Impl::read(std::string_view name) {
  const std::lock_guard<std::mutex> lock(store_->mutex());
  const Place p = place(name);
  Tensor tensor(p.type);
  executable_.runner()->wait(0);
  throw_on_fault();
  store_->queue().download(tensor.data(), p.address, tensor.bytes());
  return tensor;
}

void Program::Impl::write(std::string_view name, const TensorView& value) {
  const std::lock_guard<std::mutex> lock(store_->mutex());
  const Place p = place(name);
  if (p.role == ir::Role::input) throw Error("input '" + std::string(name) + "' cannot be written: feed it");
  if (p.external->derived) {
    throw Error("state '" + std::string(name) + "' is derived from others and cannot be written");
  }
  check_tensor(ir::name_of(p.role), name, p.type, value);
  const Copy copy{p.external, value.data};
  assign({&copy, 1});
}

void Program::Impl::check_names(const char* call, const LoadOptions& options) const {
  for (const std::string& pattern : options.names) {
    std::vector<std::string> known;
    bool any = false;
    for (const auto& e : store_->externals()) {
      if (e->derived) continue;
      known.push_back(e->name);
      any |= base::matches(pattern, e->name);
    }
    if (!any) {
      throw Error(std::string(call) + ": no param or state matches '" + pattern + "'",
                  base::did_you_mean(pattern, known));
    }
  }
}

LoadReport Program::Impl::load(const NamedTensors& tensors, const LoadOptions& options) {
  const std::lock_guard<std::mutex> lock(store_->mutex());
  check_names("load", options);
  std::vector<Copy> copies;
  LoadReport report;
  for (const auto& [name, tensor] : tensors) {
    External* e = store_->find(name);
    if (e != nullptr && e->derived) throw Error("load: state '" + name + "' is derived from others");
    if (e == nullptr || !selected(*e, options)) {
      if (!options.strict) {
        report.unused.push_back(name);
        continue;
      }
      std::vector<std::string> known;
      for (const auto& other : store_->externals()) {
        if (selected(*other, options)) known.push_back(other->name);
      }
      if (e != nullptr) throw Error("load: '" + name + "' is not among the tensors to load here");
      throw Error("load: no param or state is named '" + name + "'", base::did_you_mean(name, known));
    }
    if (!fits(e->type, tensor.type())) {
      wrong_type("load: " + std::string(ir::name_of(e->role)), name, e->type, tensor.type());
    }
    for (const Copy& copy : copies) {
      if (copy.to == e) throw Error("load: '" + name + "' is given twice");
    }
    copies.push_back({e, tensor.data()});
    report.loaded.push_back(name);
  }
  for (const auto& e : store_->externals()) {
    const bool given = std::any_of(copies.begin(), copies.end(), [&](const Copy& c) { return c.to == e.get(); });
    if (!selected(*e, options) || given) continue;
    if (options.strict) {
      throw Error("load: " + std::string(ir::name_of(e->role)) + " '" + e->name + "' : " + to_string(e->type) +
                  " is missing");
    }
    report.missing.push_back(e->name);
  }
  assign(copies);
  return report;
}

void Program::Impl::reset() {
  const std::lock_guard<std::mutex> lock(store_->mutex());
  store_->reset();
}

void* Program::Impl::address(std::string_view name) {
  const std::lock_guard<std::mutex> lock(store_->mutex());
  return place(name).address;
}

TensorType Program::Impl::type(std::string_view name) {
  const std::lock_guard<std::mutex> lock(store_->mutex());
  return place(name).type;
}

NamedTensors Program::Impl::snapshot(const LoadOptions& which) {
  const std::lock_guard<std::mutex> lock(store_->mutex());
  check_names("snapshot", which);
  for (const auto& e : executable_.externals()) {
    if (e->gone != External::kStays && selected(*e, which)) throw_stale("snapshot", e->gone);
  }
  executable_.runner()->wait(0);
  throw_on_fault();
  NamedTensors tensors;
  for (const auto& e : store_->externals()) {
    if (!selected(*e, which)) continue;
    Tensor tensor(e->type);
    store_->queue().download(tensor.data(), e->memory.data(), tensor.bytes());
    tensors.emplace_back(e->name, std::move(tensor));
  }
  return tensors;
}

namespace {

Program::Impl& checked(const std::shared_ptr<Program::Impl>& impl) {
  if (impl == nullptr) throw Error("use of an empty Program", "compile() makes one");
  return *impl;
}

std::vector<std::string> names_of_role(Program::Impl& impl, ir::Role role) {
  const std::lock_guard<std::mutex> lock(impl.store()->mutex());
  std::vector<std::string> names;
  for (const auto& e : impl.store()->externals()) {
    if (e->role == role) names.push_back(e->name);
  }
  return names;
}

}  // namespace

StepResult Program::step(std::span<const Feed> feeds, const StepOptions& options) {
  return checked(impl_).step(feeds, options);
}
StepResult Program::repeat() { return checked(impl_).repeat(); }
std::vector<StepResult> Program::steps(int64_t n) { return checked(impl_).steps(n); }
void Program::wait() { checked(impl_).wait(); }
void* Program::address(const std::string& name) const { return checked(impl_).address(name); }
GraphInfo Program::graph() const { return checked(impl_).graph_info(); }
Tensor Program::read(const std::string& name) const { return checked(impl_).read(name); }
void Program::write(const std::string& name, const TensorView& value) { checked(impl_).write(name, value); }
void Program::write(const std::string& name, double value) {
  const TensorType scalar = type(name);
  if (scalar.shape.elements() != 1) {
    throw Error("'" + name + "' has type " + to_string(scalar) + ": expected one element to write a number to");
  }
  Tensor tensor(scalar);
  set_element(scalar.dtype, tensor.data(), 0, value);
  write(name, tensor);
}
LoadReport Program::load(const NamedTensors& tensors, const LoadOptions& options) {
  return checked(impl_).load(tensors, options);
}
void Program::reset() { checked(impl_).reset(); }
NamedTensors Program::snapshot(const LoadOptions& which) const { return checked(impl_).snapshot(which); }

std::vector<std::string> Program::inputs() const {
  std::vector<std::string> names;
  for (const auto& own : checked(impl_).executable().own()) {
    if (own.role == ir::Role::input) names.push_back(own.name);
  }
  return names;
}

std::vector<std::string> Program::outputs() const {
  std::vector<std::string> names;
  for (const ir::Output& o : checked(impl_).compiled().graph.outputs()) names.push_back(o.name);
  return names;
}

std::vector<std::string> Program::params() const { return names_of_role(checked(impl_), ir::Role::param); }
std::vector<std::string> Program::states() const { return names_of_role(checked(impl_), ir::Role::state); }
TensorType Program::type(const std::string& external) const { return checked(impl_).type(external); }
std::vector<std::string> Program::untrained() const { return checked(impl_).compiled().untrained; }

MemoryTotals Program::memory() const {
  const plan::ExecPlan& p = checked(impl_).compiled().plan;
  return {p.external_bytes, p.constant_bytes, p.arena_bytes, p.fetched_bytes, p.total_bytes(), p.live_peak_bytes};
}
int Program::launches() const { return static_cast<int>(checked(impl_).compiled().plan.launches.size()); }
std::string Program::backend() const { return std::string(checked(impl_).store()->backend().name()); }
uint64_t Program::hash() const { return checked(impl_).compiled().hash; }
void Program::set_mode(Mode mode) { checked(impl_).set_mode(mode); }
Mode Program::mode() const { return checked(impl_).mode(); }

}  // namespace aicf
