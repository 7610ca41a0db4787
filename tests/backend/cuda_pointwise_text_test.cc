// The text of the pointwise kernels and of rng_bits, run without a GPU, gives the bits of the CPU kernels.
#include <bit>
#include <cmath>
#include <random>
#include <set>

#include "aicf/error.h"
#include "backend/cuda/code.h"
#include "backend/cuda/kernels.h"
#include "backend/cuda_on_host.h"
#include "ops/defs.h"
#include "ops/kernel_run.h"

namespace aicf::backend::cuda {
namespace {

struct Case {
  test::BoundOp op;
  std::vector<Tensor> operands;
  size_t kernel = 0;
};

// All pairs of special values first, then random bits and numbers of moderate size in turn.
Tensor filled(const TensorType& type, int operand) {
  const float inf = INFINITY, nan = NAN;
  const std::vector<float> special = {0.f,
                                      -0.f,
                                      1.f,
                                      -1.f,
                                      0.5f,
                                      -0.5f,
                                      2.f,
                                      3.f,
                                      1.5f,
                                      2.5f,
                                      inf,
                                      -inf,
                                      nan,
                                      0x1p-126f,
                                      -0x1p-126f,
                                      0x1p-149f,
                                      -0x1p-130f,
                                      0x1.8p-127f,
                                      88.7f,
                                      -87.3f,
                                      1e10f,
                                      8388608.f,
                                      65520.f,
                                      0x1p-24f,
                                      0x1p-25f,
                                      255.5f,
                                      0x1p31f,
                                      -0x1p31f,
                                      0x1p63f,
                                      -0x1p63f,
                                      0x1.fffffep127f};
  std::mt19937_64 random(static_cast<uint64_t>(operand));
  Tensor t(type);
  const int64_t n = static_cast<int64_t>(special.size());
  for (int64_t i = 0; i < t.elements(); ++i) {
    const uint64_t bits = random();
    char* at = static_cast<char*>(t.data()) + i * static_cast<int64_t>(size_of(type.dtype));
    if (is_float(type.dtype) && (i < n * n || i % 2 == 0)) {
      const double moderate = static_cast<double>(bits >> 40) * 0x1p-20 - 8;
      set_element(type.dtype, at, 0, i < n * n ? special[(operand == 1 ? i / n : i) % n] : moderate);
    } else if (type.dtype == boolean) {
      *at = static_cast<char>(bits & 1);
    } else {
      // Large integers; small ones; those just above the middle of two 16-bit floats.
      const int width = static_cast<int>(8 * size_of(type.dtype));
      const auto small = static_cast<uint64_t>(static_cast<int64_t>(bits) >> 60);
      const uint64_t middle = width < 32 ? bits : (uint64_t{1} << (width - 2)) + (uint64_t{1} << (width - 10)) + 1;
      const uint64_t value = is_float(type.dtype) || i % 3 == 0 ? bits : i % 3 == 1 ? small : middle;
      std::memcpy(at, &value, size_of(type.dtype));
    }
  }
  return t;
}

std::vector<Case> all_cases() {
  // With a rest beyond the last pack; with repeated rows, columns and scalars, in packs and element by element.
  const std::vector<std::vector<Shape>> shapes = {
      {{4003}, {4003}, {4003}}, {{64, 70}, {70}, {64, 1}}, {{16, 1}, {3, 16, 48}, {}}, {{5}, {}, {5}}};
  std::vector<Case> cases;
  for (const Shape& shape : {Shape{4003}, Shape{5}, Shape{}, Shape{2, 3, 7}}) {
    Case c;
    const std::vector<int64_t> dims(shape.begin(), shape.end());
    c.op = {
        &ops::rng_bits_def, {{"ordinal", int64_t{0xabcde}}, {"shape", dims}}, {{i64, {}}, {i64, {}}}, {{i32, shape}}};
    for (int k = 0; k < 2; ++k) c.operands.push_back(filled(c.op.in[0], k));
    cases.push_back(std::move(c));
  }
  for (const ir::OpDef* def : ir::op_table()) {
    if (!def->is(ir::kPointwise)) continue;
    const bool casts = def == &ops::cast_def;
    for (int from = 0; from < kDTypeCount; ++from) {
      for (int to = 0; to < (casts ? kDTypeCount : 1); ++to) {
        for (const std::vector<Shape>& s : shapes) {
          Case c;
          c.op.def = def;
          for (int k = 0; k < def->num_inputs; ++k) {
            c.op.in.push_back({def == &ops::select_def && k == 0 ? boolean : static_cast<DType>(from), s[k]});
          }
          if (casts) c.op.attrs.set("to", static_cast<DType>(to));
          try {
            c.op.out = def->infer({*def, c.op.in, c.op.attrs, nullptr});
          } catch (const Error&) {
            continue;  // not a type of the op
          }
          for (int k = 0; k < def->num_inputs; ++k) c.operands.push_back(filled(c.op.in[k], k));
          cases.push_back(std::move(c));
        }
      }
    }
  }
  return cases;
}

const Kernel* kernel_of(const std::vector<Kernel>& table, const test::BoundOp& op) {
  for (const Kernel& k : table) {
    if (std::string_view(k.op) == op.def->name && k.accepts(op.query())) return &k;
  }
  return nullptr;
}

Tensor run_on_host(const Case& c, const test::KernelsOnHost& kernels) {
  std::vector<std::unique_ptr<test::GuardedBuffer>> buffers;
  for (const Tensor& t : c.operands) {
    buffers.push_back(std::make_unique<test::GuardedBuffer>(t.bytes()));
    std::memcpy(buffers.back()->data(), t.data(), t.bytes());
  }
  buffers.push_back(std::make_unique<test::GuardedBuffer>(c.op.out[0].bytes()));
  std::vector<void*> addresses;
  for (const auto& buffer : buffers) addresses.push_back(buffer->data());
  kernels.run(c.kernel, addresses);
  for (const auto& buffer : buffers) EXPECT_TRUE(buffer->intact()) << c.op.text() << ": wrote outside a buffer";
  return Tensor(TensorView(c.op.out[0], buffers.back()->data()));
}

TEST(CudaPointwiseText, HasTheBitsOfTheCpuKernels) {
  std::vector<Case> cases = all_cases();
  test::KernelsOnHost kernels;
  std::erase_if(cases, [&](Case& c) {
    const Kernel* kernel = kernel_of(kernel_table(), c.op);
    if (kernel == nullptr) {
      bool wide = c.op.out[0].dtype == f64;
      for (const TensorType& t : c.op.in) wide = wide || t.dtype == f64;
      EXPECT_TRUE(wide) << c.op.text();
      return true;
    }
    const PreparedKernel prepared = kernel->prepare(c.op.query());
    c.kernel = kernels.add(static_cast<const Code&>(*prepared.code).kernels.at(0));
    return false;
  });
  ASSERT_TRUE(kernels.build());
  for (const Case& c : cases) {
    std::vector<const Tensor*> operands;
    for (const Tensor& t : c.operands) operands.push_back(&t);
    const Tensor want = test::run_kernel(c.op, *kernel_of(cpu::kernel_table(), c.op), operands, {})[0];
    const Tensor got = run_on_host(c, kernels);
    const size_t size = size_of(want.dtype());
    for (int64_t i = 0; i < want.elements(); ++i) {
      const auto byte = static_cast<size_t>(i) * size;
      const bool same = std::memcmp(static_cast<const char*>(got.data()) + byte,
                                    static_cast<const char*>(want.data()) + byte, size) == 0;
      // Which NaN is left open, but for what moves bits.
      const bool nan = c.op.def != &ops::select_def && std::isnan(got.at(i)) && std::isnan(want.at(i));
      ASSERT_TRUE(same || nan) << c.op.text() << " at " << i << ": " << got.at(i) << ", on the CPU " << want.at(i);
    }
  }
}

TEST(CudaPointwiseText, MovesSixteenBytes) {
  const auto body = [](std::vector<TensorType> in) {
    const test::BoundOp op{&ops::add_def, {}, in, ops::add_def.infer({ops::add_def, in, {}, nullptr})};
    return static_cast<const Code&>(*kernel_of(kernel_table(), op)->prepare(op.query()).code).kernels[0].body;
  };
  const auto has = [](const std::string& text, const char* part) { return text.find(part) != std::string::npos; };
  // Equal shapes are one axis, with a rest or without.
  EXPECT_TRUE(has(body({{f32, {3, 400}}, {f32, {3, 400}}}), "load_pack<4>(x1 + (i))"));
  EXPECT_TRUE(has(body({{bf16, {5, 77}}, {bf16, {5, 77}}}), "load_pack<8>(x1 + (i), count)"));
  // A row is loaded in packs too, a column once; where packs cross the ends of rows, element by element.
  EXPECT_TRUE(has(body({{f32, {3, 400}}, {f32, {400}}}), "load_pack<4>(x1 + (c1))"));
  EXPECT_TRUE(has(body({{f32, {3, 400}}, {f32, {3, 1}}}), "const float p0 = x1[c0];"));
  const std::string odd = body({{f32, {4, 7}}, {f32, {7}}});
  EXPECT_TRUE(has(odd, "load_pack<4>(x0 + (i))") && has(odd, "const float t0 = x1[d1];")) << odd;
  // 64-bit indices where 32 do not hold them.
  EXPECT_TRUE(has(body({{i32, {int64_t{1} << 31}}, {i32, {}}}), "const u64 i"));
  EXPECT_TRUE(has(body({{i32, {(int64_t{1} << 31) - 1}}, {i32, {}}}), "const u32 i"));
}

}  // namespace
}  // namespace aicf::backend::cuda
