#include "runtime/store.h"

#include <algorithm>
#include <utility>

#include "aicf/error.h"
#include "ir/init.h"
#include "runtime/executable.h"

namespace aicf::runtime {

Allocation::Allocation(backend::Backend& backend, size_t bytes)
    : backend_(&backend), data_(backend.allocate(bytes)), bytes_(bytes) {}

Allocation::Allocation(Allocation&& other) noexcept
    : backend_(std::exchange(other.backend_, nullptr)),
      data_(std::exchange(other.data_, nullptr)),
      bytes_(std::exchange(other.bytes_, 0)) {}

Allocation& Allocation::operator=(Allocation&& other) noexcept {
  std::swap(backend_, other.backend_);
  std::swap(data_, other.data_);
  std::swap(bytes_, other.bytes_);
  return *this;
}

Allocation::~Allocation() {
  if (backend_ != nullptr) backend_->release(data_);
}

namespace {

std::string initial_text(const ir::ValueInfo& info) { return info.attrs.get_string("init", "zeros"); }

void check_same(const External& known, const ir::ValueInfo& info, bool derived) {
  const std::string head = std::string(ir::name_of(info.role)) + " %" + info.name + " : " + to_string(info.type);
  if (known.type != info.type || known.role != info.role) {
    throw Error(head + ": the shared store holds a " + std::string(ir::name_of(known.role)) +
                " of this name with type " + to_string(known.type));
  }
  if (known.derived != derived) {
    throw Error(head + ": the shared store holds a state of this name that is " + (derived ? "not " : "") + "derived");
  }
  const std::string init = initial_text(info);
  if (info.role == ir::Role::state && !derived && known.init != init) {
    throw Error(head + ": it starts as " + init + " here and as " + known.init + " in the shared store",
                "declare it alike, and change it with write()");
  }
}

}  // namespace

Store::Store(backend::Backend& backend, uint64_t seed) : backend_(backend), queue_(backend.make_queue()), seed_(seed) {}
Store::~Store() = default;

void Store::initialise(External& external) {
  const Tensor value = ir::initial_value(external.name, external.type, external.init, seed_);
  queue_->upload(external.memory.data(), value.data(), value.bytes());
}

External& Store::declare(const ir::ValueInfo& info, bool derived) {
  if (External* known = find(info.name)) {
    check_same(*known, info, derived);
    return *known;
  }
  auto external = std::make_unique<External>();
  external->name = info.name;
  external->role = info.role;
  external->type = info.type;
  external->init = initial_text(info);
  external->derived = derived;
  external->memory = Allocation(backend_, info.type.bytes());
  if (!derived) initialise(*external);
  externals_.push_back(std::move(external));
  return *externals_.back();
}

External* Store::find(std::string_view name) {
  for (const auto& external : externals_) {
    if (external->name == name) return external.get();
  }
  return nullptr;
}

void* Store::arena(size_t bytes) {
  if (bytes == 0) return nullptr;
  for (const Allocation& arena : arenas_) {
    if (arena.bytes() >= bytes) return arena.data();
  }
  // Programs bound to a smaller arena keep it: no address ever changes.
  arenas_.emplace_back(backend_, bytes);
  return arenas_.back().data();
}

void Store::claim_group(const TrainedGroup& group) {
  const auto holds = [](const TrainedGroup& g, const std::string& param) {
    return std::find(g.params.begin(), g.params.end(), param) != g.params.end();
  };
  const auto text = [](const std::string& name) { return name.empty() ? "default group" : "group '" + name + "'"; };
  const auto refuse = [&](const std::string& what, const std::string& hint) {
    throw Error("this program trains " + what + "; one step counter cannot be right for both", hint);
  };
  const auto [it, fresh] = groups_.emplace(group.name, group);
  for (const auto& [name, other] : groups_) {
    for (const std::string& param : group.params) {
      if (name == group.name || !holds(other, param)) continue;
      refuse("%" + param + " in the " + text(group.name) + ", and one already compiled over this store in the " +
                 text(name),
             "declare it in the same group");
    }
  }
  if (fresh) return;
  const TrainedGroup& known = it->second;
  const std::string selection =
      "another selection of the " + text(group.name) + " than one already compiled over this store: %";
  const std::string hint = "declare the parameters that skip steps in a group of their own";
  for (const std::string& param : known.params) {
    if (!holds(group, param)) refuse(selection + param + " is left out", hint);
  }
  for (const std::string& param : group.params) {
    if (!holds(known, param)) refuse(selection + param + " is new", hint);
  }
  if (known.rule != group.rule) {
    refuse(
        "the " + text(group.name) + " by " + group.rule + ", and one already compiled over this store by " + known.rule,
        "give both the same optimizer, or compile without `share`");
  }
}

void Store::add_refresher(std::unique_ptr<Executable> refresher) { refreshers_.push_back(std::move(refresher)); }

void Store::refresh() {
  for (const auto& refresher : refreshers_) {
    refresher->run();
    refresher->throw_on_input_error();
  }
}

Store::Trial::~Trial() {
  if (kept_) return;
  store_.refreshers_.resize(refreshers_);
  store_.groups_ = std::move(groups_);
  store_.externals_.resize(externals_);
  store_.arenas_.resize(arenas_);
}

void Store::reset() {
  for (const auto& external : externals_) {
    if (!external->derived) initialise(*external);
  }
  refresh();
}

}  // namespace aicf::runtime
