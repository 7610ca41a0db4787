// Several models, stores and programs in one process, compiled, run and destroyed by several threads at once: each does
// what it does alone, bit for bit.
#include <gtest/gtest.h>

#include <atomic>
#include <barrier>
#include <functional>
#include <thread>

#include "aicf/data.h"
#include "support/programs.h"

namespace aicf {
namespace {

using test::SmallMlp;

void in_threads(size_t count, const std::function<void(size_t)>& work) {
  std::barrier start(static_cast<std::ptrdiff_t>(count));
  std::vector<std::thread> threads;
  for (size_t i = 0; i < count; ++i) {
    threads.emplace_back([&, i] {
      start.arrive_and_wait();
      work(i);
    });
  }
  for (std::thread& thread : threads) thread.join();
}

Dataset examples() {
  Tensor x(TensorType{f32, {23, 3}}), y(TensorType{i32, {23}});
  for (int64_t i = 0; i < x.elements(); ++i) x.as<float>()[i] = 0.01f * static_cast<float>(i * i % 50) - 0.2f;
  for (int64_t i = 0; i < y.elements(); ++i) y.as<int32_t>()[i] = static_cast<int32_t>(i % 3);
  return Dataset({{"x", x}, {"y", y}});
}

// What a run left, and its losses.
struct Trace {
  NamedTensors tensors;
  std::vector<double> losses;
  bool operator==(const Trace&) const = default;
};

constexpr int kSteps = 25;

Trace fed(Model& model, const CompileOptions& options) {
  Program p = compile(model, options);
  Trace trace;
  for (int i = 0; i < kSteps; ++i) {
    trace.losses.push_back(p.step(test::feeds_of(test::small_mlp_batch(i))).scalar("loss"));
  }
  trace.tensors = p.snapshot();
  return trace;
}

Trace mlp(uint64_t seed, const CompileOptions& base) {
  SmallMlp m(seed);
  CompileOptions options = base;
  options.loss = m.loss;
  return fed(m.model, options);
}

// Norm, dropout, a counter of its own, a derived state.
Trace with_states(double drop) {
  Model m(3);
  const Value x = m.input("x", {f32, {4, 3}}), y = m.input("y", {i32, {4}});
  const Value h = dropout(m.add(nn::Linear(9), m.add(nn::LayerNorm(), x, "norm"), "fc"), drop);
  const Value seen = m.state("seen", {f32, {}});
  m.update(seen, seen * 0.9 + mean(x));
  const Value head = m.param("head", {f32, {9, 3}}, Init::normal(0, 0.3));
  m.derived("head.t", transpose(head));
  return fed(m, {.loss = cross_entropy(matmul(h, head), y), .optimizer = optim::AdamW{.lr = 0.05}});
}

Trace attached(const optim::Optimizer& optimizer) {
  SmallMlp m(5);
  Program p = compile(m.model, {.loss = m.loss, .optimizer = optimizer});
  p.attach(examples(), {.batch = 4, .seed = 5});
  Trace trace;
  for (int n : {7, 1, 30}) {
    for (const StepResult& r : p.steps(n)) trace.losses.push_back(r.scalar("loss"));
  }
  trace.tensors = p.snapshot();
  return trace;
}

std::vector<std::function<Trace()>> jobs() {
  const optim::Optimizer adam = optim::Adam{.lr = 0.1};
  return {[=] { return mlp(1, {.optimizer = adam}); },
          [=] { return mlp(2, {.optimizer = adam}); },
          [=] { return mlp(1, {.optimizer = optim::SGD{.lr = 0.1, .momentum = 0.9}, .mode = Mode::eager}); },
          [=] { return mlp(1, {.optimizer = adam, .precision = "bf16", .clip_norm = 0.5, .ema_decay = 0.9}); },
          [=] { return mlp(1, {.optimizer = adam, .threads = 1}); },
          [] { return with_states(0.4); },
          [] { return with_states(0.1); },
          [=] { return attached(adam); },
          [] { return attached(optim::SGD{.lr = 0.2}); }};
}

TEST(StoresThreads, EachRunIsTheRunAlone) {
  const std::vector<std::function<Trace()>> all = jobs();
  std::vector<Trace> want;
  for (const auto& job : all) want.push_back(job());
  for (bool cached : {false, true}) {
    if (!cached) clear_compile_cache();
    std::vector<Trace> got(2 * all.size());
    in_threads(got.size(), [&](size_t i) { got[i] = all[i % all.size()](); });
    for (size_t i = 0; i < got.size(); ++i) EXPECT_TRUE(got[i] == want[i % all.size()]) << i << " " << cached;
  }
}

TEST(StoresThreads, OneEntryForAllWhoCompileTheSame) {
  const Trace want = mlp(1, {.optimizer = optim::Adam{.lr = 0.1}});
  for (int round = 0; round < 5; ++round) {
    clear_compile_cache();
    std::vector<Trace> got(6);
    in_threads(got.size(), [&](size_t i) { got[i] = mlp(1, {.optimizer = optim::Adam{.lr = 0.1}}); });
    for (const Trace& trace : got) EXPECT_TRUE(trace == want);
    EXPECT_EQ(compile_cache_size(), 1u);
  }
  // The cache may be dropped at any time: whoever has an entry keeps it.
  std::atomic<bool> done = false;
  std::thread clearing([&] {
    while (!done) clear_compile_cache();
  });
  in_threads(4, [&](size_t) {
    for (int i = 0; i < 3; ++i) EXPECT_TRUE(mlp(1, {.optimizer = optim::Adam{.lr = 0.1}}) == want);
  });
  done = true;
  clearing.join();
}

// Programs, stores and results come and go while others run: of other stores, and of the same one.
TEST(StoresThreads, WhatIsDestroyedDisturbsNobody) {
  const Trace want = mlp(1, {.optimizer = optim::Adam{.lr = 0.1}});
  SmallMlp shared(7);
  Program trained = compile(shared.model, {.loss = shared.loss, .optimizer = optim::Adam{.lr = 0.1}});
  const StepResult kept = trained.step(test::feeds_of(test::small_mlp_batch(0)));
  const double loss = kept.scalar("loss");
  in_threads(4, [&](size_t i) {
    for (int round = 0; round < 4; ++round) {
      switch (i) {
        case 0:
        case 1:
          EXPECT_TRUE(mlp(1, {.optimizer = optim::Adam{.lr = 0.1}}) == want);
          break;
        case 2: {  // a program of the shared store, and what it returned, which outlives it
          SmallMlp m(7);
          StepResult last;
          {
            Program eval = compile(m.model, {.outputs = {{"logits", m.logits}}, .share = trained});
            last = eval.step({{"x", test::small_mlp_batch(round)[0].second}});
          }
          EXPECT_EQ(last["logits"].shape(), (Shape{4, 3}));
          break;
        }
        default:
          for (int k = 0; k < 20; ++k) trained.step(test::feeds_of(test::small_mlp_batch(k)));
      }
    }
  });
  EXPECT_EQ(trained.read("optimizer.step").item(), 81);
  trained = Program();
  EXPECT_EQ(kept.scalar("loss"), loss);
}

// One thread trains, others evaluate over the same store: what they see is always the params between two steps, and
// never those of before.
TEST(StoresThreads, EvaluationsSeeTheStoreBetweenTwoSteps) {
  const NamedTensors batch = test::small_mlp_batch(1);
  const std::vector<Feed> x = {{"x", batch[0].second}};
  const auto programs = [](SmallMlp& m) {
    Program train = compile(m.model, {.loss = m.loss, .optimizer = optim::Adam{.lr = 0.02}});
    return std::pair(train, compile(m.model, {.outputs = {{"logits", m.logits}}, .share = train}));
  };
  std::vector<Tensor> logits;  // by steps done
  SmallMlp first;
  auto [alone, eval_alone] = programs(first);
  for (int i = 0; i <= 60; ++i) {
    if (i > 0) alone.step(test::feeds_of(test::small_mlp_batch(i)));
    logits.push_back(eval_alone.step(x)["logits"]);
  }
  SmallMlp m;
  const auto [train, eval] = programs(m);
  in_threads(3, [&, p = train, e = eval](size_t i) {
    Program own_train = p, own_eval = e;
    if (i == 0) {
      for (int k = 1; k <= 60; ++k) own_train.step(test::feeds_of(test::small_mlp_batch(k)));
      return;
    }
    for (size_t at = 0; at + 1 < logits.size();) {
      const Tensor seen = own_eval.step(x)["logits"];
      const auto found = std::find(logits.begin() + static_cast<std::ptrdiff_t>(at), logits.end(), seen);
      ASSERT_TRUE(found != logits.end()) << "of no moment after step " << at;
      at = static_cast<size_t>(found - logits.begin());
    }
  });
}

// A position belongs to the data set that it was asked of, or set in, whatever is attached meanwhile: no step reads
// beyond its rows.
TEST(StoresThreads, AnotherDataSetComesBetweenTwoSteps) {
  Model model;
  const Value x = model.input("x", {f32, {2}});
  Program p = compile(model, {.outputs = {{"sum", sum(x)}}});
  const auto ones = [](int64_t n) {
    Tensor rows(TensorType{f32, {n}});
    std::fill_n(rows.as<float>(), n, 1.0f);
    return Dataset({{"x", rows}});
  };
  const Dataset small = ones(4), large = ones(20000);
  const LoaderOptions order = {.batch = 2, .shuffle = false};
  p.attach(small, order);
  std::atomic<bool> stop = false;
  in_threads(3, [&](size_t i) {
    if (i == 0) {
      for (int k = 0; k < 100; ++k) {
        p.attach(k % 2 == 0 ? large : small, order);
        EXPECT_EQ(p.steps(1)[0].scalar("sum"), 2);
      }
      stop = true;
    }
    while (!stop) {
      if (i == 1) {
        try {
          p.set_position({0, 0, 10000});  // in the large one only
        } catch (const Error&) {
        }
      } else {
        EXPECT_LE(p.position().position, 20000);
      }
    }
  });
}

// The training is taken over while another thread steps: its steps so far count, the next one says that it is stale.
TEST(StoresThreads, AReconfigurationComesBetweenTwoSteps) {
  SmallMlp m;
  Program adam = compile(m.model, {.loss = m.loss, .optimizer = optim::Adam{.lr = 0.01}});
  std::atomic<int> done = 0;
  std::string said;
  std::thread stepping([&, p = adam]() mutable {
    said = test::error_of([&] {
      for (;; ++done) p.step(test::feeds_of(test::small_mlp_batch(done)));
    });
  });
  while (done < 20) std::this_thread::yield();
  Program sgd =
      compile(m.model, {.loss = m.loss, .optimizer = optim::SGD{.lr = 0.1}, .share = adam, .reconfigure = true});
  stepping.join();
  EXPECT_NE(said.find("step: this program is stale"), std::string::npos) << said;

  SmallMlp other;
  Program alone = compile(other.model, {.loss = other.loss, .optimizer = optim::Adam{.lr = 0.01}});
  for (int i = 0; i < done; ++i) alone.step(test::feeds_of(test::small_mlp_batch(i)));
  EXPECT_TRUE(sgd.snapshot({.states = false}) == alone.snapshot({.states = false})) << done << " steps";
}

}  // namespace
}  // namespace aicf
