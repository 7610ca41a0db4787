// The runtime contract: what a bad call says and leaves alone, and how programs of one store work together.
#include <gtest/gtest.h>

#include <thread>

#include "backend/api.h"
#include "support/programs.h"

namespace aicf {
namespace {

using test::error_of;

struct Fixture {
  test::SmallMlp m;
  Program p = compile(m.model, {.loss = m.loss, .optimizer = optim::AdamW{.lr = 0.1}});
  NamedTensors batch = test::small_mlp_batch(0);
};

// A bad call names the tensor, what was expected and what it got, and changes nothing.
TEST(Contract, BadFeedsAreNamedAndChangeNothing) {
  Fixture f;
  const NamedTensors before = f.p.snapshot();
  const Tensor x = f.batch[0].second, y = f.batch[1].second;
  const auto says = [&](const std::vector<Feed>& feeds, const std::vector<std::string>& words) {
    const std::string message = error_of([&] { f.p.step(feeds); });
    for (const std::string& word : words) EXPECT_NE(message.find(word), std::string::npos) << message << " / " << word;
    EXPECT_EQ(f.p.snapshot(), before) << message;
  };
  says({{"x", x}}, {"'y'", "not fed", "i32[4]"});
  says({}, {"'x'", "not fed"});
  says({{"x", x}, {"y", y}, {"z", y}}, {"'z'"});
  says({{"x", x}, {"x", x}, {"y", y}}, {"'x'", "twice"});
  says({{"x", Tensor(TensorType{f32, {4, 4}})}, {"y", y}}, {"'x'", "f32[4,3]", "f32[4,4]"});
  says({{"x", Tensor(TensorType{f64, {4, 3}})}, {"y", y}}, {"'x'", "f32[4,3]", "f64[4,3]"});
  says({{"x", x}, {"y", y}, {"fc1.weight", x}}, {"fc1.weight", "param"});
  says({{"x", TensorView(x.type(), nullptr)}, {"y", y}}, {"'x'", "null"});
}

// With strict_static_signature one list of feeds serves both modes: a step checks params and states and leaves them
// alone.
TEST(Contract, StaticFeedsAreCheckedAndNotCopied) {
  constexpr StepOptions kStrict = {.strict_static_signature = true};
  for (Mode mode : {Mode::graph, Mode::eager}) {
    test::SmallMlp m;
    Program p = compile(m.model, {.loss = m.loss, .optimizer = optim::AdamW{.lr = 0.1}, .mode = mode});
    const NamedTensors batch = test::small_mlp_batch(0), start = p.snapshot();
    std::vector<Feed> all = test::feeds_of(start);
    for (const Feed& f : test::feeds_of(batch)) all.push_back(f);
    p.step(test::feeds_of(batch));
    const NamedTensors once = p.snapshot();
    p.step(test::feeds_of(batch));
    const NamedTensors twice = p.snapshot();
    ASSERT_NE(once, twice);

    p.step(all, {.mode = StepMode::train_reset, .strict_static_signature = true});
    EXPECT_EQ(p.snapshot(), once) << "copied: this was the first step again";
    p.step(all, kStrict);
    EXPECT_EQ(p.snapshot(), twice) << "not copied: this was the second";
    p.load(once);
    std::vector<Feed> some = test::feeds_of(batch);
    some.push_back({"fc1.weight", start[0].second});
    ASSERT_EQ(start[0].first, "fc1.weight");
    p.step(some, kStrict);
    EXPECT_EQ(p.snapshot(), twice) << "those that are not fed are not asked for";
  }
}

TEST(Contract, AStaticFeedOfAnotherSignatureIsNamedAndChangesNothing) {
  Fixture f;
  const NamedTensors before = f.p.snapshot();
  const auto says = [&](const Feed& feed, const std::vector<std::string>& words) {
    std::vector<Feed> feeds = test::feeds_of(f.batch);
    feeds.push_back(feed);
    for (StepMode mode : {StepMode::train, StepMode::train_reset}) {
      const std::string message = error_of([&] { f.p.step(feeds, {.mode = mode, .strict_static_signature = true}); });
      for (const std::string& word : words) EXPECT_NE(message.find(word), std::string::npos) << message << word;
      EXPECT_EQ(f.p.snapshot(), before) << message;
    }
  };
  const Tensor w = f.p.read("fc1.weight"), m1 = f.p.read("optimizer.m/fc1.weight");
  says({"fc1.weight", Tensor(TensorType{f32, {3, 5}})}, {"param 'fc1.weight'", "f32[5,3]", "got f32[3,5]"});
  says({"fc1.weight", Tensor(TensorType{bf16, {5, 3}})}, {"'fc1.weight'", "f32[5,3]", "got bf16[5,3]"});
  says({"optimizer.m/fc1.weight", Tensor(TensorType{f32, {5}})}, {"state 'optimizer.m/fc1.weight'", "got f32[5]"});
  says({"optimizer.step", Tensor::scalar(1.f)}, {"'optimizer.step'", "i32", "got f32"});
  says({"fc3.weight", w}, {"'fc3.weight'", "no such input"});
  says({"fc1.weight", TensorView(w.type(), nullptr)}, {"'fc1.weight'", "null"});
  std::vector<Feed> twice = test::feeds_of(f.batch);
  twice.push_back({"optimizer.m/fc1.weight", m1});
  twice.push_back({"optimizer.m/fc1.weight", m1});
  EXPECT_NE(error_of([&] { f.p.step(twice, StepOptions{.strict_static_signature = true}); }).find("twice"),
            std::string::npos);
  twice.pop_back();
  try {
    f.p.step(twice);
    FAIL() << "a static feed without the option";
  } catch (const Error& e) {
    for (const char* word : {"train_reset", "strict_static_signature"}) {
      EXPECT_NE(e.hint().find(word), std::string::npos) << e.hint();
    }
  }
  EXPECT_EQ(f.p.snapshot(), before);
}

TEST(Contract, TheCpuHasNoDeviceFeedsAndNoStreams) {
  test::ScalarModel m;
  Program p = compile(m.model, {.loss = m.loss, .backend = "cpu"});
  const Tensor x = Tensor::scalar(1.f);
  EXPECT_NE(error_of([&] { p.step({Feed{"x", x, true}}); }).find("'x' is on a device"), std::string::npos);
  EXPECT_NE(error_of([&] {
              p.step({{"x", x}}, StepOptions{.stream = nullptr});
            }).find("no streams"),
            std::string::npos);
  EXPECT_EQ(p.step({{"x", x}}).scalar("loss"), 1);
}

TEST(Contract, LabelsOutOfRangeStopTheStepAndAreReportedOnce) {
  for (const auto& [name, optimizer] : test::all_optimizers()) {
    for (Mode mode : {Mode::graph, Mode::eager}) {
      test::SmallMlp m;
      Program p = compile(m.model, {.loss = m.loss, .optimizer = optimizer, .mode = mode});
      NamedTensors batch = test::small_mlp_batch(0);
      p.step(test::feeds_of(batch));
      const NamedTensors before = p.snapshot();
      for (int32_t label : {3, -1, 1 << 30, -(1 << 30)}) {
        NamedTensors bad = batch;
        bad[1].second.as<int32_t>()[2] = label;
        const std::string message = error_of([&] {
          p.step(test::feeds_of(bad));
          p.wait();  // a GPU tells no earlier
        });
        EXPECT_NE(message.find("cross_entropy"), std::string::npos) << message;
        EXPECT_NE(message.find("'y'"), std::string::npos) << message;
        EXPECT_NE(message.find("step 2"), std::string::npos) << message;
        EXPECT_EQ(p.snapshot(), before) << name << ": parameters untouched by label " << label;
      }
      p.step(test::feeds_of(batch));  // the error was taken: training goes on
      EXPECT_NE(p.snapshot(), before) << name;
    }
  }
}

TEST(Contract, IndicesOutOfRangeStopEvaluationToo) {
  Model m;
  const Value ids = m.input("ids", {i32, {2}});
  m.output("rows", m.add(nn::Embedding(4, 3), ids, "emb"));
  Program p = compile(m);
  p.step({{"ids", Tensor::of<int32_t>({2}, {0, 3})}});
  const std::string message = error_of([&] {
    p.step({{"ids", Tensor::of<int32_t>({2}, {0, 4})}});
    p.wait();
  });
  EXPECT_NE(message.find("gather"), std::string::npos) << message;
  EXPECT_NE(message.find("'ids'"), std::string::npos) << message;
  p.step({{"ids", Tensor::of<int32_t>({2}, {3, 3})}});
}

TEST(Contract, IgnoredLabelsAreInRange) {
  Fixture f;
  f.batch[1].second.as<int32_t>()[0] = -100;
  EXPECT_EQ(error_of([&] { f.p.step(test::feeds_of(f.batch)); }), "");
}

TEST(Contract, ReadWriteLoadRefuseWhatDoesNotFit) {
  Fixture f;
  const NamedTensors before = f.p.snapshot();
  EXPECT_NE(error_of([&] { f.p.read("fc1.wieght"); }), "");
  EXPECT_NE(error_of([&] {
              f.p.write("fc1.weight", Tensor(TensorType{f32, {3, 5}}));
            }).find("f32[5,3]"),
            std::string::npos);
  EXPECT_NE(error_of([&] { f.p.write("fc1.weight", 1.0); }), "");
  EXPECT_NE(error_of([&] { f.p.write("x", f.batch[0].second); }).find("feed"), std::string::npos);
  NamedTensors missing = before;
  missing.pop_back();
  EXPECT_NE(error_of([&] { f.p.load(missing); }).find("missing"), std::string::npos);
  NamedTensors unknown = before;
  unknown.emplace_back("nobody", Tensor::scalar(1.f));
  EXPECT_NE(error_of([&] { f.p.load(unknown); }).find("nobody"), std::string::npos);
  NamedTensors wrong = before;
  wrong.back().second = Tensor(TensorType{f64, {7}});
  wrong.front().second.as<float>()[0] += 1;
  EXPECT_NE(error_of([&] { f.p.load(wrong); }), "");
  NamedTensors twice = before;
  twice.push_back(twice.front());
  EXPECT_NE(error_of([&] { f.p.load(twice); }).find("twice"), std::string::npos);
  EXPECT_EQ(f.p.snapshot(), before) << "all or nothing";
}

TEST(Contract, SnapshotLoadContinuesBitForBit) {
  for (const auto& [name, optimizer] : test::all_optimizers()) {
    const auto steps = [](Program& p, int from, int to) {
      for (int i = from; i < to; ++i) {
        const NamedTensors batch = test::small_mlp_batch(i);
        p.step(test::feeds_of(batch));
      }
    };
    test::SmallMlp m;
    Program straight = compile(m.model, {.loss = m.loss, .optimizer = optimizer});
    steps(straight, 0, 10);
    Program first = compile(m.model, {.loss = m.loss, .optimizer = optimizer});
    steps(first, 0, 5);
    test::SmallMlp other(99);  // other initial values: all of them come from the snapshot
    Program second = compile(other.model, {.loss = other.loss, .optimizer = optimizer});
    second.load(first.snapshot());
    steps(second, 5, 10);
    EXPECT_EQ(second.snapshot(), straight.snapshot()) << name;
    second.reset();
    Program fresh = compile(other.model, {.loss = other.loss, .optimizer = optimizer});
    EXPECT_EQ(second.snapshot(), fresh.snapshot()) << name;
  }
}

TEST(Contract, TrainAndEvalShareOneStore) {
  Fixture f;
  Program eval = compile(f.m.model, {.outputs = {{"logits", f.m.logits}}, .share = f.p});
  const Tensor before = eval.step({{"x", f.batch[0].second}})["logits"];
  f.p.step(test::feeds_of(f.batch));
  EXPECT_NE(eval.step({{"x", f.batch[0].second}})["logits"], before);
  EXPECT_EQ(eval.step(test::feeds_of(f.batch))["logits"], eval.step({{"x", f.batch[0].second}})["logits"])
      << "a declared input that this program does not read may be fed";
  EXPECT_EQ(eval.read("fc1.weight"), f.p.read("fc1.weight"));
  EXPECT_EQ(eval.outputs(), std::vector<std::string>{"logits"});
}

// Two programs of one store from two threads: every step is applied once.
TEST(Contract, ProgramsOfOneStoreRunOneAfterAnother) {
  Model m;
  const Value x = m.input("x", {f32, {}});
  const Value total = m.state("total", {f32, {}});
  m.update(total, total + x);
  m.output("seen", total);
  Program a = compile(m);
  Program b = compile(m, {.share = a});
  const auto add = [](Program p, float value) {
    for (int i = 0; i < 500; ++i) p.step({{"x", Tensor::scalar(value)}});
  };
  std::thread one(add, a, 1.0f), two(add, b, 1000.0f);
  one.join();
  two.join();
  EXPECT_EQ(a.read("total").item(), 500 * 1001.0);
}

// Models built, compiled and run in parallel do not disturb one another.
TEST(Contract, ModelsAreIndependentAcrossThreads) {
  const auto train = [] {
    test::SmallMlp m;
    Program p = compile(m.model, {.loss = m.loss, .optimizer = optim::Adam{.lr = 0.1}});
    for (int i = 0; i < 20; ++i) {
      const NamedTensors batch = test::small_mlp_batch(i);
      p.step(test::feeds_of(batch));
    }
    return p.snapshot();
  };
  const NamedTensors want = train();
  std::vector<NamedTensors> got(4);
  std::vector<std::thread> threads;
  for (NamedTensors& g : got) threads.emplace_back([&g, &train] { g = train(); });
  for (std::thread& t : threads) t.join();
  for (const NamedTensors& g : got) EXPECT_EQ(g, want);
}

TEST(Contract, CompileRefusesByName) {
  test::SmallMlp m;
  const auto message = [&](const CompileOptions& o) { return error_of([&] { compile(m.model, o); }); };
  EXPECT_NE(message({.loss = m.logits}).find("one element"), std::string::npos);
  try {
    backend::find("cuda");
  } catch (const Error& why) {
    EXPECT_EQ(message({.loss = m.loss, .backend = "cuda"}), why.what());
  }
  EXPECT_NE(message({.loss = m.loss, .backend = "tpu"}).find("tpu"), std::string::npos);
  EXPECT_NE(message({.loss = m.loss, .disable_passes = {"expand"}}).find("required"), std::string::npos);
  EXPECT_NE(message({.loss = m.loss, .disable_passes = {"dec"}}).find("dec"), std::string::npos);
  EXPECT_NE(message({.loss = m.loss, .freeze = {"fc9.*"}}).find("fc9.*"), std::string::npos);
  EXPECT_NE(message({.loss = m.loss, .fetch = {"fc1.weigth"}}).find("fc1.weigth"), std::string::npos);
  EXPECT_NE(message({.optimizer = optim::SGD{}}).find("without a loss"), std::string::npos);
  EXPECT_NE(message({.loss = m.loss, .optimizer = optim::SGD{}, .freeze = {"*"}}).find("no parameter"),
            std::string::npos);
  Model empty;
  EXPECT_NE(error_of([&] { compile(empty); }), "");
  test::SmallMlp other;
  EXPECT_NE(message({.loss = other.loss}).find("another model"), std::string::npos);
}

TEST(Contract, GradInitialIsFedPerStep) {
  test::ScalarModel m(1.0);
  Program p = compile(m.model, {.loss = m.loss, .optimizer = optim::SGD{.lr = 1}, .grad_initial_input = true});
  p.step({{"x", Tensor::scalar(3.f)}, {"grad_initial", Tensor::of<float>({1}, {0.5f})}});
  EXPECT_FLOAT_EQ(p.read("w").item(), -0.5f);
  p.step({{"x", Tensor::scalar(3.f)}, {"grad_initial", Tensor::scalar(0.f)}});
  EXPECT_FLOAT_EQ(p.read("w").item(), -0.5f);
}

TEST(Contract, EmptyHandlesSaySo) {
  EXPECT_NE(error_of([] { Program().step({}); }), "");
  EXPECT_NE(error_of([] { StepResult().scalar("loss"); }), "");
  EXPECT_NE(error_of([] { relu(Value()); }), "");
}

}  // namespace
}  // namespace aicf
