// The text of the own matmul and its epilogues, run without a GPU, with C++ for the instructions of a warp. Copies in
// the background are done as late as the text allows.
#include <algorithm>
#include <cmath>
#include <cstring>
#include <random>

#include "aicf/error.h"
#include "backend/cuda/kernels.h"
#include "backend/cuda/mma.h"
#include "backend/cuda/mma_text.h"
#include "backend/cuda_on_host.h"
#include "ops/defs.h"
#include "ops/interpret.h"

namespace aicf::backend::cuda {
namespace {

// In place of kMmaInstructions.
constexpr const char* kWarps = R"(
#include <deque>
#include <vector>
struct Copy { void* to; const void* from; int bytes; bool inside; };
struct Lane {
  std::vector<Copy> open;
  std::deque<std::vector<Copy>> committed;
  const void* row;
  u32 a[4], b[2];
};
static Lane lanes[1024];
static int lane() { return threadIdx.x % 32; }
static Lane& self() { return lanes[threadIdx.x]; }
static Lane& other(int lane) { return lanes[threadIdx.x / 32 * 32 + lane]; }
template <int kBytes> void copy_async(void* to, const void* from, bool inside) {
  if ((size_t)to % kBytes != 0 || (size_t)from % kBytes != 0) { fputs("misaligned copy\n", stderr); abort(); }
  self().open.push_back({to, from, kBytes, inside});
}
void commit_copies() { self().committed.push_back(std::move(self().open)); self().open.clear(); }
template <int kPending> void wait_for_copies() {
  for (; self().committed.size() > kPending; self().committed.pop_front()) {
    for (const Copy& c : self().committed.front()) {
      if (c.inside) memcpy(c.to, c.from, c.bytes); else memset(c.to, 0, c.bytes);
    }
  }
}
static void matrices(u32 (&x)[4], const void* row, bool transposed) {
  if ((size_t)row % 16 != 0) { fputs("misaligned row\n", stderr); abort(); }
  self().row = row;
  __syncwarp();
  for (int i = 0; i < 4; ++i) {
    u16 pair[2];
    for (int j = 0; j < 2; ++j) {
      const int r = transposed ? lane() % 4 * 2 + j : lane() / 4, c = transposed ? lane() / 4 : lane() % 4 * 2 + j;
      pair[j] = static_cast<const u16*>(other(i * 8 + r).row)[c];
    }
    x[i] = pair[0] | (u32)pair[1] << 16;
  }
  __syncwarp();
}
void load_matrices(u32 (&x)[4], const void* row) { matrices(x, row, false); }
void load_matrices_transposed(u32 (&x)[4], const void* row) { matrices(x, row, true); }
u32 to_tf32(u32 x) { return (x + 0x1000) & 0xffffe000; }
template <int kDepth, class Element> void multiply_as(float (&c)[4], const u32 (&a)[4], u32 b0, u32 b1, Element element) {
  constexpr int kHalf = kDepth / 2, kPacked = kDepth / 8;
  memcpy(self().a, a, sizeof a);
  self().b[0] = b0, self().b[1] = b1;
  __syncwarp();
  for (int i = 0; i < 4; ++i) {
    const int row = lane() / 4 + i / 2 * 8, col = lane() % 4 * 2 + i % 2;
    double sum = c[i];
    for (int k = 0; k < kDepth; ++k) {
      const u32 x = other(row % 8 * 4 + k % kHalf / kPacked).a[row / 8 + k / kHalf * 2];
      const u32 y = other(col * 4 + k % kHalf / kPacked).b[k / kHalf];
      sum += (double)element(x, k % kPacked) * element(y, k % kPacked);
    }
    c[i] = (float)sum;
  }
  __syncwarp();
}
void multiply(float (&c)[4], const u32 (&a)[4], u32 b0, u32 b1, float) {
  multiply_as<8>(c, a, b0, b1, [](u32 x, int) { return (x & 0x1fff) == 0 ? __uint_as_float(x) : NAN; });
}
void multiply(float (&c)[4], const u32 (&a)[4], u32 b0, u32 b1, bf16) {
  multiply_as<16>(c, a, b0, b1, [](u32 x, int i) { return __uint_as_float(i == 0 ? x << 16 : x & 0xffff0000u); });
}
void multiply(float (&c)[4], const u32 (&a)[4], u32 b0, u32 b1, f16) {
  multiply_as<16>(c, a, b0, b1, [](u32 x, int i) { return aicf::f16_to_f32((u16)(x >> 16 * i)); });
}
)";

// Memory with NaN before and after it.
class Buffer {
 public:
  explicit Buffer(size_t bytes) : bytes_(bytes), memory_(bytes + 3 * kMargin, 0xff) {
    data_ = memory_.data() + kMargin;
    data_ += (256 - reinterpret_cast<uintptr_t>(data_) % 256) % 256;
  }
  explicit Buffer(const Tensor& t) : Buffer(t.bytes()) { std::memcpy(data_, t.data(), t.bytes()); }
  unsigned char* data() const { return data_; }
  bool intact() const {
    const auto is_margin = [](unsigned char byte) { return byte == 0xff; };
    return std::all_of(memory_.data(), static_cast<const unsigned char*>(data_), is_margin) &&
           std::all_of(static_cast<const unsigned char*>(data_) + bytes_, memory_.data() + memory_.size(), is_margin);
  }

