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

Store::Store(backend::Backend& backend, uint64_t seed) : backend_(backend), seed_(seed) {}
Store::~Store() = default;

void Store::initialise(External& external) {
  const Tensor value = ir::initial_value(external.name, external.type, external.init, seed_);
  backend_.upload(external.memory.data(), value.data(), value.bytes());
}

External& Store::declare(const ir::ValueInfo& info, bool derived) {
  if (External* known = find(info.name)) {
    if (known->type != info.type || known->role != info.role) {
      throw Error(std::string(ir::name_of(info.role)) + " %" + info.name + " : " + to_string(info.type) +
                  ": the shared store holds a " + std::string(ir::name_of(known->role)) + " of this name with type " +
                  to_string(known->type));
    }
    return *known;
  }
  auto external = std::make_unique<External>();
  external->name = info.name;
  external->role = info.role;
  external->type = info.type;
  external->init = info.attrs.get_string("init", "zeros");
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

void Store::claim_group(const std::string& group, const std::vector<std::string>& params) {
  const auto [it, fresh] = groups_.emplace(group, params);
  if (fresh || it->second == params) return;
  const auto missing = [](const std::vector<std::string>& from, const std::vector<std::string>& in) {
    for (const std::string& name : from) {
      if (std::find(in.begin(), in.end(), name) == in.end()) return name;
    }
    return std::string();
  };
  const std::string left_out = missing(it->second, params);
  const std::string added = missing(params, it->second);
  throw Error("this program trains another selection of the " +
                  (group.empty() ? "default group" : "group '" + group + "'") +
                  " than one already compiled over this store: %" + (left_out.empty() ? added : left_out) +
                  (left_out.empty() ? " is new" : " is left out") + "; one step counter cannot be right for both",
              "declare the parameters that skip steps in a group of their own");
}

void Store::add_refresher(std::unique_ptr<Executable> refresher) { refreshers_.push_back(std::move(refresher)); }

void Store::refresh() {
  for (const auto& refresher : refreshers_) refresher->run();
}

void Store::reset() {
  for (const auto& external : externals_) {
    if (!external->derived) initialise(*external);
  }
  refresh();
}

}  // namespace aicf::runtime
