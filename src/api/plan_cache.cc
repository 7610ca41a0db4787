#include "api/plan_cache.h"

#include <mutex>
#include <unordered_map>

namespace aicf {
namespace {

struct Cache {
  std::mutex mutex;
  std::unordered_map<std::string, std::shared_ptr<const runtime::Compiled>> entries;
};

Cache& cache() {
  static Cache instance;
  return instance;
}

}  // namespace

namespace api {

std::shared_ptr<const runtime::Compiled> cached(const std::string& key,
                                                const std::function<std::shared_ptr<const runtime::Compiled>()>& make) {
  {
    const std::lock_guard<std::mutex> lock(cache().mutex);
    const auto it = cache().entries.find(key);
    if (it != cache().entries.end()) return it->second;
  }
  // Made outside the lock: two threads may both compile, and the first entry stays.
  std::shared_ptr<const runtime::Compiled> made = make();
  const std::lock_guard<std::mutex> lock(cache().mutex);
  return cache().entries.emplace(key, std::move(made)).first->second;
}

}  // namespace api

size_t compile_cache_size() {
  const std::lock_guard<std::mutex> lock(cache().mutex);
  return cache().entries.size();
}

void clear_compile_cache() {
  const std::lock_guard<std::mutex> lock(cache().mutex);
  cache().entries.clear();
}

}  // namespace aicf
