#include "backend/cuda/compile.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <nvrtc.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <map>
#include <mutex>

#include "aicf/error.h"
#include "backend/cuda/error.h"
#include "backend/cuda/prelude.h"
#include "base/hash.h"

namespace aicf::backend::cuda {
namespace {

// No contraction: every rounding is the one the expression says. Subnormals are flushed, as on the CPU.
constexpr const char* kOptions[] = {"--std=c++17",     "--fmad=false",     "-ftz=true",
                                    "--prec-div=true", "--prec-sqrt=true", "-default-device"};
// Of the layout of a cache entry.
constexpr const char* kCacheVersion = "v1";

// The kernel stands among its helpers, so that it finds its own and none of another kernel's.
std::string definition(const Generated& kernel, const std::string& name) {
  std::string text = "namespace in_" + name + " {\n" + kernel.helpers;
  text += fmt::format("extern \"C\" __global__ void __launch_bounds__({}) {}(", kernel.threads, name);
  for (const Generated::Param& p : kernel.params) text += p.declaration + ", ";
  return text + "const u8* guard) {\nif (guard && !*guard) return;\n" + kernel.body + "}\n}\n";
}

std::string content(const Generated& kernel) { return definition(kernel, "k"); }

std::string hex(uint64_t value) { return fmt::format("{:016x}", value); }

std::string nvrtc_version() {
  int major = 0, minor = 0;
  nvrtcVersion(&major, &minor);
  return fmt::format("{}.{}", major, minor);
}

struct Program {
  explicit Program(const std::string& text) {
    if (nvrtcCreateProgram(&handle, text.c_str(), "aicf.cu", 0, nullptr, nullptr) != NVRTC_SUCCESS) {
      throw Error("NVRTC cannot make a program");
    }
  }
  Program(const Program&) = delete;
  Program& operator=(const Program&) = delete;
  ~Program() { nvrtcDestroyProgram(&handle); }
  nvrtcProgram handle = nullptr;
};

std::string log_of(nvrtcProgram program) {
  size_t size = 0;
  nvrtcGetProgramLogSize(program, &size);
  std::string log(size, '\0');
  if (size > 0) nvrtcGetProgramLog(program, log.data());
  while (!log.empty() && (log.back() == '\0' || log.back() == '\n')) log.pop_back();
  return log;
}

std::filesystem::path cache_folder() {
  if (const char* own = std::getenv("AICF_CACHE_DIR"); own != nullptr) return own;
  if (const char* xdg = std::getenv("XDG_CACHE_HOME"); xdg != nullptr && *xdg != '\0') {
    return std::filesystem::path(xdg) / "aicf";
  }
  if (const char* home = std::getenv("HOME"); home != nullptr && *home != '\0') {
    return std::filesystem::path(home) / ".cache" / "aicf";
  }
  return {};
}

// An entry: the whole key, so that a collision of hashes is seen, and a hash of the cubin, so that a torn file is.
std::vector<char> read_entry(const std::filesystem::path& path, const std::string& key) {
  std::ifstream file(path, std::ios::binary);
  std::string all((std::istreambuf_iterator<char>(file)), std::istreambuf_iterator<char>());
  const std::string head = key + '\0';
  if (!file || all.size() < head.size() + 16 || !all.starts_with(head)) return {};
  const std::string sum = all.substr(head.size(), 16);
  std::vector<char> cubin(all.begin() + static_cast<std::ptrdiff_t>(head.size() + 16), all.end());
  if (cubin.empty() || sum != hex(base::hash_bytes(cubin.data(), cubin.size()))) return {};
  return cubin;
}

void write_entry(const std::filesystem::path& path, const std::string& key, const std::vector<char>& cubin) {
  std::error_code ignored;
  std::filesystem::create_directories(path.parent_path(), ignored);
  std::string temporary = path.string() + ".XXXXXX";
  const int fd = mkstemp(temporary.data());
  if (fd < 0) return;
  close(fd);
  std::ofstream file(temporary, std::ios::binary);
  file << key << '\0' << hex(base::hash_bytes(cubin.data(), cubin.size()));
  file.write(cubin.data(), static_cast<std::streamsize>(cubin.size()));
  file.close();
  if (file) std::filesystem::rename(temporary, path, ignored);
  if (!file || ignored) std::filesystem::remove(temporary, ignored);
}

// Modules by program text, while any kernel uses them: programs of one process share them.
std::shared_ptr<const Module> shared_module(const std::string& text, const std::string& architecture) {
  static std::mutex mutex;
  static std::map<std::string, std::weak_ptr<const Module>> modules;
  const std::lock_guard<std::mutex> lock(mutex);
  std::erase_if(modules, [](const auto& entry) { return entry.second.expired(); });
  std::weak_ptr<const Module>& known = modules[architecture + "\n" + text];
  if (std::shared_ptr<const Module> module = known.lock()) return module;
  auto module = std::make_shared<const Module>(cached_program(text, architecture));
  known = module;
  return module;
}

// Alone, the kernel that does not compile names itself.
[[noreturn]] void blame(std::span<Generated* const> kernels, const std::string& architecture, const Error& error) {
  for (const Generated* kernel : kernels) {
    try {
      compile_program(program_text(std::span(&kernel, 1)), architecture);
    } catch (const Error& own) {
      throw Error(kernel->what + ": its generated kernel does not compile: " + own.what(),
                  "this is a bug in aicf: please report it");
    }
  }
  throw error;
}

}  // namespace

Module::Module(const std::vector<char>& cubin) {
  check(cudaLibraryLoadData(&library, cubin.data(), nullptr, nullptr, 0, nullptr, nullptr, 0), "loading kernels");
}

Module::~Module() { cudaLibraryUnload(library); }

std::string kernel_name(const Generated& kernel) {
  const std::string text = content(kernel);
  return "k_" + hex(base::hash_bytes(text.data(), text.size()));
}

std::string program_text(std::span<const Generated* const> kernels) {
  std::map<std::string, const Generated*> distinct;
  for (const Generated* kernel : kernels) distinct.emplace(kernel_name(*kernel), kernel);
  std::string text = kPrelude;
  for (const auto& [name, kernel] : distinct) text += definition(*kernel, name);
  return text;
}

std::vector<char> compile_program(const std::string& text, const std::string& architecture) {
  const Program program(text);
  const std::string target = "--gpu-architecture=" + architecture;
  std::vector<const char*> options(std::begin(kOptions), std::end(kOptions));
  options.push_back(target.c_str());
  const nvrtcResult result = nvrtcCompileProgram(program.handle, static_cast<int>(options.size()), options.data());
  if (result != NVRTC_SUCCESS) {
    const std::string log = log_of(program.handle);
    throw Error(log.empty() ? nvrtcGetErrorString(result) : log);
  }
  size_t size = 0;
  if (nvrtcGetCUBINSize(program.handle, &size) != NVRTC_SUCCESS || size == 0) throw Error("NVRTC gave no cubin");
  std::vector<char> cubin(size);
  nvrtcGetCUBIN(program.handle, cubin.data());
  return cubin;
}

std::vector<char> cached_program(const std::string& text, const std::string& architecture) {
  std::string key = fmt::format("aicf cubin {} nvrtc {} {}", kCacheVersion, nvrtc_version(), architecture);
  for (const char* option : kOptions) key += std::string(" ") + option;
  key += "\n" + text;
  const std::filesystem::path folder = cache_folder();
  if (folder.empty()) return compile_program(text, architecture);
  const std::filesystem::path path =
      folder / "cubin" / kCacheVersion / (hex(base::hash_bytes(key.data(), key.size())) + ".bin");
  std::vector<char> cubin = read_entry(path, key);
  if (!cubin.empty()) return cubin;
  cubin = compile_program(text, architecture);
  write_entry(path, key, cubin);
  return cubin;
}

void link_kernels(std::span<Generated* const> kernels, const std::string& architecture, bool load) {
  if (kernels.empty()) return;
  const std::vector<const Generated*> all(kernels.begin(), kernels.end());
  const std::string text = program_text(all);
  std::shared_ptr<const Module> module;
  try {
    if (load) {
      module = shared_module(text, architecture);
    } else {
      cached_program(text, architecture);
    }
  } catch (const Error& error) {
    if (load && module == nullptr && std::string_view(error.what()).starts_with("CUDA")) throw;
    blame(kernels, architecture, error);
  }
  if (!load) return;
  for (Generated* kernel : kernels) {
    cudaKernel_t function = nullptr;
    check(cudaLibraryGetKernel(&function, module->library, kernel_name(*kernel).c_str()), "finding a kernel");
    kernel->function = reinterpret_cast<const void*>(function);
    kernel->module = module;
  }
}

}  // namespace aicf::backend::cuda
