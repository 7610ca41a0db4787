#include "backend/cuda/compile.h"

#include <fmt/format.h>
#include <nvrtc.h>

#include <map>
#include <mutex>

#include "aicf/error.h"
#include "backend/cuda/cache.h"
#include "backend/cuda/error.h"
#include "backend/cuda/prelude.h"
#include "base/hash.h"

namespace aicf::backend::cuda {
namespace {

// No contraction: every rounding is the one the expression says. Subnormals are flushed, as on the CPU.
constexpr const char* kOptions[] = {"--std=c++17",     "--fmad=false",     "-ftz=true",
                                    "--prec-div=true", "--prec-sqrt=true", "-default-device"};

// The kernel stands among its helpers, so that it finds its own and none of another kernel's.
std::string definition(const Generated& kernel, const std::string& name) {
  std::string text = "namespace in_" + name + " {\n" + kernel.helpers;
  const std::string bounds = kernel.min_blocks == 0 ? fmt::format("{}", kernel.threads)
                                                    : fmt::format("{}, {}", kernel.threads, kernel.min_blocks);
  text += fmt::format("extern \"C\" __global__ void __launch_bounds__({}) {}(", bounds, name);
  if (kernel.table) text += fmt::format("const __grid_constant__ Table<{}> table, ", kernel.params.size());
  for (const Generated::Param& p : kernel.params) text += kernel.table ? "" : p.declaration + ", ";
  text += "const u8* guard) {\nif (guard && !*guard) return;\n";
  if (kernel.pool_bytes > 0) text += fmt::format("alignas(16) __shared__ u8 pool[{}];\n", kernel.pool_bytes);
  return text + kernel.body + "}\n}\n";
}

std::string content(const Generated& kernel) { return definition(kernel, "k"); }

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
  std::string key = fmt::format("aicf cubin nvrtc {} {}", nvrtc_version(), architecture);
  for (const char* option : kOptions) key += std::string(" ") + option;
  key += "\n" + text;
  if (const std::string known = read_cache("cubin", key); !known.empty()) return {known.begin(), known.end()};
  std::vector<char> cubin = compile_program(text, architecture);
  write_cache("cubin", key, std::string(cubin.begin(), cubin.end()));
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
