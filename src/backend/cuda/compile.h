// From the text of generated kernels to loaded functions: NVRTC, a cache of cubins on disk, and the module loader.
#pragma once

#include <cuda_runtime_api.h>

#include <span>
#include <string>
#include <vector>

#include "backend/cuda/code.h"

namespace aicf::backend::cuda {

// A cubin loaded on the device, unloaded with the object.
struct Module {
  explicit Module(const std::vector<char>& cubin);
  Module(const Module&) = delete;
  Module& operator=(const Module&) = delete;
  ~Module();
  cudaLibrary_t library = nullptr;
};

// The program that defines these kernels, each under kernel_name() and once. Equal kernels give equal text.
std::string program_text(std::span<const Generated* const> kernels);
std::string kernel_name(const Generated& kernel);

// The cubin of a program for "sm_90" or the like. Throws Error with NVRTC's first complaint.
std::vector<char> compile_program(const std::string& text, const std::string& architecture);

// As compile_program(), through the cache on disk: $AICF_CACHE_DIR, else $XDG_CACHE_HOME/aicf, else ~/.cache/aicf; one
// that cannot be read or written is done without. Safe under concurrent use; a corrupt entry is compiled anew.
std::vector<char> cached_program(const std::string& text, const std::string& architecture);

// Compiles the kernels in one program and, with `load`, loads it and fills in their functions. Throws Error naming the
// op whose kernel does not compile.
void link_kernels(std::span<Generated* const> kernels, const std::string& architecture, bool load);

}  // namespace aicf::backend::cuda
