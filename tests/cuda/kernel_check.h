// Checks CUDA kernels against the CPU's, case by case, in few programs and few transfers.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <cstring>
#include <list>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include <fmt/format.h>

#include "cuda/device_image.h"
#include "ops/harness.h"

namespace aicf::test {

// With AICF_COMPILE_ONLY set, kernels are compiled into the cache of kernels, for a machine to come, and nothing runs.
inline bool compile_only() { return std::getenv("AICF_COMPILE_ONLY") != nullptr; }
inline backend::Backend& cuda_backend() {
  return compile_only() ? backend::find_compiler("cuda") : backend::find("cuda");
}

class KernelCheck {
 public:
  // Every kernel that accepts the case; at least one must.
  void add(const OpCase& c) {
    const OpGraph built = graph_of(*c.def, c.sample);
    const BoundOp op = bind(built.graph, built.graph.op(0));
    int accepting = 0;
    for (const backend::Kernel& kernel : cuda_backend().kernels()) {
      if (std::string_view(kernel.op) != c.def->name || !kernel.accepts(op.query())) continue;
      ++accepting;
      Job job{c, op, c.text() + " by " + kernel.variant, kernel.prepare(op.query()), {}, {}};
      const auto no_bytes = [](const TensorType& t) { return t.bytes() == 0; };
      EXPECT_EQ(job.prepared.empty(), std::all_of(op.out.begin(), op.out.end(), no_bytes))
          << job.where << ": work for an empty result, or none for another";
      jobs_.push_back(std::move(job));
    }
    EXPECT_GT(accepting, 0) << c.text() << ": no CUDA kernel accepts " << op.text();
  }

  // Links all in one program, then runs them. Within the CPU's bits, NaN payloads and the choice of two subnormals by
  // maximum and minimum apart; matmul, and what a region
  // computes from one, within `matmul_ulps` · eps · √K of the CPU's result, relative to its length.
  void run(double matmul_ulps = 8) {
    std::vector<backend::PreparedKernel*> kernels;
    for (Job& job : jobs_) kernels.push_back(&job.prepared);
    cuda_backend().link(kernels);
    if (compile_only()) return;
    ulps_ = matmul_ulps;
    std::vector<Job*> batch;
    size_t bytes = 0;
    for (Job& job : jobs_) {
      batch.push_back(&job);
      for (const TensorType& t : job.op.in) bytes += t.bytes();
      for (const TensorType& t : job.op.out) bytes += t.bytes();
      if (bytes > (size_t{64} << 20)) {
        run(batch);
        batch.clear();
        bytes = 0;
      }
    }
    run(batch);
  }

  // The alias rules that were run, as indices into the record's list.
  const std::set<size_t>& granted() const { return granted_; }

 private:
  struct Job {
    OpCase c;
    BoundOp op;
    std::string where;
    backend::PreparedKernel prepared;
    std::vector<Tensor> operands;
    std::vector<Tensor> first;  // the results of its first run
  };
  // One run of a job: which buffers it has, and what must come of it.
  struct Run {
    Job* job = nullptr;
    std::string how;
    std::vector<int> in, out;
    int workspace = -1;
    int aliased = -1;  // this operand's storage became a result's
    bool stopped = false;
    unsigned char poison = 0;
  };

  static std::vector<int> add_operands(DeviceImage& image, const Job& job) {
    std::vector<int> in;
    for (size_t i = 0; i < job.operands.size(); ++i) {
      const int same = i < job.c.sample.same_as.size() ? job.c.sample.same_as[i] : -1;
      in.push_back(same >= 0 ? in[same] : image.add(job.operands[i]));
    }
    return in;
  }

  static void lay_out(DeviceImage& image, Run& run, int guard, const ir::AliasRule* alias) {
    const Job& job = *run.job;
    std::vector<int> buffers = run.in;
    for (size_t o = 0; o < job.op.out.size(); ++o) {
      const bool shared = alias != nullptr && alias->out == static_cast<int>(o);
      run.out.push_back(shared ? run.in[alias->in] : image.add(job.op.out[o].bytes(), run.poison));
      buffers.push_back(run.out.back());
    }
    if (job.prepared.workspace_bytes > 0) {
      run.workspace = image.add(job.prepared.workspace_bytes, run.poison);
      buffers.push_back(run.workspace);
    }
    image.launch(job.prepared, buffers, guard);
  }

