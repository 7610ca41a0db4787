// steps(): many steps in one call are the steps one by one, in every mode, and on a data set kept on the device.
#include <gtest/gtest.h>

#include "aicf/checkpoint.h"
#include "aicf/data.h"
#include "support/programs.h"

namespace aicf {
namespace {

using test::error_of;

constexpr int64_t kExamples = 23, kBatch = 4;

// x: (n, 3), y: (n) in [0, 3).
Dataset examples(int64_t n = kExamples) {
  Tensor x(TensorType{f32, {n, 3}}), y(TensorType{i32, {n}});
  for (int64_t i = 0; i < n; ++i) {
    for (int64_t k = 0; k < 3; ++k) x.as<float>()[3 * i + k] = 0.01f * static_cast<float>((7 * i + 3 * k) % 50) - 0.2f;
    y.as<int32_t>()[i] = static_cast<int32_t>((i * i + 1) % 3);
  }
  return Dataset({{"x", x}, {"y", y}});
}

const LoaderOptions kOrder = {.batch = kBatch, .seed = 5};

struct Trainer {
  explicit Trainer(Mode mode = Mode::graph)
      : p(compile(m.model, {.loss = m.loss, .optimizer = optim::AdamW{.lr = 0.1}, .mode = mode})) {}
  test::SmallMlp m;
  Program p;
};

std::vector<double> losses_of(const std::vector<StepResult>& results) {
  std::vector<double> losses;
  for (const StepResult& r : results) losses.push_back(r.scalar("loss"));
  return losses;
}

// One by one, by a loader.
std::vector<double> by_loader(Program& p, int64_t n) {
  Loader loader(examples(), kOrder);
  std::vector<double> losses;
  for (int64_t i = 0; i < n; ++i) losses.push_back(p.step(loader.next().feeds).scalar("loss"));
  return losses;
}

TEST(Steps, OnADataSetAreTheStepsOfALoader) {
  for (Mode mode : {Mode::graph, Mode::replay, Mode::eager}) {
    for (int64_t n : {1, 4, 5, 37, 700}) {  // an epoch is 5 batches; more than a runner takes at once
      Trainer one_by_one(mode), together(mode);
      const std::vector<double> want = by_loader(one_by_one.p, n);
      together.p.attach(examples(), kOrder);
      EXPECT_EQ(losses_of(together.p.steps(n)), want) << n;
      EXPECT_EQ(together.p.snapshot(), one_by_one.p.snapshot()) << n;
    }
  }
}

TEST(Steps, OfSeveralCallsAreThoseOfOne) {
  Trainer whole, parts;
  whole.p.attach(examples(), kOrder);
  parts.p.attach(examples(), kOrder);
  std::vector<double> got;
  for (int64_t n : {1, 0, 6, 2, 19, 3}) {
    for (double loss : losses_of(parts.p.steps(n))) got.push_back(loss);
  }
  EXPECT_EQ(got, losses_of(whole.p.steps(31)));
  EXPECT_EQ(parts.p.snapshot(), whole.p.snapshot());
}

TEST(Steps, WithoutADataSetRepeatTheLastFeed) {
  Trainer one_by_one, together;
  const NamedTensors batch = test::small_mlp_batch(0);
  std::vector<double> want;
  for (int i = 0; i < 12; ++i) want.push_back(one_by_one.p.step(test::feeds_of(batch)).scalar("loss"));
  EXPECT_NE(error_of([&] { together.p.steps(2); }).find("never fed"), std::string::npos);
  std::vector<double> got = {together.p.step(test::feeds_of(batch)).scalar("loss")};
  for (double loss : losses_of(together.p.steps(11))) got.push_back(loss);
  EXPECT_EQ(got, want);
  EXPECT_EQ(together.p.snapshot(), one_by_one.p.snapshot());
}

TEST(Steps, MixWithFedSteps) {
  Trainer a, b;
  const NamedTensors batch = test::small_mlp_batch(0);
  a.p.attach(examples(), kOrder);
  Loader loader(examples(), kOrder);
  for (int round = 0; round < 3; ++round) {
    a.p.steps(7);
    a.p.step(test::feeds_of(batch));
    a.p.repeat();
    for (int i = 0; i < 7; ++i) b.p.step(loader.next().feeds);
    b.p.step(test::feeds_of(batch));
    b.p.step(test::feeds_of(batch));
    EXPECT_EQ(a.p.snapshot(), b.p.snapshot()) << round;
  }
}

TEST(Steps, TheLearningRateActsAtTheNextCall) {
  Trainer a, b;
  a.p.attach(examples(), kOrder);
  Loader loader(examples(), kOrder);
  for (double lr : {0.1, 0.01, 0.0}) {
    a.p.write("optimizer.lr", lr);
    b.p.write("optimizer.lr", lr);
    a.p.steps(3);
    for (int i = 0; i < 3; ++i) b.p.step(loader.next().feeds);
    EXPECT_EQ(a.p.snapshot(), b.p.snapshot()) << lr;
  }
}

TEST(Steps, ContinueFromAPosition) {
  Trainer whole, parts;
  whole.p.attach(examples(), kOrder);
  parts.p.attach(examples(), kOrder);
  Loader loader(examples(), kOrder);
  std::vector<double> want = losses_of(whole.p.steps(17));
  for (size_t done = 0; done < want.size();) {
    const LoaderState at = parts.p.position();
    EXPECT_EQ(at, loader.state()) << done;
    parts.p.set_position({99, 3, 2});  // elsewhere, and back
    parts.p.set_position(at);
    const size_t n = std::min<size_t>(3, want.size() - done);
    const std::vector<double> got = losses_of(parts.p.steps(static_cast<int64_t>(n)));
    for (size_t i = 0; i < n; ++i) EXPECT_EQ(got[i], want[done + i]) << done + i;
    for (size_t i = 0; i < n; ++i) loader.next();
    done += n;
  }
  EXPECT_EQ(parts.p.snapshot(), whole.p.snapshot());
}

// A checkpoint says where the attached data set stood; a loader or another attached data set goes on from there.
TEST(Steps, ACheckpointHasThePosition) {
  Trainer whole, first;
  whole.p.attach(examples(), kOrder);
  whole.p.steps(20);
  first.p.attach(examples(), kOrder);
  first.p.steps(7);
  const Checkpoint saved = take_checkpoint(first.p);
  ASSERT_TRUE(saved.data.has_value());
  EXPECT_EQ(saved.data->examples, kExamples);
  EXPECT_EQ(saved.data->next, first.p.position());

  Trainer attached, fed, neither, another;
  attached.p.attach(examples(), kOrder);
  restore_checkpoint(attached.p, saved);
  attached.p.steps(13);
  EXPECT_EQ(attached.p.snapshot(), whole.p.snapshot());
  Loader loader(examples(), kOrder);
  restore_checkpoint(fed.p, saved, {.loader = &loader});
  for (int i = 0; i < 13; ++i) fed.p.step(loader.next().feeds);
  EXPECT_EQ(fed.p.snapshot(), whole.p.snapshot());
  EXPECT_EQ(take_checkpoint(fed.p, {.loader = &loader}), take_checkpoint(attached.p));

  EXPECT_NE(error_of([&] { restore_checkpoint(neither.p, saved); }).find("data position"), std::string::npos);
  another.p.attach(examples(19), kOrder);
  const NamedTensors before = another.p.snapshot();
  const std::string message = error_of([&] { restore_checkpoint(another.p, saved); });
  EXPECT_NE(message.find("19 examples"), std::string::npos) << message;
  EXPECT_EQ(another.p.snapshot(), before);
  EXPECT_EQ(another.p.position(), (LoaderState{5, 0, 0}));
}

TEST(Steps, ResultsAreKeptWhateverComesAfter) {
  Trainer t;
  t.p.attach(examples(), kOrder);
  const std::vector<StepResult> first = t.p.steps(600);
  const std::vector<StepResult> second = t.p.steps(1500);
  Trainer one_by_one;
  const std::vector<double> want = by_loader(one_by_one.p, 2100);
  std::vector<double> got = losses_of(first);
  for (double loss : losses_of(second)) got.push_back(loss);
  EXPECT_EQ(got, want);
}

TEST(Steps, ALabelOutOfRangeStopsThem) {
  Tensor x(TensorType{f32, {kExamples, 3}}), y(TensorType{i32, {kExamples}});
  y.as<int32_t>()[9] = 3;  // in the third batch
  Trainer t, two;
  const LoaderOptions in_order = {.batch = kBatch, .shuffle = false};
  t.p.attach(Dataset({{"x", x}, {"y", y}}), in_order);
  const std::string message = error_of([&] {
    t.p.steps(5);
    t.p.wait();
  });
  EXPECT_NE(message.find("'y'"), std::string::npos) << message;
  EXPECT_NE(message.find("step 3"), std::string::npos) << message;
  y.as<int32_t>()[9] = 0;
  two.p.attach(Dataset({{"x", x}, {"y", y}}), in_order);
  two.p.steps(2);
  EXPECT_EQ(t.p.snapshot(), two.p.snapshot());
}

// The step that found it is named where no optimizer counts steps, what follows from the parameters is that of the
// steps before, and the batches of all that were started are taken.
TEST(Steps, AfterALabelOutOfRangeAllIsAsOfTheStepsBefore) {
  Dataset data = examples();
  Tensor labels = data["y"];
  Tensor numbers(TensorType{i32, {kExamples}});
  for (int64_t i = 0; i < kExamples; ++i) numbers.as<int32_t>()[i] = static_cast<int32_t>(i);
  Loader places(Dataset({{"n", numbers}}), kOrder);
  places.next();
  const int32_t bad = static_cast<const int32_t*>(places.next().feeds[0].tensor.data)[0];
  labels.as<int32_t>()[bad] = 9;
  data = Dataset({{"x", data["x"]}, {"y", labels}});

  test::SmallMlp m;
  Program forward = compile(m.model, {.outputs = {{"loss", m.loss}}});
  forward.attach(data, kOrder);
  const std::string message = error_of([&] {
    forward.steps(5);
    forward.wait();
  });
  EXPECT_NE(message.find("step 2"), std::string::npos) << message;
  EXPECT_EQ(forward.position().position, 0) << "an epoch is five batches";
  EXPECT_EQ(forward.position().epoch, 1u);

  Model model;
  const Value x = model.input("x", {f32, {kBatch, 3}}), y = model.input("y", {i32, {kBatch}});
  const Value w = model.param("w", {f32, {3, 3}}, Init::normal(0, 1));
  const Value twice = model.derived("twice", w * 2);
  const Value logits = matmul(x, twice);
  Program reads = compile(model, {.outputs = {{"logits", logits}}});
  Program trains =
      compile(model, {.loss = cross_entropy(matmul(x, w), y), .optimizer = optim::SGD{.lr = 1}, .share = reads});
  const Tensor before = trains.read("w");
  trains.attach(data, kOrder);
  EXPECT_NE(error_of([&] {
              trains.steps(4);
              trains.wait();
            }),
            "");
  const Tensor after = reads.read("w"), derived = reads.read("twice");
  EXPECT_NE(after, before) << "the first step did update";
  for (int64_t i = 0; i < 9; ++i) EXPECT_EQ(derived.at(i), 2 * after.at(i));
}

TEST(Steps, LeaveTheirInputsForRepeat) {
  Trainer t, fed;
  t.p.attach(examples(), kOrder);
  t.p.steps(3);
  Loader loader(examples(), kOrder);
  for (int i = 0; i < 3; ++i) fed.p.step(loader.next().feeds);
  EXPECT_EQ(t.p.repeat()["loss"], fed.p.repeat()["loss"]);
  EXPECT_NE(error_of([&] { t.p.steps(int64_t{1} << 62); }).find("no memory"), std::string::npos);
}

TEST(Steps, SayWhatTheyCannotDo) {
  Trainer t;
  const auto says = [&](const std::function<void()>& call, const char* word) {
    const std::string message = error_of(call);
    EXPECT_NE(message.find(word), std::string::npos) << message;
  };
  says([&] { t.p.steps(-1); }, "n >= 0");
  says([&] { t.p.position(); }, "no data set is attached");
  says([&] { t.p.set_position({}); }, "no data set is attached");
  const Dataset data = examples();
  says([&] { t.p.attach(Dataset({{"x", data["x"]}, {"z", data["y"]}}), kOrder); }, "no tensor for input 'y'");
  says([&] { t.p.attach(data, {.batch = 8}); }, "'x': expected f32[4,3], got f32[8,3]");
  says([&] { t.p.attach(data, {.batch = kBatch, .drop_last = false}); }, "drop_last");
  says([&] { t.p.attach(examples(3), kOrder); }, "got 3");
  LoaderOptions transformed = kOrder;
  transformed.transform = [](const LoaderState&, std::span<Tensor>) {};
  says([&] { t.p.attach(data, transformed); }, "transform");
  t.p.attach(data, kOrder);
  says([&] { t.p.set_position({0, 0, kExamples + 1}); }, "position");
  EXPECT_EQ(t.p.steps(0).size(), 0u);
  EXPECT_EQ(t.p.position(), (LoaderState{5, 0, 0}));
}

}  // namespace
}  // namespace aicf
