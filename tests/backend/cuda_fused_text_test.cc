// The text of the kernels of fused regions, run without a GPU, gives the bits of the region's ops run one by one.
#include <cmath>
#include <functional>
#include <memory>

#include "aicf/ops.h"
#include "backend/cuda/kernels.h"
#include "backend/cuda_on_host.h"
#include "ops/defs.h"
#include "ops/harness.h"
#include "ops/loops.h"
#include "ops/random_region.h"
#include "ops/region_op.h"

namespace aicf::backend::cuda {
namespace {

using test::BoundOp;
using test::GuardedBuffer;

struct Job {
  std::string where;
  BoundOp op;
  std::vector<Tensor> operands;
  std::vector<size_t> kernels;
  size_t workspace_bytes = 0;
  std::vector<Tensor> want;
};

class FusedOnHost {
 public:
  void add(const test::OpCase& c) {
    const test::OpGraph built = test::graph_of(*c.def, c.sample);
    Job job{c.text(), test::bind(built.graph, built.graph.op(0)), test::operands_of(*c.def, c.sample), {}, 0, {}};
    for (const Kernel& kernel : kernel_table()) {
      if (std::string_view(kernel.op) != c.def->name || !kernel.accepts(job.op.query())) continue;
      const PreparedKernel prepared = kernel.prepare(job.op.query());
      for (const Generated& g : static_cast<const Code&>(*prepared.code).kernels) job.kernels.push_back(host_.add(g));
      job.workspace_bytes = prepared.workspace_bytes;
      jobs_.push_back(std::move(job));
      return;
    }
    ADD_FAILURE() << c.text() << ": no kernel";
  }

  void run() {
    ASSERT_TRUE(host_.build());
    for (Job& job : jobs_) {
      job.want = one_by_one(job);
      check(job, nullptr);
      for (const ir::AliasRule& rule : job.op.alias_rules()) check(job, &rule);
    }
  }

 private:
  static std::vector<Tensor> one_by_one(const Job& job) {
    const ir::Graph& body = *job.op.region;
    test::TensorMap feeds;
    size_t operand = 0;
    for (ir::ValueId v = 0; v < body.num_values(); ++v) {
      if (body.is_external(v)) feeds[body.value(v).name] = job.operands[operand++];
    }
    const test::TensorMap outputs = test::interpret(body, feeds);
    std::vector<Tensor> results;
    for (const ir::Output& o : body.outputs()) results.push_back(outputs.at(o.name));
    return results;
  }

  void check(const Job& job, const ir::AliasRule* alias) {
    const std::string where = job.where + (alias ? " in the storage of operand " + std::to_string(alias->in) : "");
    std::vector<std::unique_ptr<GuardedBuffer>> owned;
    std::vector<void*> buffers;
    const auto allocate = [&](size_t bytes) {
      owned.push_back(std::make_unique<GuardedBuffer>(bytes));
      owned.back()->fill(0xFF);
      buffers.push_back(owned.back()->data());
    };
    for (const Tensor& t : job.operands) {
      allocate(t.bytes());
      std::memcpy(buffers.back(), t.data(), t.bytes());
    }
    const size_t first = buffers.size();
    for (size_t o = 0; o < job.op.out.size(); ++o) {
      if (alias != nullptr && alias->out == static_cast<int>(o)) {
        buffers.push_back(buffers[static_cast<size_t>(alias->in)]);
      } else {
        allocate(job.op.out[o].bytes());
      }
    }
    if (job.workspace_bytes > 0) allocate(job.workspace_bytes);
    for (size_t kernel : job.kernels) host_.run(kernel, buffers);
    for (const auto& buffer : owned) EXPECT_TRUE(buffer->intact()) << where << ": wrote outside a buffer";
    for (size_t i = 0; i < job.operands.size(); ++i) {
      if (alias != nullptr && alias->in == static_cast<int>(i)) continue;
      EXPECT_EQ(std::memcmp(buffers[i], job.operands[i].data(), job.operands[i].bytes()), 0)
          << where << ": wrote its operand " << i;
    }
    for (size_t o = 0; o < job.want.size(); ++o) compare(buffers[first + o], job.want[o], where);
  }

