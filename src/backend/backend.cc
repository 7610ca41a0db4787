// Choosing a backend by name and a kernel by cost.
#include <dlfcn.h>
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <cstdlib>
#include <filesystem>
#include <limits>
#include <string>
#include <vector>

#include "aicf/error.h"
#include "backend/api.h"

namespace aicf::backend {
namespace {

constexpr const char* kCudaPlugin = "libaicf_cuda.so";

// The folder of libaicf.so, then those of AICF_PLUGIN_PATH.
std::vector<std::string> plugin_folders() {
  std::vector<std::string> folders;
  Dl_info self;
  if (dladdr(reinterpret_cast<const void*>(&plugin_folders), &self) != 0 && self.dli_fname != nullptr) {
    std::error_code ignored;
    const auto library = std::filesystem::absolute(self.dli_fname, ignored);
    folders.push_back(library.parent_path().string());
  }
  const char* path = std::getenv("AICF_PLUGIN_PATH");
  std::string rest = path != nullptr ? path : "";
  while (!rest.empty()) {
    const size_t colon = rest.find(':');
    if (colon != 0) folders.push_back(rest.substr(0, colon));
    rest = colon == std::string::npos ? "" : rest.substr(colon + 1);
  }
  return folders;
}

[[noreturn]] void no_cuda() {
  const std::vector<std::string> folders = plugin_folders();
  const char* hint = "use --backend cpu";
  for (const std::string& folder : folders) {
    std::error_code ignored;
    const auto file = std::filesystem::path(folder) / kCudaPlugin;
    if (std::filesystem::exists(file, ignored)) {
      throw Error(fmt::format("backend \"cuda\": {} is there, but this build of AICF loads no plugins", file.string()),
                  hint);
    }
  }
  throw Error(
      fmt::format("backend \"cuda\": {} was not found next to libaicf.so or in AICF_PLUGIN_PATH ({}); looked in {}",
                  kCudaPlugin, std::getenv("AICF_PLUGIN_PATH") != nullptr ? "set" : "not set",
                  fmt::join(folders, ", ")),
      hint);
}

}  // namespace

Backend& find(std::string_view name) {
  if (name == "cpu") return cpu_backend();
  if (name == "cuda") no_cuda();
  throw Error(fmt::format("backend: expected cpu or cuda, got \"{}\"", name));
}

const Kernel* choose(std::span<const Kernel> kernels, const KernelQuery& query) {
  const Kernel* best = nullptr;
  double best_cost = std::numeric_limits<double>::infinity();
  for (const Kernel& kernel : kernels) {
    if (std::string_view(kernel.op) != query.def.name || !kernel.accepts(query)) continue;
    const double cost = kernel.cost != nullptr ? kernel.cost(query) : 0;
    if (best != nullptr && cost >= best_cost) continue;
    best = &kernel;
    best_cost = cost;
  }
  return best;
}

}  // namespace aicf::backend
