// Every generated kernel compiles for sm_90, without a GPU; and what compile.h promises of messages, sharing and the
// cache.
#include <filesystem>
#include <fstream>
#include <map>
#include <regex>
#include <thread>

#include "aicf/error.h"
#include "backend/cuda/code.h"
#include "backend/cuda/compile.h"
#include "backend/cuda/kernels.h"
#include "ops/harness.h"
#include "support/cache_folder.h"

namespace aicf::backend::cuda {
namespace {

namespace fs = std::filesystem;
using test::OpCase;

constexpr const char* kArchitecture = "sm_90";

// --- every op ---------------------------------------------------------------------------------------------------

std::vector<PreparedKernel> prepared_for(const OpCase& c) {
  const test::OpGraph built = test::graph_of(*c.def, c.sample);
  const test::BoundOp op = test::bind(built.graph, built.graph.op(0));
  std::vector<PreparedKernel> all;
  for (const Kernel& kernel : kernel_table()) {
    if (std::string_view(kernel.op) == c.def->name && kernel.accepts(op.query())) {
      all.push_back(kernel.prepare(op.query()));
    }
  }
  EXPECT_FALSE(all.empty()) << c.text() << ": no CUDA kernel accepts " << op.text();
  return all;
}

// The text with all numbers made the same: what is left is how the kernel is built.
std::string form(const Generated& kernel) {
  return std::regex_replace(kernel.helpers + kernel.body, std::regex("[0-9]+"), "#");
}

// Of the kernels of an op, those alike but for numbers are compiled once. All of them are compiled where they are run:
// tests/cuda.
TEST(CudaCompile, EveryOpAndDtype) {
  constexpr size_t kPerProgram = 64;
  size_t count = 0;
  std::vector<PreparedKernel> keep;
  std::map<std::string, const Generated*> distinct;
  for (const ir::OpDef* def : ir::op_table()) {
    if (def->is(ir::kComposite)) continue;
    std::set<DType> tested;
    std::set<std::string> forms;
    for (const OpCase& c : test::gpu_cases_of(*def)) {
      tested.insert(c.dtype);
      for (PreparedKernel& kernel : prepared_for(c)) {
        if (kernel.code == nullptr) continue;
        for (const Generated& g : static_cast<const Code&>(*kernel.code).kernels) {
          ++count;
          EXPECT_GT(g.blocks, 0) << c.text();
          EXPECT_LT(g.blocks, int64_t{1} << 31) << c.text();
          EXPECT_TRUE(g.threads > 0 && g.threads <= 1024) << c.text();
          EXPECT_FALSE(g.what.empty()) << c.text();
          if (forms.insert(form(g)).second) distinct.emplace(kernel_name(g), &g);
        }
        keep.push_back(std::move(kernel));
      }
    }
    for (DType dtype : def->dtypes) {
      EXPECT_TRUE(dtype == f64 || tested.contains(dtype))
          << def->name << " has no sample that runs in " << name_of(dtype);
    }
  }
  std::vector<const Generated*> list;
  for (const auto& [name, kernel] : distinct) list.push_back(kernel);
  std::printf("%zu kernels, %zu forms of them compiled\n", count, list.size());
  for (size_t i = 0; i < list.size(); i += kPerProgram) {
    const auto some = std::span(list).subspan(i, std::min(kPerProgram, list.size() - i));
    EXPECT_NO_THROW(compile_program(program_text(some), kArchitecture)) << some.front()->what;
  }
}

// --- programs ---------------------------------------------------------------------------------------------------

Generated adder(const std::string& amount, const std::string& what = "add(f32[4])") {
  Generated kernel;
  kernel.what = what;
  kernel.params = {{"const float* x", 0}, {"float* y", 1}};
  kernel.helpers = "DEVICE float more(float v) { return v + " + amount + "; }\n";
  kernel.body = "y[threadIdx.x] = more(x[threadIdx.x]);\n";
  kernel.blocks = 1;
  kernel.threads = 4;
  return kernel;
}

std::string error_of(const std::function<void()>& body) {
  try {
    body();
  } catch (const Error& e) {
    return e.what();
  }
  return "";
}

void link(std::vector<Generated> kernels) {
  std::vector<Generated*> pointers;
  for (Generated& k : kernels) pointers.push_back(&k);
  link_kernels(pointers, kArchitecture, false);
}

std::string text_of(const std::vector<Generated>& kernels) {
  std::vector<const Generated*> pointers;
  for (const Generated& k : kernels) pointers.push_back(&k);
  return program_text(pointers);
}

size_t occurrences(const std::string& text, const std::string& what) {
  size_t n = 0;
  for (size_t at = text.find(what); at != std::string::npos; at = text.find(what, at + 1)) ++n;
  return n;
}

TEST(Program, DefinesEqualKernelsOnce) {
  const Generated a = adder("1.0f"), b = adder("2.0f");
  EXPECT_EQ(kernel_name(a), kernel_name(adder("1.0f", "add(f32[1,4])")));  // what it is called matters to messages only
  EXPECT_NE(kernel_name(a), kernel_name(b));
  EXPECT_EQ(occurrences(text_of({a, b, a}), "__global__"), 2u);
  EXPECT_EQ(text_of({a, b}), text_of({b, a, b}));
}

// Kernels that each bring a helper of one name find their own.
TEST(Program, KeepsHelpersApart) {
  EXPECT_NO_THROW(compile_program(text_of({adder("1.0f"), adder("2.0f")}), kArchitecture));
}

using CudaLink = test::CacheFolderTest;

std::string read(const fs::path& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
}
void write(const fs::path& path, const std::string& bytes) { std::ofstream(path, std::ios::binary) << bytes; }

TEST_F(CudaLink, ABrokenKernelNamesItsOpAndNoOther) {
  Generated broken = adder("undeclared", "broken_op(f32[4])");
  const std::string error = error_of([&] { link({adder("1.0f"), broken, adder("2.0f")}); });
  EXPECT_TRUE(error.starts_with("broken_op(f32[4]): its generated kernel does not compile: ")) << error;
  EXPECT_NE(error.find("undeclared"), std::string::npos) << error;
  EXPECT_EQ(error.find("add("), std::string::npos) << error;
  EXPECT_EQ(occurrences(error, "does not compile"), 1u) << error;
  EXPECT_EQ(error_of([] { link({adder("1.0f"), adder("2.0f")}); }), "");
}

TEST_F(CudaLink, TheSecondLinkIsServedFromDisk) {
  link({adder("1.0f")});
  ASSERT_EQ(entries().size(), 1u);
  const fs::path entry = entries()[0];
  const std::string bytes = read(entry);
  // An entry that is compiled anew is replaced by a file of its own; this one is only read.
  fs::create_hard_link(entry, folder_ / "same");
  link({adder("1.0f")});
  EXPECT_EQ(fs::hard_link_count(entry), 2u);
  EXPECT_EQ(read(entry), bytes);
  fs::remove(folder_ / "same");
  link({adder("2.0f")});
  EXPECT_EQ(entries().size(), 2u);
}

TEST_F(CudaLink, ADamagedEntryIsCompiledAnew) {
  const std::string text = text_of({adder("1.0f")});
  const std::vector<char> cubin = cached_program(text, kArchitecture);
  EXPECT_EQ(cubin, compile_program(text, kArchitecture));
  ASSERT_EQ(entries().size(), 1u);
  const fs::path entry = entries()[0];
  const std::string good = read(entry);
  std::string flipped = good;
  flipped[flipped.size() - 100] = static_cast<char>(flipped[flipped.size() - 100] ^ 1);
  for (const std::string& bad : {std::string(), good.substr(0, 10), good.substr(0, good.size() / 2),
                                 good.substr(0, good.size() - 1), flipped, good + "x", "z" + good.substr(1)}) {
    write(entry, bad);
    EXPECT_EQ(cached_program(text, kArchitecture), cubin) << bad.size() << " of " << good.size() << " bytes";
    EXPECT_EQ(read(entry), good) << "not repaired";
  }
}

TEST_F(CudaLink, AFolderThatCannotBeWrittenIsDoneWithout) {
  write(fs::path(::testing::TempDir()) / "cuda_compile_file", "in the way");
  const std::string blocked = (fs::path(::testing::TempDir()) / "cuda_compile_file" / "cache").string();
  for (const std::string& folder : {blocked, std::string("/proc/no/such"), std::string()}) {
    setenv("AICF_CACHE_DIR", folder.c_str(), 1);
    EXPECT_EQ(error_of([] { link({adder("3.0f")}); }), "") << folder;
  }
  EXPECT_TRUE(entries().empty());
  fs::remove(fs::path(::testing::TempDir()) / "cuda_compile_file");
}

TEST_F(CudaLink, ThreadsAtOnce) {
  std::vector<std::string> errors(6);
  std::vector<std::thread> threads;
  for (size_t i = 0; i < errors.size(); ++i) {
    threads.emplace_back([&errors, i] {
      errors[i] = error_of([i] {
        link({adder("1.0f"), adder("2.0f")});                   // all of them the same
        link({adder(std::to_string(i) + ".25f")});              // each its own
        if (i % 2 == 0) link({adder("undeclared", "broken")});  // and one that fails
      });
    });
  }
  for (std::thread& t : threads) t.join();
  for (size_t i = 0; i < errors.size(); ++i) EXPECT_EQ(errors[i].starts_with("broken"), i % 2 == 0) << errors[i];
  EXPECT_EQ(entries().size(), 7u);
}

}  // namespace
}  // namespace aicf::backend::cuda
