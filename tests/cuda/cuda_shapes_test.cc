// Kernels that choose by shape how they share out the work, over shapes that bring out every choice: long and short
// rows and columns, aligned and not, few and many of them; numbers that meet infinities, NaN, zeros and subnormals.
#include <random>

#include "cuda/kernel_check.h"
#include "ops/defs.h"

namespace aicf::test {
namespace {

// Whole numbers over all of their dtype's range; floats of several magnitudes, a few of them special.
Tensor numbers(const TensorType& type) {
  std::mt19937_64 random(text_hash(to_string(type)));
  const double special[] = {0.0, -0.0, NAN, INFINITY, -INFINITY, 0x1p-130, -0x1p-130, 0x1.8p-15, -0x1p-24};
  Tensor t(type);
  for (int64_t i = 0; i < t.elements(); ++i) {
    const uint64_t bits = random();
    if (type.dtype == i64) {
      t.as<int64_t>()[i] = static_cast<int64_t>(bits);
    } else if (type.dtype == i32) {
      t.as<int32_t>()[i] = static_cast<int32_t>(bits);
    } else if (type.dtype == u8 || type.dtype == boolean) {
      set_element(type.dtype, t.data(), i, static_cast<double>(bits % (type.dtype == u8 ? 256 : 2)));
    } else {
      // One in a thousand special, so that most sums of a row are finite.
      const double unit = static_cast<double>(bits >> 11) * 0x1p-53;
      const double v = bits % 1024 == 0 ? special[bits / 1024 % std::size(special)]
                                        : (2 * unit - 1) * static_cast<double>(1 << (bits % 6));
      set_element(type.dtype, t.data(), i, v);
    }
  }
  return t;
}

// One in sixteen out of range.
Tensor index(const TensorType& type, int64_t extent) {
  std::mt19937_64 random(text_hash(to_string(type)));
  Tensor t(type);
  for (int64_t i = 0; i < t.elements(); ++i) {
    const auto drawn = static_cast<int64_t>(random() >> 1);
    // Small indices often, as words of a text are.
    int64_t k = drawn % 2 == 0 ? drawn / 2 % extent : drawn / 2 % std::max<int64_t>(1, extent / 50);
    if (drawn / 4 % 16 == 0) k = drawn % 3 == 0 ? -1 - drawn % 5 : extent + drawn % 5;
    set_element(type.dtype, t.data(), i, static_cast<double>(k));
  }
  return t;
}

OpCase reduction(const ir::OpDef& def, DType dtype, const Shape& shape, int64_t axis) {
  ir::Sample s;
  s.name = to_string(TensorType{dtype, shape}) + " over " + std::to_string(axis);
  s.inputs = {{dtype, shape}};
  s.attrs =
      def.name == std::string("argmax") ? ir::Attrs{{"axis", axis}} : ir::Attrs{{"axes", std::vector<int64_t>{axis}}};
  s.values = {{0, numbers(s.inputs[0])}};
  return {&def, s, dtype};
}

// Products are shared out as sums are, and minima as maxima.
bool is_second(const ir::OpDef& def) { return &def == &ops::reduce_prod_def || &def == &ops::reduce_min_def; }

void run(KernelCheck& check) {
  check.run();
  if (compile_only()) GTEST_SKIP() << "compiled only";
}

class CudaReduceShapes : public ::testing::TestWithParam<const ir::OpDef*> {};

TEST_P(CudaReduceShapes, EveryDtypeOnSmallShapes) {
  const ir::OpDef& def = *GetParam();
  const bool argmax = &def == &ops::argmax_def;
  KernelCheck check;
  for (DType dtype : def.dtypes) {
    if (dtype == f64 || (is_second(def) && dtype != f32 && dtype != bf16)) continue;
    for (int64_t n : {1, 3, 10, 33, 64, 100, 1000, 1024, 1025, 4096, 8200, 20000}) {
      check.add(reduction(def, dtype, {3, n}, 1));
    }
    for (int64_t n : {1, 64, 65, 200, 5000}) {
      for (int64_t inner : {2, 10, 17, 64}) {
        if (!argmax || n < 5000) check.add(reduction(def, dtype, {2, n, inner}, 1));
      }
    }
  }
  run(check);
}

TEST_P(CudaReduceShapes, LargeShapes) {
  const ir::OpDef& def = *GetParam();
  if (is_second(def)) return;
  KernelCheck check;
  for (DType dtype : {f32, bf16}) {
    for (const auto& [shape, axis] : std::vector<std::pair<Shape, int64_t>>{{{70000, 8}, 1},
                                                                            {{70000, 10}, 1},
                                                                            {{70000, 64}, 1},
                                                                            {{70000, 100}, 1},
                                                                            {{5000, 1024}, 1},
                                                                            {{600, 4100}, 1},
                                                                            {{600, 8192}, 1},
                                                                            {{600, 8191}, 1},
                                                                            {{70, 80000}, 1},
                                                                            {{2, 300001}, 1},
                                                                            {{4400000}, 0},
                                                                            {{1024, 64}, 0},
                                                                            {{1100, 4096}, 0},
                                                                            {{10000, 520}, 0},
                                                                            {{300000, 6}, 0},
                                                                            {{3000, 12, 300}, 1},
                                                                            {{300, 64, 300}, 1}}) {
      check.add(reduction(def, dtype, shape, axis));
    }
  }
  // Blocks of blocks of blocks.
  if (&def == &ops::reduce_sum_def) check.add(reduction(def, i32, {18000000}, 0));
  run(check);
}

INSTANTIATE_TEST_SUITE_P(Table, CudaReduceShapes,
                         ::testing::Values(&ops::argmax_def, &ops::reduce_max_def, &ops::reduce_min_def,
                                           &ops::reduce_prod_def, &ops::reduce_sum_def),
                         [](const auto& info) { return std::string(info.param->name); });

struct Picks {
  Shape x, index;
  int64_t axis = 0, batch_dims = 0;
};

void add_picks(KernelCheck& check, const Picks& p, DType dtype, DType index_dtype) {
  ir::Sample s;
  s.inputs = {{dtype, p.x}, {index_dtype, p.index}};
  s.name = to_string(s.inputs[0]) + " by " + to_string(s.inputs[1]);
  s.attrs = {{"axis", p.axis}};
  if (p.batch_dims != 0) s.attrs.set("batch_dims", p.batch_dims);
  s.values = {{0, numbers(s.inputs[0])}, {1, index(s.inputs[1], p.x[static_cast<int>(p.axis)])}};
  check.add({&ops::gather_def, s, dtype});
  if (dtype == u8 || dtype == boolean) return;
  const auto picked = ops::gather_def.infer({ops::gather_def, s.inputs, s.attrs, nullptr});
  s.inputs.push_back(picked[0]);
  s.values.emplace_back(2, numbers(picked[0]));
  check.add({&ops::scatter_add_def, s, dtype});
}

TEST(CudaPickShapes, EveryDtypeOnSmallShapes) {
  KernelCheck check;
  for (DType dtype : {f32, bf16, f16, i64, i32, u8, boolean}) {
    for (const Picks& p : std::vector<Picks>{{{50, 24}, {7, 9}},
                                             {{9, 300}, {1000}},
                                             {{64, 10}, {64}, 1, 1},
                                             {{64, 12}, {64}, 1, 1},
                                             {{64, 13}, {64, 3}, 1, 1},
                                             {{3, 5, 7, 6}, {3, 40}, 2, 1},
                                             {{1000, 2}, {333}},
                                             {{2000}, {3000}},
                                             {{2, 2, 700, 8}, {2500}, 2}}) {
      add_picks(check, p, dtype, i32);
      add_picks(check, p, dtype, i64);
    }
  }
  run(check);
}

TEST(CudaPickShapes, LargeShapes) {
  KernelCheck check;
  for (DType dtype : {f32, bf16}) {
    for (const Picks& p : std::vector<Picks>{{{3000, 768}, {3000}},
                                             {{65, 384}, {16384}},
                                             {{50304, 64}, {8192}},
                                             {{3000, 520}, {3000}, 1, 1},
                                             {{3000, 130, 7}, {3000, 33}, 1, 1}}) {
      add_picks(check, p, dtype, i32);
    }
  }
  run(check);
}

}  // namespace
}  // namespace aicf::test
