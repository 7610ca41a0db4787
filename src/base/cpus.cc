// The CPUs this process may use: its affinity mask, bounded by the quotas of its control groups.
#include "base/cpus.h"

#include <sched.h>

#include <algorithm>
#include <cstdint>
#include <fstream>
#include <sstream>
#include <thread>

#include "base/thread_pool.h"

namespace aicf::base {
namespace {

// quota / period in whole CPUs, or 0 when there is none ("max", or -1 in version 1).
int whole_cpus(const std::string& quota, const std::string& period) {
  std::istringstream quota_text(quota), period_text(period);
  int64_t quota_us = 0, period_us = 0;
  if (!(quota_text >> quota_us) || !(period_text >> period_us) || quota_us <= 0 || period_us <= 0) return 0;
  return static_cast<int>(std::clamp<int64_t>(quota_us / period_us, 1, 1 << 20));
}

int limit_of_folder(const std::string& folder, bool version2) {
  std::string quota, period;
  if (version2) {
    std::ifstream(folder + "/cpu.max") >> quota >> period;
  } else {
    std::ifstream(folder + "/cpu.cfs_quota_us") >> quota;
    std::ifstream(folder + "/cpu.cfs_period_us") >> period;
  }
  return whole_cpus(quota, period);
}

// The tightest quota from the group up to the root. A path outside this mount (a container's) has no files, and only
// the root's count.
int limit_of_group(const std::string& root, std::string path, bool version2) {
  int limit = 0;
  for (;;) {
    const int here = limit_of_folder(root + path, version2);
    if (here > 0) limit = limit == 0 ? here : std::min(limit, here);
    const size_t slash = path.find_last_of('/');
    if (path.empty() || slash == std::string::npos) return limit;
    path.resize(slash);
  }
}

std::string read_file(const char* path) {
  std::ifstream file(path);
  std::stringstream text;
  text << file.rdbuf();
  return text.str();
}

int affinity_cpus() {
  for (int cpus = CPU_SETSIZE; cpus <= (1 << 20); cpus *= 2) {
    cpu_set_t* set = CPU_ALLOC(cpus);
    if (set == nullptr) break;
    const size_t bytes = CPU_ALLOC_SIZE(cpus);
    const bool ok = sched_getaffinity(0, bytes, set) == 0;
    const int count = ok ? CPU_COUNT_S(bytes, set) : 0;
    CPU_FREE(set);
    if (ok) return std::max(1, count);
  }
  return std::max(1u, std::thread::hardware_concurrency());
}

}  // namespace

int cgroup_cpu_limit(const std::string& membership, const std::string& mount) {
  int limit = 0;
  std::istringstream lines(membership);
  for (std::string line; std::getline(lines, line);) {
    const size_t first = line.find(':');
    const size_t second = first == std::string::npos ? first : line.find(':', first + 1);
    if (second == std::string::npos) continue;
    const std::string controllers = "," + line.substr(first + 1, second - first - 1) + ",";
    const std::string path = line.substr(second + 1);
    int here = 0;
    if (controllers == ",,") {
      here = limit_of_group(mount, path, true);
    } else if (controllers.find(",cpu,") != std::string::npos) {
      here = limit_of_group(mount + "/cpu", path, false);
    }
    if (here > 0) limit = limit == 0 ? here : std::min(limit, here);
  }
  return limit;
}

int available_cpus() {
  const int limit = cgroup_cpu_limit(read_file("/proc/self/cgroup"), "/sys/fs/cgroup");
  const int cpus = affinity_cpus();
  return limit > 0 ? std::min(cpus, limit) : cpus;
}

}  // namespace aicf::base
