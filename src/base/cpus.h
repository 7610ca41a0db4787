// How many CPUs the control groups of this process allow.
#pragma once

#include <string>

namespace aicf::base {

// Whole CPUs (at least 1) that the CPU quotas allow, or 0 when there is no quota. `membership` is the text of
// /proc/self/cgroup and `mount` the folder of the mounted hierarchies; version 2 and version 1 are understood.
int cgroup_cpu_limit(const std::string& membership, const std::string& mount);

}  // namespace aicf::base
