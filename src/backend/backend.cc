// Choosing a backend by name and a kernel by cost.
#include <dlfcn.h>
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <cstdlib>
#include <filesystem>
#include <limits>
#include <mutex>
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

struct Plugin {
  Backend* backend = nullptr;
  std::string missing, hint;  // why there is none
};

// Looks in the folders in order and keeps what it finds for the life of the process.
Plugin load_cuda() {
  const std::vector<std::string> folders = plugin_folders();
  const char* hint = "use --backend cpu";
  for (const std::string& folder : folders) {
    const std::filesystem::path file = std::filesystem::path(folder) / kCudaPlugin;
    std::error_code ignored;
    if (!std::filesystem::exists(file, ignored)) continue;
    const std::string head = fmt::format("backend \"cuda\": {} cannot be used: ", file.string());
    void* library = dlopen(file.c_str(), RTLD_NOW | RTLD_LOCAL);
    if (library == nullptr) {
      const char* why = dlerror();
      return {nullptr, head + (why != nullptr ? why : "it does not load"),
              "add the folder of the CUDA libraries to LD_LIBRARY_PATH, or use --backend cpu"};
    }
    const auto* plugin = static_cast<const PluginEntry*>(dlsym(library, kPluginSymbol));
    if (plugin == nullptr) return {nullptr, head + "it is no plugin of AICF", hint};
    if (std::string_view(plugin->build_id) != AICF_BUILD_ID) {
      return {nullptr, head + "it belongs to another build of AICF", "build both together, or use --backend cpu"};
    }
    return {plugin->backend(), "", ""};
  }
  return {nullptr,
          fmt::format("backend \"cuda\": {} was not found next to libaicf.so or in AICF_PLUGIN_PATH ({}); looked in {}",
                      kCudaPlugin, std::getenv("AICF_PLUGIN_PATH") != nullptr ? "set" : "not set",
                      fmt::join(folders, ", ")),
          hint};
}

Backend& cuda_compiler() {
  static std::mutex mutex;
  static Backend* loaded = nullptr;
  const std::lock_guard<std::mutex> lock(mutex);
  if (loaded == nullptr) {
    const Plugin plugin = load_cuda();
    if (plugin.backend == nullptr) throw Error(plugin.missing, plugin.hint);
    loaded = plugin.backend;
  }
  return *loaded;
}

}  // namespace

Backend& find_compiler(std::string_view name) {
  if (name == "cpu") return cpu_backend();
  if (name == "cuda") return cuda_compiler();
  throw Error(fmt::format("backend: expected cpu or cuda, got \"{}\"", name));
}

Backend& find(std::string_view name) {
  Backend& backend = find_compiler(name);
  if (const std::string why = backend.unusable(); !why.empty()) {
    throw Error(fmt::format("backend \"{}\": {}", name, why), "use --backend cpu");
  }
  return backend;
}

HostLayout host_layout(std::span<const Block> blocks) {
  HostLayout layout;
  for (const Block& block : blocks) {
    layout.offsets.push_back(layout.bytes);
    layout.bytes += (block.bytes + 255) / 256 * 256;
  }
  return layout;
}

std::string product_key(const ir::OpDef& def, std::span<const TensorType> in, const ir::Attrs& attrs) {
  std::string key = def.name;
  for (const TensorType& type : in) key += " " + to_string(type);
  return key + ir::to_string(attrs);
}

std::string known_choice(const KernelQuery& product) {
  const Choices* known = product.tuning.known;
  if (known == nullptr) return "";
  const auto it = known->find(product_key(product.def, product.in, product.attrs));
  return it == known->end() ? "" : it->second;
}

void note_choice(const KernelQuery& product, const std::string& choice) {
  if (product.tuning.taken == nullptr) return;
  product.tuning.taken->emplace(product_key(product.def, product.in, product.attrs), choice);
}

const Kernel* choose(std::span<const Kernel> kernels, const KernelQuery& query) {
  const std::string known = known_choice(query);
  const Kernel* best = nullptr;
  double best_cost = std::numeric_limits<double>::infinity();
  for (const Kernel& kernel : kernels) {
    if (std::string_view(kernel.op) != query.def.name || !kernel.accepts(query)) continue;
    if (known == kernel.variant) return &kernel;
    const double cost = kernel.cost != nullptr ? kernel.cost(query) : 0;
    if (best != nullptr && cost >= best_cost) continue;
    best = &kernel;
    best_cost = cost;
  }
  return best;
}

}  // namespace aicf::backend
