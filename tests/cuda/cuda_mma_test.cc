// The own matmul on the GPU: every tile; and epilogues, whose bits are those of the matmul alone, run the same way, and
// the ops after it.
#include <gtest/gtest.h>

#include <algorithm>
#include <random>
#include <string>
#include <vector>

#include "backend/cuda/epilogue_text.h"
#include "backend/cuda/mma.h"
#include "cuda/device_image.h"
#include "ops/defs.h"
#include "ops/harness.h"
#include "ops/region_op.h"

namespace aicf::test {
namespace {

using backend::cuda::MmaChoice;
using backend::cuda::MmaProblem;

backend::Backend& device() { return backend::find("cuda"); }

struct Types {
  DType in = f32, out = f32;
  bool tf32 = false;
};
constexpr Types kTypes[] = {{f32, f32}, {f32, f32, true}, {bf16, bf16}, {bf16, f32}, {f16, f16}, {f16, f32}};

// (m × k)·(k × n) `batch` times; one: no leading axis.
struct Size {
  const char* name;
  int64_t batch, m, n, k;
  bool ta = false, tb = false;
};

BoundOp matmul_of(const Size& s, const Types& t) {
  BoundOp op;
  op.def = &ops::matmul_def;
  const auto shape = [&](int64_t rows, int64_t cols, bool swapped) {
    if (swapped) std::swap(rows, cols);
    return s.batch == 1 ? Shape{rows, cols} : Shape{s.batch, rows, cols};
  };
  op.in = {{t.in, shape(s.m, s.k, s.ta)}, {t.in, shape(s.k, s.n, s.tb)}};
  if (s.ta) op.attrs.set("ta", true);
  if (s.tb) op.attrs.set("tb", true);
  if (t.tf32) op.attrs.set("compute", std::string("tf32"));
  if (t.out != t.in) op.attrs.set("out", t.out);
  op.out = ops::matmul_def.infer({ops::matmul_def, op.in, op.attrs, nullptr});
  return op;
}

Tensor numbers(const TensorType& type, uint32_t seed, bool whole) {
  std::minstd_rand random(seed);
  Tensor t(type);
  for (int64_t i = 0; i < t.elements(); ++i) {
    const double n = static_cast<double>(random() % 9) - 4;
    set_element(type.dtype, t.data(), i, whole || !is_float(type.dtype) ? n : n / 3.0 + 0.01);
  }
  return t;
}

const backend::Kernel* kernel_of(const BoundOp& op, const std::string& variant) {
  for (const backend::Kernel& kernel : device().kernels()) {
    if (std::string_view(kernel.op) == op.def->name && kernel.variant == variant && kernel.accepts(op.query())) {
      return &kernel;
    }
  }
  return nullptr;
}

// The results of a kernel on the GPU.
std::vector<Tensor> on_device(const BoundOp& op, backend::PreparedKernel prepared,
                              const std::vector<Tensor>& operands) {
  backend::PreparedKernel* const all[] = {&prepared};
  device().link(all);
  DeviceImage image(device());
  std::vector<int> buffers;
  for (const Tensor& t : operands) buffers.push_back(image.add(t));
  for (const TensorType& t : op.out) buffers.push_back(image.add(t.bytes(), 0xff));
  if (prepared.workspace_bytes > 0) buffers.push_back(image.add(prepared.workspace_bytes, 0xff));
  image.launch(prepared, buffers);
  image.run();
  std::vector<Tensor> results;
  for (size_t i = 0; i < buffers.size(); ++i) EXPECT_TRUE(image.intact(buffers[i])) << "wrote outside buffer " << i;
  for (size_t r = 0; r < op.out.size(); ++r) {
    const unsigned char* const data = image.data(buffers[operands.size() + r]);
    results.emplace_back(TensorView(op.out[r], const_cast<unsigned char*>(data)));
  }
  return results;
}

backend::PreparedKernel plain(const BoundOp& op, const MmaProblem& problem, const backend::cuda::MmaTile& tile) {
  const ops::Loops loops = backend::cuda::plain_loops(op.out[0].dtype, op.out[0].shape.elements());
  return backend::cuda::prepared(
      {mma_kernel(problem, tile, backend::cuda::EpilogueText(loops, problem.grid.n, 2), op.text())});
}

TEST(CudaMma, EveryTileIsExactOnWholeNumbers) {
  for (const Types& t : kTypes) {
    for (const bool ta : {false, true}) {
      for (const bool tb : {false, true}) {
        for (const auto& [m, n, k] : std::vector<std::array<int64_t, 3>>{{264, 200, 520}, {133, 75, 97}}) {
          const BoundOp op = matmul_of({"", 1, m, n, k, ta, tb}, t);
          const std::vector<Tensor> operands = {numbers(op.in[0], 1, true), numbers(op.in[1], 2, true)};
          const backend::Kernel* cpu = backend::choose(backend::cpu::kernel_table(), op.query());
          const Tensor want = run_kernel(op, *cpu, {&operands[0], &operands[1]}, {})[0];
          const MmaProblem problem = backend::cuda::mma_problem(op.query());
          for (const MmaChoice& choice : backend::cuda::possible_tiles(problem)) {
            const Tensor got = on_device(op, plain(op, problem, choice.tile), operands)[0];
            EXPECT_TRUE(got == want) << op.text() << " by " << choice.tile.name();
          }
        }
      }
    }
  }
}

// The region's ops one by one: the matmul on the GPU by the kernel of that name, the others on the CPU, whose bits they
// have on the GPU too.
std::vector<Tensor> one_by_one(const ir::Graph& region, const std::vector<Tensor>& operands, const std::string& way) {
  std::vector<Tensor> values(static_cast<size_t>(region.num_values()));
  size_t next = 0;
  for (ir::ValueId v = 0; v < region.num_values(); ++v) {
    if (region.is_external(v)) values[v] = operands[next++];
    if (region.value(v).role == ir::Role::constant) values[v] = *region.value(v).data;
  }
  for (const ir::Op& op : region.ops()) {
    const BoundOp bound = bind(region, op);
    std::vector<Tensor> in;
    std::vector<const Tensor*> pointers;
    for (ir::ValueId v : op.inputs) in.push_back(values[v]), pointers.push_back(&values[v]);
    const std::vector<Tensor> results =
        op.def == &ops::matmul_def
            ? on_device(bound, kernel_of(bound, way)->prepare(bound.query()), in)
            : run_kernel(bound, *backend::choose(backend::cpu::kernel_table(), bound.query()), pointers, {});
    for (size_t r = 0; r < results.size(); ++r) values[op.outputs[r]] = results[r];
  }
  std::vector<Tensor> results;
  for (const ir::Output& o : region.outputs()) results.push_back(values[o.value]);
  return results;
}

BoundOp fused(std::vector<TensorType> in, std::shared_ptr<const ir::Graph> region) {
  BoundOp op{&ops::fused_def, {}, std::move(in), {}, std::move(region)};
  for (const ir::Output& o : op.region->outputs()) op.out.push_back(op.region->type(o.value));
  return op;
}

// A layer's forward pass, of several sizes, and the update of its weight.
std::vector<BoundOp> layers() {
  std::vector<BoundOp> ops;
  for (const Size& s : std::vector<Size>{{"", 1, 64, 128, 784, false, true},
                                         {"", 1, 768, 384, 128, false, true},
                                         {"", 1, 333, 77, 130, false, true},
                                         {"", 1, 2048, 2048, 256, false, true}}) {
    for (const Types& t : kTypes) {
      const BoundOp product = matmul_of(s, t);
      const std::vector<TensorType> in = {product.in[0], product.in[1], {t.out, {s.n}}, product.out[0]};
      ops.push_back(fused(in, ops::body_of(in, [&](std::vector<Value> v) {
                            const Value y = ir::emit(ops::matmul_def, {v[0], v[1]}, product.attrs) + v[2];
                            return std::vector<Value>{y, relu(y) + v[3]};
                          })));
    }
  }
  for (const Types& t : {kTypes[0], kTypes[1], kTypes[3]}) {
    const BoundOp product = matmul_of({"", 1, 128, 784, 64, true, false}, t);
    const std::vector<TensorType> in = {product.in[0],  product.in[1], product.out[0], product.out[0],
                                        product.out[0], {f32, {}},     {f32, {}}};
    ops.push_back(fused(in, ops::body_of(in, [&](std::vector<Value> v) {
                          const Value g = ir::emit(ops::matmul_def, {v[0], v[1]}, product.attrs);
                          const Value m = v[3] + (g - v[3]) * v[5], s = v[4] + (g * g - v[4]) * v[6];
                          const Value w = v[2] - m * v[5] / (sqrt(abs(s)) + v[6]);
                          return std::vector<Value>{w, m, s, cast(w, bf16)};
                        })));
  }
  return ops;
}

TEST(CudaMma, EpiloguesHaveTheBitsOfTheirOpsOneByOne) {
  std::vector<BoundOp> ops = layers();
  for (const OpCase& c : gpu_cases_of(ops::fused_def)) {
    const OpGraph built = graph_of(*c.def, c.sample);
    BoundOp op = bind(built.graph, built.graph.op(0));
    if (ops::loops_of(*op.region)->kind == ops::Loops::Kind::epilogue) ops.push_back(std::move(op));
  }
  for (const BoundOp& op : ops) {
    std::vector<Tensor> operands;
    for (size_t i = 0; i < op.in.size(); ++i)
      operands.push_back(numbers(op.in[i], static_cast<uint32_t>(i + 1), false));
    for (const char* way : {"mma", "cublasLt"}) {
      SCOPED_TRACE(op.text() + " by " + way);
      const backend::Kernel* kernel = kernel_of(op, std::string("epilogue ") + way);
      ASSERT_NE(kernel, nullptr);
      const std::vector<Tensor> got = on_device(op, kernel->prepare(op.query()), operands);
      const std::vector<Tensor> want = one_by_one(*op.region, operands, way);
      for (size_t r = 0; r < got.size(); ++r) EXPECT_TRUE(got[r] == want[r]) << "result " << r;
    }
  }
}

// A matmul and its epilogues run the same way: the choice is by the matmul alone.
TEST(CudaMma, AnEpilogueRunsTheWayOfItsMatmul) {
  for (const BoundOp& op : layers()) {
    const ir::Op& product = op.region->op(0);
    const BoundOp alone = bind(*op.region, product);
    const std::string way = backend::choose(device().kernels(), alone.query())->variant;
    const backend::Kernel* chosen = backend::choose(device().kernels(), op.query());
    EXPECT_EQ("epilogue " + way, chosen->variant) << op.text();
    EXPECT_EQ(chosen->prepare(op.query()).variant, kernel_of(alone, way)->prepare(alone.query()).variant) << op.text();
  }
}

}  // namespace
}  // namespace aicf::test