 private:
  static constexpr size_t kMargin = 4096;
  size_t bytes_;
  std::vector<unsigned char> memory_;
  unsigned char* data_ = nullptr;
};

// A kernel, its operands, and what must come of them.
struct Case {
  std::string name;
  Generated kernel;
  std::vector<Tensor> operands, expected;
  Tensor product = {};  // of a kernel that reads it from memory: from a result or from the workspace, which is last
};

Tensor whole_numbers(const TensorType& type, uint32_t seed) {
  std::minstd_rand random(seed);
  Tensor tensor(type);
  for (int64_t i = 0; i < tensor.elements(); ++i) {
    set_element(type.dtype, tensor.data(), i, static_cast<double>(random() % 7) - 3);
  }
  return tensor;
}

test::BoundOp matmul_of(Shape a, Shape b, DType in, DType out, bool tf32, bool ta, bool tb) {
  test::BoundOp op{&ops::matmul_def, {}, {{in, a}, {in, b}}, {}};
  if (ta) op.attrs.set("ta", true);
  if (tb) op.attrs.set("tb", true);
  if (tf32) op.attrs.set("compute", std::string("tf32"));
  if (out != in) op.attrs.set("out", out);
  op.out = ops::matmul_def.infer({ops::matmul_def, op.in, op.attrs, nullptr});
  return op;
}

std::vector<Tensor> on_cpu(const test::BoundOp& op, const std::vector<Tensor>& operands) {
  std::vector<const Tensor*> pointers;
  for (const Tensor& t : operands) pointers.push_back(&t);
  return test::run_kernel(op, *choose(cpu::kernel_table(), op.query()), pointers, {});
}

// Sums of whole numbers are exact in any order.
Case plain(const test::BoundOp& op, const MmaTile& tile) {
  Case c;
  c.name = op.text() + " by " + tile.name();
  const MmaProblem problem = mma_problem(op.query());
  c.kernel = mma_kernel(
      problem, tile, EpilogueText(plain_loops(op.out[0].dtype, op.out[0].shape.elements()), problem.grid.n, 2), c.name);
  for (size_t i = 0; i < 2; ++i) c.operands.push_back(whole_numbers(op.in[i], static_cast<uint32_t>(i + 1)));
  c.expected = on_cpu(op, c.operands);
  return c;
}

void run(std::vector<Case>& cases) {
  test::KernelsOnHost host(kWarps);
  for (Case& c : cases) {
    const size_t at = c.kernel.helpers.find(kMmaInstructions);
    if (at != std::string::npos) c.kernel.helpers.erase(at, std::strlen(kMmaInstructions));
    host.add(c.kernel);
  }
  ASSERT_TRUE(host.build());
  for (size_t i = 0; i < cases.size(); ++i) {
    const Case& c = cases[i];
    SCOPED_TRACE(c.name);
    std::vector<Buffer> buffers;
    for (const Tensor& t : c.operands) buffers.emplace_back(t);
    for (const Tensor& t : c.expected) buffers.emplace_back(t.bytes());
    buffers.emplace_back(c.product.bytes());
    for (const Generated::Param& p : c.kernel.params) {
      const bool reads = p.declaration.starts_with("const ") && p.buffer >= static_cast<int>(c.operands.size());
      if (reads) std::memcpy(buffers[static_cast<size_t>(p.buffer)].data(), c.product.data(), c.product.bytes());
    }
    std::vector<void*> addresses;
    for (const Buffer& b : buffers) addresses.push_back(b.data());
    host.run(i, addresses);
    for (const Buffer& b : buffers) ASSERT_TRUE(b.intact()) << "wrote outside a buffer";
    for (size_t r = 0; r < c.expected.size(); ++r) {
      const Tensor got(TensorView(c.expected[r].type(), buffers[c.operands.size() + r].data()));
      for (int64_t k = 0; k < got.elements(); ++k)
        ASSERT_EQ(got.at(k), c.expected[r].at(k)) << "result " << r << " at " << k;
    }
  }
}

struct Types {
  DType in = f32, out = f32;
  bool tf32 = false;
};
constexpr Types kTypes[] = {{f32, f32}, {f32, f32, true}, {bf16, bf16}, {f16, f32}};

// Every tile, with each kind of operand and each order of their axes in turn.
TEST(CudaMmaText, EveryTileIsExactOnWholeNumbers) {
  std::vector<Case> cases;
  size_t turn = 0;
  for (const Types& t : kTypes) {
    for (const auto& [m, n, k] : std::vector<std::array<int64_t, 3>>{{136, 144, 72}, {37, 29, 53}, {70, 12, 130}}) {
      for (size_t i = 0;; ++i, ++turn) {
        const bool ta = turn % 2 == 1, tb = turn / 2 % 2 == 1;
        const test::BoundOp op =
            matmul_of(ta ? Shape{k, m} : Shape{m, k}, tb ? Shape{n, k} : Shape{k, n}, t.in, t.out, t.tf32, ta, tb);
        const std::vector<MmaChoice> tiles = possible_tiles(mma_problem(op.query()));
        if (i == tiles.size()) break;
        cases.push_back(plain(op, tiles[i].tile));
      }
    }
  }
  run(cases);
}

TEST(CudaMmaText, EveryShapeIsExactOnWholeNumbers) {
  std::vector<Case> cases;
  for (const Types& t : kTypes) {
    const auto add = [&](Shape a, Shape b, bool ta = false, bool tb = false) {
      const test::BoundOp op = matmul_of(a, b, t.in, t.out, t.tf32, ta, tb);
      cases.push_back(plain(op, choose_tile(mma_problem(op.query())).tile));
    };
    add({1, 1}, {1, 1});
    add({1, 17}, {17, 1});
    add({5, 3}, {3, 9});
    add({40, 784}, {24, 784}, false, true);
    add({3, 5, 7}, {3, 7, 9});
    add({2, 1, 5, 8}, {1, 3, 8, 16});
    add({4, 1, 2, 5, 3}, {3, 1, 3, 4});
    add({7, 5}, {2, 3, 9, 7}, true, true);
    add({2, 3, 5, 7}, {9, 7}, false, true);
    add({6, 64, 32}, {6, 64, 32}, false, true);
    add({64, 33}, {64, 65}, true, false);
  }
  run(cases);
}

// The matmul of an epilogue's region.
test::BoundOp product_of(const ir::Graph& region) {
  for (const ir::Op& op : region.ops()) {
    if (op.def == &ops::matmul_def) return test::bind(region, op);
  }
  throw InternalError("no matmul");
}

// A sample on whole numbers, and what comes of it on the CPU: the product is exact.
Case on_whole_numbers(const ir::Sample& sample) {
  Case c;
  c.name = sample.name;
  test::TensorMap feeds;
  for (size_t i = 0; i < sample.inputs.size(); ++i) {
    c.operands.push_back(whole_numbers(sample.inputs[i], static_cast<uint32_t>(i + 1)));
  }
  size_t operand = 0;
  for (ir::ValueId v = 0; v < sample.region->num_values(); ++v) {
    if (sample.region->is_external(v)) feeds[sample.region->value(v).name] = c.operands[operand++];
  }
  const test::TensorMap results = test::interpret(*sample.region, feeds);
  for (const ir::Output& o : sample.region->outputs()) c.expected.push_back(results.at(o.name));
  return c;
}

std::vector<ir::Sample> epilogues() {
  std::vector<ir::Sample> samples = ops::fused_def.samples();
  std::erase_if(samples,
                [](const ir::Sample& s) { return ops::loops_of(*s.region)->kind != ops::Loops::Kind::epilogue; });
  return samples;
}

TEST(CudaMmaText, EpiloguesHaveTheBitsOfTheirOpsOneByOne) {
  std::vector<Case> cases;
  for (const ir::Sample& sample : epilogues()) {
    const ops::Loops loops = *ops::loops_of(*sample.region);
    const MmaProblem problem = mma_problem(product_of(*sample.region).query());
    for (const MmaChoice& choice : possible_tiles(problem)) {
      Case c = on_whole_numbers(sample);
      c.name += " by " + choice.tile.name();
      const EpilogueText epilogue(loops, problem.grid.n, static_cast<int>(sample.inputs.size()));
      c.kernel = mma_kernel(problem, choice.tile, epilogue, c.name);
      cases.push_back(std::move(c));
    }
  }
  ASSERT_FALSE(cases.empty());
  run(cases);
}

// The kernel that follows the library's, from where that writes its result.
TEST(CudaMmaText, AfterTheLibraryTooEpiloguesHaveTheBitsOfTheirOpsOneByOne) {
  std::vector<Case> cases;
  bool from_result = false;
  for (const ir::Sample& sample : epilogues()) {
    Case c = on_whole_numbers(sample);
    test::BoundOp op{&ops::fused_def, {}, sample.inputs, {}, sample.region};
    for (const Tensor& t : c.expected) op.out.push_back(t.type());
    const auto kernel = std::find_if(kernel_table().begin(), kernel_table().end(), [](const Kernel& k) {
      return std::string_view(k.variant) == "epilogue cublasLt";
    });
    ASSERT_TRUE(kernel->accepts(op.query())) << sample.name;
    const PreparedKernel prepared = kernel->prepare(op.query());
    const auto& code = static_cast<const Code&>(*prepared.code);
    ASSERT_TRUE(code.library && code.kernels.size() == 1 && !prepared.guardable) << sample.name;
    c.kernel = code.kernels[0];
    // Its first two operands are the factors.
    c.product = on_cpu(product_of(*sample.region), {c.operands[0], c.operands[1]})[0];
    EXPECT_TRUE(prepared.workspace_bytes == 0 || prepared.workspace_bytes >= c.product.bytes());
    from_result = from_result || prepared.workspace_bytes == 0;
    cases.push_back(std::move(c));
  }
  EXPECT_TRUE(from_result);
  run(cases);
}

}  // namespace
}  // namespace aicf::backend::cuda