  void run(const std::vector<Job*>& jobs) {
    DeviceImage image(cuda_backend());
    std::list<Run> runs;
    std::vector<int> operands;  // of the runs that give none of them away
    const auto start = [&](Job& job, std::string how, unsigned char poison, int guard = -1, bool stopped = false,
                           const ir::AliasRule* alias = nullptr) {
      runs.push_back({&job,
                      std::move(how),
                      alias != nullptr ? add_operands(image, job) : operands,
                      {},
                      -1,
                      alias != nullptr ? alias->in : -1,
                      stopped,
                      poison});
      lay_out(image, runs.back(), guard, alias);
    };
    const unsigned char flags[] = {0, 1};
    const int never = image.add(&flags[0], 1), always = image.add(&flags[1], 1);
    for (Job* job : jobs) {
      if (job->prepared.empty()) continue;
      job->operands = operands_of(*job->c.def, job->c.sample);
      operands = add_operands(image, *job);
      const bool guardable = job->prepared.guardable;
      start(*job, "", 0xFF);
      start(*job, " over other poison", 0xCD, guardable ? always : -1);
      if (guardable) start(*job, " with a false guard", 0xCD, never, true);
      const std::vector<ir::AliasRule> rules = job->op.alias_rules();
      for (size_t r = 0; r < rules.size(); ++r) {
        const ir::AliasRule& rule = rules[r];
        if (!can_be_granted(job->c, job->op, rule)) continue;
        granted_.insert(r);
        start(*job, " in the storage of operand " + std::to_string(rule.in), 0xFF, -1, false, &rule);
        if (guardable) {
          start(*job, " there with a false guard", 0xFF, never, true, &rule);
        }
      }
    }
    if (runs.empty()) return;
    image.run();
    for (const Run& r : runs) check(image, r);
    for (Job* job : jobs) job->operands.clear(), job->first.clear();
  }

  void check(const DeviceImage& image, const Run& run) {
    Job& job = *run.job;
    const std::string where = job.where + run.how;
    for (const std::vector<int>& list : {run.in, run.out}) {
      for (int buffer : list) EXPECT_TRUE(image.intact(buffer)) << where << ": wrote outside a buffer";
    }
    EXPECT_TRUE(run.workspace < 0 || image.intact(run.workspace)) << where << ": wrote outside the workspace";
    for (size_t i = 0; i < run.in.size(); ++i) {
      const bool given_away = !run.stopped && run.aliased >= 0 && run.in[i] == run.in[run.aliased];
      const Tensor& operand = job.operands[i];
      if (given_away || operand.bytes() == 0) continue;
      EXPECT_EQ(std::memcmp(image.data(run.in[i]), operand.data(), operand.bytes()), 0)
          << where << ": wrote its operand " << i;
    }
    for (size_t o = 0; o < run.out.size(); ++o) {
      const unsigned char* got = image.data(run.out[o]);
      const TensorType& type = job.op.out[o];
      if (run.stopped) {
        if (run.aliased >= 0 && run.out[o] == run.in[run.aliased]) continue;  // seen above, as an operand
        EXPECT_TRUE(std::all_of(got, got + type.bytes(), [&](unsigned char b) { return b == run.poison; }))
            << where << ": wrote result " << o;
      } else if (job.first.size() < job.op.out.size()) {
        job.first.emplace_back(TensorView(type, const_cast<unsigned char*>(got)));
        if (o + 1 == run.out.size()) compare_with_cpu(job);
      } else if (type.bytes() > 0) {
        EXPECT_EQ(std::memcmp(got, job.first[o].data(), type.bytes()), 0) << where << ": other bits in result " << o;
      }
    }
  }