  static void compare(const void* got, const Tensor& want, const std::string& where) {
    const size_t size = size_of(want.dtype());
    for (int64_t i = 0; i < want.elements(); ++i) {
      const auto at = static_cast<size_t>(i) * size;
      const char* const g = static_cast<const char*>(got) + at;
      if (std::memcmp(g, static_cast<const char*>(want.data()) + at, size) == 0) continue;
      const double value = element_as_double(want.dtype(), g, 0);
      if (is_float(want.dtype()) && std::isnan(value) && std::isnan(want.at(i))) continue;
      ADD_FAILURE() << where << ": element " << i << " of " << to_string(want.type()) << " is " << value
                    << ", one by one " << want.at(i);
      return;
    }
  }

  test::KernelsOnHost host_;
  std::vector<Job> jobs_;
};

using Values = std::vector<Value>;

void add(FusedOnHost& check, const char* name, std::vector<TensorType> in, const std::function<Values(Values)>& f) {
  ir::Sample sample;
  sample.name = name;
  sample.region = ops::body_of(in, f);
  sample.inputs = std::move(in);
  check.add({&ops::fused_def, sample, sample.inputs[0].dtype});
}

Value widened(Value x) { return x.dtype() == f32 ? x : cast(x, f32); }

Values softmax(Values v) {
  const Value x = widened(v[0]), e = exp(x - max(x, {1}, true));
  return {cast(e / sum(e, {1}, true), v[0].dtype())};
}
// Of the operand and of a scale, with sums over the rows.
Values norm_gradient(Values v) {
  const Value x = widened(v[0]), dy = widened(v[1]), normal = x * v[3], g = dy * v[2];
  return {cast((g - normal * sum(g * normal, {1}, true)) * v[3], v[0].dtype()), sum(dy * normal, {0}), sum(dy, {0})};
}
Values squares(Values v, const std::vector<int>& axes) {
  const Value d = widened(v[0]);
  return {cast(d * 2.0, v[0].dtype()), sqrt(sum(d * d, axes))};
}

// The ways to share out rows and columns that the samples are too small for.
TEST(CudaFusedText, SharesOutLargeShapesInEveryWay) {
  FusedOnHost check;
  // Several rows to a warp, with wide packs.
  add(check, "wide packs", {{bf16, {17000, 24}}}, softmax);
  add(check, "wide packs of one row each", {{f32, {68000, 4}}}, softmax);
  add(check, "some rows to a warp", {{f32, {4300, 128}}}, softmax);
  // Several blocks of the tree to a row; to a group of threads; read again; met in the workspace.
  add(check, "blocks", {{f32, {5, 3001}}}, softmax);
  add(check, "blocks of a group", {{bf16, {3, 17000}}}, softmax);
  add(check, "read again", {{f32, {2, 70002}}}, softmax);
  add(check, "results of blocks in blocks", {{f32, {1, 1100000}}}, softmax);
  const auto norm = [&](const char* name, DType dtype, int64_t rows, int64_t n) {
    add(check, name, {{dtype, {rows, n}}, {dtype, {rows, n}}, {f32, {n}}, {f32, {rows, 1}}}, norm_gradient);
  };
  norm("chunks side by side in a warp", bf16, 4500, 24);
  norm("columns of two blocks", bf16, 130, 2048);
  norm("columns of odd rows", f32, 70, 1601);
  norm("columns in memory", f32, 66, 12001);
  for (DType dtype : {f32, bf16}) {
    add(check, "rows", {{dtype, {3, 20000}}}, [](Values v) { return squares(v, {1}); });
    add(check, "one block each", {{dtype, {2, 70000}}}, [](Values v) { return squares(v, {1}); });
    add(check, "several levels", {{dtype, {1, 1200001}}}, [](Values v) { return squares(v, {1}); });
    add(check, "tall columns", {{dtype, {270000, 3}}}, [](Values v) { return squares(v, {0}); });
    add(check, "columns in packs", {{dtype, {66, 68000}}}, [](Values v) { return squares(v, {0}); });
    add(check, "one chunk in packs", {{dtype, {7, 3, 40000}}}, [](Values v) { return squares(v, {1}); });
  }
  check.run();
}

TEST(CudaFusedText, HasTheBitsOfRandomRegions) {
  FusedOnHost check;
  test::each_exact_region(80, [&](const test::OpCase& c) { check.add(c); });
  check.run();
}

TEST(CudaFusedText, HasTheBitsOfTheOpsOneByOne) {
  FusedOnHost check;
  for (const test::OpCase& c : test::gpu_cases_of(ops::fused_def)) {
    if (ops::loops_of(*c.sample.region)->kind != ops::Loops::Kind::epilogue) check.add(c);
  }
  check.run();
}

}  // namespace
}  // namespace aicf::backend::cuda
