// The text of generated kernels as a library for this processor, with a few lines of C++ for what is the GPU's own.
#pragma once

#include <dlfcn.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <fstream>
#include <regex>
#include <span>
#include <string>

#include "backend/cuda/code.h"
#include "backend/cuda/prelude.h"

namespace aicf::backend::cuda {

// Before the prelude. ptx() stands for an asm statement of one instruction.
inline constexpr const char* kHost = R"(
#include <cmath>
#include <cstring>
#include <utility>
namespace aicf {
unsigned short f32_to_f16(float);
unsigned short f32_to_bf16(float);
float f16_to_f32(unsigned short);
}
#define __device__
#define __forceinline__ inline
struct Index3 { unsigned x, y, z; };
extern "C" { Index3 blockIdx, threadIdx; }
static float __uint_as_float(unsigned bits) { float x; memcpy(&x, &bits, 4); return x; }
static unsigned __float_as_uint(float x) { unsigned bits; memcpy(&bits, &x, 4); return bits; }
static float __int2float_rn(int x) { return (float)x; }
static float __ll2float_rn(long long x) { return (float)x; }
static float __ll2float_rz(long long x) {
  const float y = (float)x;
  const __int128 away = x < 0 ? (__int128)x - (__int128)y : (__int128)y - x;
  return away > 0 ? __uint_as_float(__float_as_uint(y) - 1) : y;
}
static float __int2float_rz(int x) { return __ll2float_rz(x); }
static int __float2int_rz(float x) { return (int)x; }
static long long __float2ll_rz(float x) { return (long long)x; }
template <class From, class To> void ptx(const char* instruction, From x, To& y) {
  const auto is = [&](const char* name) { return strcmp(instruction, name) == 0; };
  if constexpr (sizeof(To) == 2) y = is("cvt.rn.bf16.f32") ? aicf::f32_to_bf16(x) : aicf::f32_to_f16(x);
  else if constexpr (sizeof(From) == 2) y = aicf::f16_to_f32(x);
  else if constexpr (sizeof(To) == 4) y = x >= 0x1p31f ? 0x7fffffff : x > -0x1p31f ? (To)x : -0x7fffffff - 1;
  else y = x >= 0x1p63f ? 0x7fffffffffffffffll : x > -0x1p63f ? (To)x : -0x7fffffffffffffffll - 1;
}
template <class... P, size_t... i> void call(void (*kernel)(P...), void** p, std::index_sequence<i...>) {
  kernel((P)p[i]...);
}
)";

// The kernels as functions kI(void** params), I from 0; `more` goes before them.
inline std::string host_text(std::span<const Generated> kernels, const std::string& more = {}) {
  std::string text = std::string(kHost) + kPrelude + more;
  for (size_t k = 0; k < kernels.size(); ++k) {
    const Generated& g = kernels[k];
    text += "namespace in_" + std::to_string(k) + " {\n" + g.helpers + "void kernel(";
    for (size_t i = 0; i < g.params.size(); ++i) text += (i == 0 ? "" : ", ") + g.params[i].declaration;
    text += ") {\n" + g.body + "}\nextern \"C\" void k" + std::to_string(k) + "(void** p) { call(kernel, p, ";
    text += "std::make_index_sequence<" + std::to_string(g.params.size()) + ">()); }\n}\n";
  }
  static const std::regex kAsm(R"re(asm\(("[a-z0-9.]+) %0, %1;" : "=.+?"\((\w+)\) : ".+?"\(([\w.]+)\)\);)re");
  text = std::regex_replace(text, kAsm, "ptx($1\", $3, $2);");
  static const std::regex kFloat(R"re(asm\("mov.f32 %0, 0f(\w+);" : "=f"\((\w+)\)\);)re");
  text = std::regex_replace(text, kFloat, "$2 = __uint_as_float(0x$1u);");
  static const std::regex kBits(R"re(asm\("mov.b16 %0, (\w+);" : "=h"\((\w+)\)\);)re");
  text = std::regex_replace(text, kBits, "$2 = $1;");
  return std::regex_replace(text, std::regex("#pragma (unroll( 1)?|nv_\\w+ \\w+)"), "");
}

// Compiles and loads it.
inline void* load_host_text(const std::string& name, const std::string& text) {
  const std::string source = ::testing::TempDir() + "/" + name + ".cc",
                    library = ::testing::TempDir() + "/" + name + ".so";
  std::ofstream(source) << text;
  const std::string command = std::string(AICF_CXX) +
                              " -O1 -w -std=c++20 -ffp-contract=off -fwrapv -fno-strict-aliasing -U_FORTIFY_SOURCE " +
                              "-shared -fPIC " + source + " -o " + library;
  if (std::system(command.c_str()) != 0) return nullptr;
  return dlopen(library.c_str(), RTLD_NOW);
}

}  // namespace aicf::backend::cuda
