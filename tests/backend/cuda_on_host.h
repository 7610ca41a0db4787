// Generated CUDA kernels, run without a GPU: compiled for this processor, with a few lines of C++ for what is the GPU's
// own. The threads of a block are fibers that take turns at barriers and shuffles. That the GPU computes what the text
// says is for tests/cuda.
#pragma once

#include <dlfcn.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <fstream>
#include <regex>
#include <string>
#include <utility>
#include <vector>

#include "backend/cuda/code.h"
#include "backend/cuda/prelude.h"
#include "base/thread_pool.h"

namespace aicf::test {

// Before the prelude. ptx() stands for an asm statement of one instruction.
inline constexpr const char* kHostText = R"(
#include <ucontext.h>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <utility>
namespace aicf {
unsigned short f32_to_f16(float);
unsigned short f32_to_bf16(float);
float f16_to_f32(unsigned short);
}
#define __device__
#define __forceinline__ inline
#define __shared__ static
struct Index3 { unsigned x, y, z; };
static Index3 blockIdx, threadIdx, blockDim;

// The threads of a block.
enum State { ready, at_block, at_warp, done };
static const int kMost = 1024;
static const size_t kStack = 256 << 10;
static ucontext_t scheduler, fibers[kMost];
static State states[kMost];
static unsigned long long slots[kMost];
static char* stacks = nullptr;
static void (*body)(void**);
static void** arguments;
static void fiber() {
  body(arguments);
  states[threadIdx.x] = done;
  swapcontext(&fibers[threadIdx.x], &scheduler);
}
static void wait(State state) {
  const unsigned self = threadIdx.x;
  states[self] = state;
  swapcontext(&fibers[self], &scheduler);
}
static void __syncthreads() { wait(at_block); }
static void __syncwarp() { wait(at_warp); }
template <class T> static T __shfl_xor_sync(unsigned, T v, int distance) {
  static_assert(sizeof(T) <= 8);
  const unsigned self = threadIdx.x;
  memcpy(&slots[self], &v, sizeof v);
  wait(at_warp);
  if ((self ^ distance) >= blockDim.x) abort();
  T other;
  memcpy(&other, &slots[self ^ distance], sizeof other);
  wait(at_warp);
  return other;
}
// All that are not done have come to the barrier.
static bool release(unsigned begin, unsigned end, State barrier) {
  bool any = false;
  for (unsigned t = begin; t < end; ++t) {
    if (states[t] == done) continue;
    if (states[t] != barrier) return false;
    any = true;
  }
  for (unsigned t = begin; t < end; ++t) {
    if (states[t] == barrier) states[t] = ready;
  }
  return any;
}
static void run_block(void (*kernel)(void**), void** p, unsigned block, unsigned threads) {
  if (!stacks) stacks = (char*)malloc(kStack * kMost);
  body = kernel, arguments = p;
  blockIdx = {block}, blockDim = {threads};
  for (unsigned t = 0; t < threads; ++t) {
    getcontext(&fibers[t]);
    fibers[t].uc_stack.ss_sp = stacks + t * kStack;
    fibers[t].uc_stack.ss_size = kStack;
    fibers[t].uc_link = nullptr;
    makecontext(&fibers[t], fiber, 0);
    states[t] = ready;
  }
  for (bool any = true; any;) {
    any = false;
    for (unsigned t = 0; t < threads; ++t) {
      if (states[t] != ready) continue;
      any = true;
      threadIdx = {t};
      swapcontext(&scheduler, &fibers[t]);
    }
    for (unsigned w = 0; w < threads; w += 32) any |= release(w, w + 32 < threads ? w + 32 : threads, at_warp);
    any |= release(0, threads, at_block);
  }
  for (unsigned t = 0; t < threads; ++t) {
    if (states[t] != done) {
      fprintf(stderr, "thread %u of block %u waits for ever\n", t, block);
      abort();
    }
  }
}

static float __uint_as_float(unsigned bits) { float x; memcpy(&x, &bits, 4); return x; }
static float __int_as_float(int bits) { return __uint_as_float((unsigned)bits); }
static unsigned __float_as_uint(float x) { unsigned bits; memcpy(&bits, &x, 4); return bits; }
static float __fmaf_rn(float a, float b, float c) { return __builtin_fmaf(a, b, c); }
static float max_NaN(float a, float b) {
  if (a == b) return __uint_as_float(__float_as_uint(a) & __float_as_uint(b));
  return a > b || a != a ? a : b;
}
static float min_NaN(float a, float b) {
  if (a == b) return __uint_as_float(__float_as_uint(a) | __float_as_uint(b));
  return a < b || a != a ? a : b;
}
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

class KernelsOnHost {
 public:
  // `more` follows the prelude: further instructions.
  explicit KernelsOnHost(std::string more = {}) : more_(std::move(more)) {}
  KernelsOnHost(const KernelsOnHost&) = delete;
  KernelsOnHost& operator=(const KernelsOnHost&) = delete;
  ~KernelsOnHost() {
    if (library_ != nullptr) dlclose(library_);
  }
  // Its number. REQUIRES: not built yet.
  size_t add(backend::cuda::Generated kernel) {
    kernels_.push_back(std::move(kernel));
    return kernels_.size() - 1;
  }
  const backend::cuda::Generated& kernel(size_t number) const { return kernels_[number]; }

