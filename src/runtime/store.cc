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

std::string group_text(const std::string& name) { return name.empty() ? "default group" : "group '" + name + "'"; }

}  // namespace

Store::Store(backend::Backend& backend, uint64_t seed) : backend_(backend), queue_(backend.make_queue()), seed_(seed) {}
Store::~Store() = default;

void Store::initialise(External& external) {
  const Tensor value = ir::initial_value(external.name, external.type, external.init, seed_);
  queue_->upload(external.memory.data(), value.data(), value.bytes());
}

std::shared_ptr<External> Store::declare(const ir::ValueInfo& info, bool derived, bool of_model) {
  if (External* known = find(info.name)) {
    try {
      check_same(*known, info, derived);
      known->of_model |= of_model;
      return *std::find_if(externals_.begin(), externals_.end(), [&](const auto& e) { return e.get() == known; });
    } catch (const Error&) {
      if (!reconfiguring_ || known->of_model || of_model) throw;
      remove(info.name);
    }
  }
  auto external = std::make_shared<External>();
  external->name = info.name;
  external->role = info.role;
  external->type = info.type;
  external->init = initial_text(info);
  external->derived = derived;
  external->of_model = of_model;
  external->memory = Allocation(backend_, info.type.bytes());
  if (!derived) initialise(*external);
  externals_.push_back(external);
  return external;
}

void Store::remove(std::string_view name) {
  std::erase_if(externals_, [&](const auto& e) { return e->name == name; });
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
  const auto refuse = [&](const std::string& what, const std::string& hint) {
    throw Error("this program trains " + what + "; one step counter cannot be right for both", hint);
  };
  const auto [it, fresh] = groups_.emplace(group.name, group);
  for (const auto& [name, other] : groups_) {
    for (const std::string& param : group.params) {
      if (name == group.name || !holds(other, param)) continue;
      refuse("%" + param + " in the " + group_text(group.name) + ", and one already compiled over this store in the " +
                 group_text(name),
             "declare it in the same group");
    }
  }
  if (fresh) return;
  const TrainedGroup& known = it->second;
  const std::string selection =
      "another selection of the " + group_text(group.name) + " than one already compiled over this store: %";
  const std::string hint = "declare the parameters that skip steps in a group of their own";
  for (const std::string& param : known.params) {
    if (!holds(group, param)) refuse(selection + param + " is left out", hint);
  }
  for (const std::string& param : group.params) {
    if (!holds(known, param)) refuse(selection + param + " is new", hint);
  }
  if (known.rule != group.rule) {
    refuse("the " + group_text(group.name) + " by " + group.rule + ", and one already compiled over this store by " +
               known.rule,
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

Store::Trial::Trial(Store& store)
    : store_(store),
      externals_(store.externals_),
      arenas_(store.arenas_.size()),
      refreshers_(store.refreshers_.size()),
      groups_(store.groups_) {}

Store::Trial::~Trial() {
  store_.reconfiguring_ = false;
  if (kept_) return;
  store_.refreshers_.resize(refreshers_);
  store_.groups_ = groups_;
  store_.externals_ = externals_;
  store_.arenas_.resize(arenas_);
}

void Store::Trial::reconfigure(const ir::Graph& step, const std::vector<TrainedGroup>& groups) {
  store_.reconfiguring_ = true;
  store_.groups_.clear();
  for (const TrainedGroup& group : groups) {
    for (const Counted& counted : group.counted) {
      const auto known = [&](const std::string& name) {
        const External* e = store_.find(name);
        return e != nullptr && e->type == step.type(step.find_external(name));
      };
      if (std::all_of(counted.tensors.begin(), counted.tensors.end(), known)) continue;
      store_.remove(counted.counter);
      for (const std::string& tensor : counted.tensors) store_.remove(tensor);
    }
  }
}

void Store::Trial::keep(const Executable& program) {
  kept_ = true;
  if (groups_.empty()) return;  // nobody trained it
  std::string what;
  const auto text = [](const TrainedGroup& g) {
    return g.rule + " of " + std::to_string(g.params.size()) + (g.params.size() == 1 ? " parameter" : " parameters");
  };
  const auto add = [&](const std::string& name, const std::string& before, const std::string& now) {
    what += (what.empty() ? "" : "; ") + group_text(name) + ": " + before + ", now " +
            (before == now ? "with other options" : now);
  };
  for (const auto& [name, before] : groups_) {
    const auto now = store_.groups_.find(name);
    add(name, text(before), now == store_.groups_.end() ? "not trained" : text(now->second));
  }
  for (const auto& [name, now] : store_.groups_) {
    if (!groups_.contains(name)) add(name, "not trained", text(now));
  }
  std::erase_if(store_.externals_, [&](const std::shared_ptr<External>& e) {
    return !e->of_model && !e->derived && program.compiled().graph.find_external(e->name) == ir::kNoValue;
  });
  // Marked before anything derived from it is looked for.
  const auto mark = [&] {
    for (const std::shared_ptr<External>& e : externals_) {
      const auto& now = store_.externals_;
      if (std::find(now.begin(), now.end(), e) == now.end()) e->gone = store_.reconfigurations_.size();
    }
  };
  mark();
  store_.remove_orphans();
  mark();
  store_.reconfigurations_.push_back(std::move(what));
}

// What is derived from a state that is gone goes too, unless another refresher computes it.
void Store::remove_orphans() {
  for (bool changed = true; changed;) {
    changed =
        std::erase_if(refreshers_, [&](const std::unique_ptr<Executable>& refresher) {
          const auto& bound = refresher->externals();
          return std::any_of(bound.begin(), bound.end(), [](const auto& e) { return e->gone != External::kStays; });
        }) > 0;
    std::erase_if(externals_, [&](const std::shared_ptr<External>& e) {
      const bool computed = std::any_of(refreshers_.begin(), refreshers_.end(), [&](const auto& refresher) {
        const auto& bound = refresher->externals();
        return std::find(bound.begin(), bound.end(), e) != bound.end();
      });
      if (!e->derived || computed) return false;
      e->gone = reconfigurations_.size();
      return true;
    });
  }
}

void Store::reset() {
  for (const auto& external : externals_) {
    if (!external->derived) initialise(*external);
  }
  refresh();
}

}  // namespace aicf::runtime
