// Store: the named params and states of a model at fixed addresses, shared by its programs.
#pragma once

#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "backend/api.h"
#include "ir/graph.h"

namespace aicf::runtime {

class Executable;

// States of the parameters of a group that are right only together: they are what so many steps made of them.
struct Counted {
  std::string counter;
  std::vector<std::string> tensors;
};

// A group's trained parameters, and the rule that trains them: the optimizer's name and its tensors for a parameter.
struct TrainedGroup {
  std::string name;
  std::string rule;
  std::vector<std::string> params;
  std::vector<Counted> counted;
};

// Memory of a backend, released with the object.
class Allocation {
 public:
  Allocation() = default;
  Allocation(backend::Backend& backend, size_t bytes);
  Allocation(Allocation&& other) noexcept;
  Allocation& operator=(Allocation&& other) noexcept;
  ~Allocation();

  void* data() const { return data_; }
  size_t bytes() const { return bytes_; }

 private:
  backend::Backend* backend_ = nullptr;
  void* data_ = nullptr;
  size_t bytes_ = 0;
};

// Host memory that the backend copies to fastest.
class HostMemory {
 public:
  HostMemory() = default;
  HostMemory(backend::Backend& backend, size_t bytes) : backend_(&backend), data_(backend.allocate_host(bytes)) {}
  HostMemory(HostMemory&& other) noexcept
      : backend_(std::exchange(other.backend_, nullptr)), data_(std::exchange(other.data_, nullptr)) {}
  HostMemory& operator=(HostMemory other) noexcept {
    std::swap(backend_, other.backend_);
    std::swap(data_, other.data_);
    return *this;
  }
  ~HostMemory() {
    if (backend_ != nullptr) backend_->release_host(data_);
  }
  void* data() const { return data_; }

 private:
  backend::Backend* backend_ = nullptr;
  void* data_ = nullptr;
};

struct External {
  std::string name;
  ir::Role role = ir::Role::param;
  TensorType type;
  std::string init;
  bool derived = false;
  bool of_model = false;  // some program's model declares it; else it came with how it is trained
  Allocation memory;
  // The reconfiguration that took it out of the store (Store::reconfigurations): memory that nobody writes any more.
  static constexpr size_t kStays = ~size_t{0};
  size_t gone = kStays;
};

class Store {
 public:
  Store(backend::Backend& backend, uint64_t seed);
  ~Store();

  backend::Backend& backend() { return backend_; }
  // REQUIRES the mutex, as all work of the store.
  backend::Queue& queue() { return *queue_; }
  // Held by whoever runs a program of this store or touches its externals.
  std::mutex& mutex() { return mutex_; }

  // --- REQUIRES the mutex for everything below -------------------------------------------------------------------
  // Creates and initialises what is missing. Throws Error when an external exists and is not the same: of another type
  // or role, derived or not, or a state that starts otherwise; while the store is reconfigured, one that is not of a
  // model makes room for another.
  std::shared_ptr<External> declare(const ir::ValueInfo& info, bool derived, bool of_model);
  External* find(std::string_view name);
  const std::vector<std::shared_ptr<External>>& externals() const { return externals_; }

  // At least this many bytes, shared by all programs of the store: they run one after another.
  void* arena(size_t bytes);

  // The parameters a group's step counter counts for. Throws Error when a program trains another selection of a group
  // that is trained already, or by another rule: one counter cannot be right for both.
  void claim_group(const TrainedGroup& group);

  // Each time that another program took the training over: "default group: adam with m, v of 4 parameters, now …".
  const std::vector<std::string>& reconfigurations() const { return reconfigurations_; }

  // Recomputes derived states, in order of declaration. Throws Error when one of their indices is out of range.
  void add_refresher(std::unique_ptr<Executable> refresher);
  void refresh();
  const std::vector<std::unique_ptr<Executable>>& refreshers() const { return refreshers_; }

  void reset();

  // Takes back what was declared, claimed and added in its life, unless kept: a compile that fails leaves no trace.
  // REQUIRES: nothing bound in that life outlives it, unless kept.
  class Trial {
   public:
    explicit Trial(Store& store);
    Trial(const Trial&) = delete;
    Trial& operator=(const Trial&) = delete;
    ~Trial();
    // What is claimed and declared from here on, by a step that trains these groups, replaces what trained the store.
    void reconfigure(const ir::Graph& step, const std::vector<TrainedGroup>& groups);
    void keep() { kept_ = true; }
    // The same after reconfigure(): `program` trains the store now, and what only the training before had is gone.
    void keep(const Executable& program);

   private:
    Store& store_;
    const std::vector<std::shared_ptr<External>> externals_;
    const size_t arenas_, refreshers_;
    const std::map<std::string, TrainedGroup> groups_;
    bool kept_ = false;
  };

 private:
  void initialise(External& external);
  void remove(std::string_view name);
  void remove_orphans();

  backend::Backend& backend_;
  const std::unique_ptr<backend::Queue> queue_;
  const uint64_t seed_;
  std::mutex mutex_;
  std::vector<std::shared_ptr<External>> externals_;  // in order of declaration; shared by what is bound to them
  std::vector<Allocation> arenas_;
  std::map<std::string, TrainedGroup> groups_;
  bool reconfiguring_ = false;
  std::vector<std::string> reconfigurations_;
  std::vector<std::unique_ptr<Executable>> refreshers_;
};

}  // namespace aicf::runtime