  // False, and a failure, when the text does not compile.
  bool build() {
    const std::string base = ::testing::TempDir() + "/kernels", source = base + ".cc", library = base + ".so";
    std::ofstream(source) << text();
    const std::string command = std::string(AICF_CXX) +
                                " -O1 -w -std=c++20 -ffp-contract=off -fwrapv -fno-strict-aliasing -shared -fPIC " +
                                source + " -o " + library;
    EXPECT_EQ(std::system(command.c_str()), 0);
    library_ = dlopen(library.c_str(), RTLD_NOW);
    EXPECT_NE(library_, nullptr) << dlerror();
    return library_ != nullptr;
  }

  // `buffers` are the launch's.
  void run(size_t number, const std::vector<void*>& buffers) const {
    const backend::cuda::Generated& g = kernels_[number];
    auto* const fn =
        reinterpret_cast<void (*)(void**, unsigned, unsigned)>(dlsym(library_, ("k" + std::to_string(number)).c_str()));
    std::vector<void*> params;
    for (const auto& p : g.params) params.push_back(buffers.at(static_cast<size_t>(p.buffer)));
    const base::FlushSubnormals flush;
    for (int64_t b = 0; b < g.blocks; ++b)
      fn(params.data(), static_cast<unsigned>(b), static_cast<unsigned>(g.threads));
  }

 private:
  std::string text() const {
    std::string text = std::string(kHostText) + backend::cuda::kPrelude + more_;
    for (size_t k = 0; k < kernels_.size(); ++k) {
      const backend::cuda::Generated& g = kernels_[k];
      const std::string name = std::to_string(k);
      text += "namespace in_" + name + " {\n" + g.helpers + "static void kernel(";
      for (size_t i = 0; i < g.params.size(); ++i) text += (i == 0 ? "" : ", ") + g.params[i].declaration;
      text += ") {\nalignas(16) static u8 pool[" + std::to_string(g.pool_bytes + 1) + "];\n" + g.body +
              "}\nstatic void called(void** p) { call(kernel, p, std::make_index_sequence<";
      text += std::to_string(g.params.size()) + ">()); }\nextern \"C\" void k" + name;
      text += "(void** p, unsigned block, unsigned threads) { run_block(called, p, block, threads); }\n}\n";
    }
    static const std::regex kConvert(R"re(asm\(("[a-z0-9.]+) %0, %1;" : "=.+?"\((\w+)\) : ".+?"\(([\w.]+)\)\);)re"),
        kFloat(R"re(asm\("mov.f32 %0, 0f([0-9A-F]+);" : "=f"\((\w+)\)\);)re"),
        kExtreme(R"re(asm\("(max|min)\.NaN\.f32 %0, %1, %2;" : "=f"\((\w+)\) : "f"\((\w+)\), "f"\((\w+)\)\);)re"),
        kBits(R"re(asm\("mov.b16 %0, (\w+);" : "=h"\((\w+)\)\);)re"), kPragma("#pragma (unroll( 1)?|nv_\\w+ \\w+)");
    text = std::regex_replace(text, kConvert, "ptx($1\", $3, $2);");
    text = std::regex_replace(text, kExtreme, "$2 = $1_NaN($3, $4);");
    text = std::regex_replace(text, kFloat, "$2 = __uint_as_float(0x$1u);");
    text = std::regex_replace(text, kBits, "$2 = $1;");
    return std::regex_replace(text, kPragma, "");
  }

  const std::string more_;
  std::vector<backend::cuda::Generated> kernels_;
  void* library_ = nullptr;
};

}  // namespace aicf::test
