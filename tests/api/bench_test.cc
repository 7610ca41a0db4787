// bench(): the times make sense, the steps are real ones, and the work is counted.
#include "aicf/bench.h"

#include <gtest/gtest.h>

#include "aicf/error.h"
#include "support/programs.h"

namespace aicf {
namespace {

using test::error_of;

struct Trained {
  test::SmallMlp mlp;
  Program program;
  Trained()
      : program(
            compile(mlp.model,
                    {.loss = mlp.loss, .optimizer = optim::AdamW{}, .outputs = {{"loss", mlp.loss}}, .threads = 1})) {}
};

TEST(Bench, TimesStepsAndCountsTheirWork) {
  Trained t;
  EXPECT_EQ(t.program.outputs(), std::vector<std::string>{"loss"});
  const std::vector<NamedTensors> batches = {test::small_mlp_batch(0), test::small_mlp_batch(1)};
  const std::vector<std::vector<Feed>> feeds = {test::feeds_of(batches[0]), test::feeds_of(batches[1])};
  int64_t asked = 0;
  const BenchResult r = bench(t.program,
                              [&](int64_t step) {
                                EXPECT_EQ(step, asked++);
                                return std::span<const Feed>(feeds[static_cast<size_t>(step % 2)]);
                              },
                              {.seconds = 0, .batches = 4, .steps = 3});
  ASSERT_TRUE(r.many.has_value());
  for (const StepTime& time : {r.fed, r.resident, *r.many}) {
    EXPECT_EQ(time.steps, 3);
    EXPECT_EQ(time.batches, 4);
    EXPECT_GT(time.low, 0);
    EXPECT_LE(time.low, time.median);
    EXPECT_LE(time.median, time.high);
  }
  EXPECT_EQ(asked, 1 + 3 + 4 * 3) << "one to warm up, one batch to see how long it takes, four timed";
  EXPECT_EQ(t.program.read("steps.applied").item(), 3.0 * (1 + 3 + 4 * 3)) << "every timed step is a step";
  EXPECT_EQ(r.graph.launches, t.program.launches());
  EXPECT_EQ(r.planned_bytes, t.program.memory().total);
  // Forward, the gradient of each weight, and of the input of the second layer; on top of it pointwise work.
  const double matmuls = 2.0 * 4 * (2 * 3 * 5 + 3 * 5 * 3);
  EXPECT_GE(r.flops, matmuls);
  EXPECT_LT(r.flops, 10 * matmuls);
}

TEST(Bench, TakesAsManyStepsAsABatchNeeds) {
  Trained t;
  const NamedTensors batch = test::small_mlp_batch(0);
  const std::vector<Feed> feeds = test::feeds_of(batch);
  const BenchResult r = bench(t.program, [&](int64_t) { return std::span<const Feed>(feeds); },
                              {.seconds = 0, .batch_seconds = 0.01, .batches = 1});
  EXPECT_GE(r.resident.low * static_cast<double>(r.resident.steps), 5.0) << "milliseconds of a batch";
}

TEST(BenchLaunches, CountsEachLaunchOnceAndRestoresTheMode) {
  Trained t;
  const NamedTensors batch = test::small_mlp_batch(0);
  const std::vector<Feed> feeds = test::feeds_of(batch);
  const Mode mode = t.program.mode();
  const std::vector<LaunchTime> times =
      bench_launches(t.program, [&](int64_t) { return std::span<const Feed>(feeds); }, {.seconds = 0});
  int count = 0;
  bool matmul = false;
  for (size_t i = 0; i < times.size(); ++i) {
    count += times[i].count;
    matmul = matmul || times[i].name.find("matmul") != std::string::npos;
    EXPECT_GT(times[i].low, 0) << times[i].name;
    EXPECT_LE(times[i].low, times[i].microseconds) << times[i].name;
    if (i > 0) {
      EXPECT_LE(times[i].microseconds, times[i - 1].microseconds);
    }
  }
  EXPECT_EQ(count, t.program.launches());
  EXPECT_TRUE(matmul);
  EXPECT_EQ(t.program.mode(), mode);
  EXPECT_EQ(t.program.read("steps.applied").item(), 1.0 + 5.0);
}

TEST(BenchOps, CountsWhatIsReadAndWritten) {
  OpsBenchOptions options;
  options.backend = "cpu";
  options.only = "softmax";
  options.bytes = size_t{1} << 16;
  options.timing = {.seconds = 0, .batches = 1, .steps = 1};
  size_t seen = 0;
  const std::vector<OpsBenchRow> rows = bench_ops(options, [&](const OpsBenchRow&) { ++seen; });
  ASSERT_EQ(rows.size(), 4u) << "forward and backward, in f32 and bf16";
  EXPECT_EQ(seen, rows.size());
  EXPECT_EQ(rows[0].name, "softmax.forward f32");
  EXPECT_EQ(rows[0].bytes, 2 * options.bytes) << "the operand, the result";
  EXPECT_EQ(rows[1].bytes, 3 * options.bytes) << "the operand, the cotangent, the gradient";
  for (const OpsBenchRow& row : rows) {
    EXPECT_GT(row.launches, 0) << row.name;
    EXPECT_GT(row.share, 0) << row.name;
    EXPECT_DOUBLE_EQ(row.bytes_per_second, static_cast<double>(row.bytes) / (row.time.median * 1e-3));
  }
  options.only = "no such";
  EXPECT_NE(error_of([&] { bench_ops(options); }).find("no such"), std::string::npos);
}

TEST(Bench, RefusesOptionsOutOfRange) {
  Trained t;
  const auto message = [&](const BenchOptions& options) {
    return error_of([&] {
      bench(
          t.program, [](int64_t) { return std::span<const Feed>(); }, options);
    });
  };
  EXPECT_EQ(message({.batches = 0}), "bench: expected one batch or more, got 0");
  EXPECT_EQ(message({.steps = -1}), "bench: expected steps >= 0, got -1");
  EXPECT_NE(message({}).find("is not fed"), std::string::npos) << "what a step says";
  Program none;
  EXPECT_NE(error_of([&] { bench(none, nullptr); }).find("empty Program"), std::string::npos);
}

TEST(Bench, RepeatIsAStepOnTheSameInputs) {
  Trained fed, repeated;
  const NamedTensors batch = test::small_mlp_batch(3);
  EXPECT_EQ(error_of([&] { repeated.program.repeat(); }).rfind("repeat: input 'x' was never fed", 0), 0u);
  repeated.program.step(test::feeds_of(batch));
  fed.program.step(test::feeds_of(batch));
  for (int i = 0; i < 5; ++i) {
    EXPECT_EQ(repeated.program.repeat()["loss"], fed.program.step(test::feeds_of(batch))["loss"]) << i;
  }
  repeated.program.wait();
  EXPECT_EQ(repeated.program.snapshot(), fed.program.snapshot());
}

TEST(Bench, TheGraphOfAChainIsAsDeepAsItIsLong) {
  Model m;
  const Value x = m.input("x", {f32, {4}});
  m.output("y", exp(tanh(exp(x))));
  const GraphInfo chain = compile(m, {.disable_passes = {"fuse"}}).graph();
  EXPECT_FALSE(chain.captured);
  EXPECT_EQ(chain.nodes, 3);
  EXPECT_EQ(chain.critical_path, 3);
  EXPECT_EQ(chain.launches, 3);
  EXPECT_EQ(compile(m).graph().launches, 1);
  Model wide;
  const Value z = wide.input("z", {f32, {4}});
  wide.output("a", exp(z));
  wide.output("b", tanh(z));
  EXPECT_EQ(compile(wide).graph().critical_path, 1);
}

TEST(Bench, APeakIsKnownByDeviceAndPrecision) {
  EXPECT_GT(*known_peak("NVIDIA H200 (sm_90), driver", "bf16"), *known_peak("NVIDIA H200 (sm_90)", "tf32"));
  EXPECT_FALSE(known_peak("NVIDIA H200 (sm_90)", "f64").has_value());
  EXPECT_FALSE(known_peak("AMD EPYC, AVX3, 2 threads", "f32").has_value());
}

}  // namespace
}  // namespace aicf