  void compare_with_cpu(const Job& job) const {
    const backend::Kernel* cpu = backend::choose(backend::cpu::kernel_table(), job.op.query());
    ASSERT_NE(cpu, nullptr) << job.where << ": the CPU has no kernel";
    std::vector<const Tensor*> operands;
    for (const Tensor& t : job.operands) operands.push_back(&t);
    const std::vector<Tensor> want = run_kernel(job.op, *cpu, operands, {}, job.c.sample.same_as);
    for (size_t o = 0; o < want.size(); ++o) {
      const std::optional<Product> product = product_of(job);
      if (product && is_float(want[o].dtype())) {
        compare_lengths(job, *product, job.first[o], want[o]);
      } else {
        compare_bits(job, job.first[o], want[o]);
      }
    }
  }

  static void compare_bits(const Job& job, const Tensor& got, const Tensor& want) {
    const size_t size = size_of(want.dtype());
    const auto* g = static_cast<const unsigned char*>(got.data());
    const auto* w = static_cast<const unsigned char*>(want.data());
    if (want.bytes() == 0 || std::memcmp(g, w, want.bytes()) == 0) return;
    for (int64_t i = 0; i < want.elements(); ++i) {
      if (std::memcmp(g + i * size, w + i * size, size) == 0) continue;
      if (is_float(want.dtype()) && std::isnan(got.at(i)) && std::isnan(want.at(i))) continue;
      if (chooses(*job.c.def, job.op.region.get()) && are_subnormal(want.dtype(), got.at(i), want.at(i))) continue;
      ADD_FAILURE() << job.where << ": element " << i << " of " << to_string(want.type()) << " is "
                    << fmt::format("{:a}", got.at(i)) << ", on the CPU " << fmt::format("{:a}", want.at(i));
      return;
    }
  }

  // The CPU's comparison takes a subnormal for zero.
  static bool are_subnormal(DType dtype, double a, double b) {
    return (dtype == f32 || dtype == bf16) && std::fabs(a) < 0x1p-126 && std::fabs(b) < 0x1p-126 &&
           std::signbit(a) == std::signbit(b);
  }
  static bool chooses(const ir::OpDef& def, const ir::Graph* region) {
    const std::string_view name = def.name;
    if (region == nullptr) return name.find("max") != name.npos || name.find("min") != name.npos;
    const auto ops = region->ops();
    return std::any_of(ops.begin(), ops.end(), [](const ir::Op& op) { return chooses(*op.def, op.region.get()); });
  }

  // The matmul that the job is, or the one in its region.
  struct Product {
    double k = 1;  // of its inner axis
    bool tf32 = false;
  };
  static std::optional<Product> product_of(const Job& job) {
    const auto of = [](const TensorType& a, const ir::Attrs& attrs) {
      const Shape& shape = a.shape;
      const int64_t k = shape[shape.rank() - (attrs.get_bool("ta") ? 2 : 1)];
      return Product{static_cast<double>(std::max<int64_t>(1, k)), attrs.get_string("compute", "") == "tf32"};
    };
    const auto is_matmul = [](const ir::OpDef& def) { return std::string_view(def.name) == "matmul"; };
    if (is_matmul(*job.c.def)) return of(job.op.in[0], job.op.attrs);
    if (job.op.region == nullptr) return std::nullopt;
    for (const ir::Op& op : job.op.region->ops()) {
      if (is_matmul(*op.def)) return of(job.op.region->type(op.inputs[0]), op.attrs);
    }
    return std::nullopt;
  }

  void compare_lengths(const Job& job, const Product& product, const Tensor& got, const Tensor& want) const {
    double error = 0, length = 0;
    for (int64_t i = 0; i < want.elements(); ++i) {
      error += std::pow(got.at(i) - want.at(i), 2);
      length += std::pow(want.at(i), 2);
    }
    const double eps = std::max(epsilon(want.dtype()), product.tf32 ? 0x1p-11 : 0);
    EXPECT_LE(std::sqrt(error), ulps_ * eps * std::sqrt(product.k * length) + smallest_normal(want.dtype()))
        << job.where << ": K = " << product.k << ", length " << std::sqrt(length);
  }

  std::list<Job> jobs_;
  std::set<size_t> granted_;
  double ulps_ = 8;
};

}  // namespace aicf::test
