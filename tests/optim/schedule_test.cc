// Schedules: the factor on the device against the formula in f64, at the edges, and per group.
#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <numbers>

#include "aicf/error.h"
#include "optim/step.h"

namespace aicf::optim {
namespace {

// The factors of steps t = 0…n-1, as optimizer.lr_effective shows them for lr = 1.
std::vector<double> factors(const Schedule& schedule, DType dtype, int n) {
  TestStep step(SGD{.lr = 1, .schedule = schedule}, {{"w", {dtype, {}}, ""}});
  std::vector<double> out;
  for (int t = 0; t < n; ++t) {
    step.step();
    out.push_back(step.get("optimizer.lr_effective"));
  }
  return out;
}

void expect_factors(const Schedule& schedule, int n, const std::function<double(double t)>& formula) {
  for (DType dtype : {f64, f32}) {
    const std::vector<double> got = factors(schedule, dtype, n);
    for (int t = 0; t < n; ++t) {
      // Factors are at most 1 and a handful of f32 roundings away.
      EXPECT_NEAR(got[static_cast<size_t>(t)], formula(t), dtype == f64 ? 1e-14 : 8 * 0x1p-24)
          << name_of(dtype) << " t = " << t;
    }
  }
}

TEST(Schedule, Constant) {
  expect_factors({}, 3, [](double) { return 1.0; });
  expect_factors(Schedule::constant(), 3, [](double) { return 1.0; });
}

TEST(Schedule, LinearWarmup) {
  expect_factors(Schedule::linear_warmup(4), 7, [](double t) { return std::min(1.0, (t + 1) / 4); });
  expect_factors(Schedule::linear_warmup(0), 3, [](double) { return 1.0; });
}

TEST(Schedule, Cosine) {
  for (int64_t warmup : {0, 1, 5}) {
    for (double min : {0.0, 0.1, 1.0}) {
      expect_factors(Schedule::cosine(20, warmup, min), 30, [&](double t) {
        if (t < static_cast<double>(warmup)) return (t + 1) / static_cast<double>(warmup);
        if (t >= 20) return min;
        const double done = (t - static_cast<double>(warmup)) / (20 - static_cast<double>(warmup));
        return min + (1 - min) * (1 + std::cos(std::numbers::pi * done)) / 2;
      });
      for (DType dtype : {f64, f32}) {
        TestStep step(SGD{.lr = 1, .schedule = Schedule::cosine(20, warmup, min)}, {{"w", {dtype, {}}, ""}});
        for (double t : {20.0, 21.0, 1e6, 2e9}) {
          step.set("optimizer.step", t);
          step.step();
          EXPECT_EQ(step.get("optimizer.lr_effective"), step.get("optimizer.schedule.min_factor")) << t;
        }
      }
    }
  }
}

TEST(Schedule, TableRepeatsItsLastFactor) {
  const std::vector<double> table = {1, 0.5, 0.25, 0.125};
  expect_factors(Schedule::table(table), 9, [&](double t) { return table[static_cast<size_t>(std::min(t, 3.0))]; });
  expect_factors(Schedule::table({0.75}), 3, [](double) { return 0.75; });
  TestStep step(SGD{.lr = 1, .schedule = Schedule::table(table)}, {{"w", {f32, {}}, ""}});
  step.set("optimizer.schedule.table", 2, 1);
  step.step();
  step.step();
  EXPECT_EQ(step.get("optimizer.lr_effective"), 2);
}

TEST(Schedule, ScalesTheBaseAndActsOnDecoupledDecay) {
  TestStep step(AdamW{.lr = 0.1, .weight_decay = 0.5, .schedule = Schedule::table({1, 0.5})}, {{"w", {f64, {}}, ""}});
  step.set("w", 1);
  step.step();
  EXPECT_DOUBLE_EQ(step.get("w"), 0.95);
  step.set("optimizer.lr", 0.2);
  step.step();
  EXPECT_DOUBLE_EQ(step.get("optimizer.lr_effective"), 0.1);
  EXPECT_DOUBLE_EQ(step.get("w"), 0.95 * 0.95);
}

TEST(Schedule, EachGroupCountsItsOwnSteps) {
  TestStep step(SGD{.lr = 1, .schedule = Schedule::linear_warmup(4)}, {{"a", {f64, {}}, ""}, {"b", {f64, {}}, "late"}});
  step.set("optimizer.step", 2);
  step.step();
  EXPECT_EQ(step.get("optimizer.lr_effective"), 0.75);
  EXPECT_EQ(step.get("optimizer.late.lr_effective"), 0.25);
}

TEST(Schedule, DomainsAreChecked) {
  const auto message = [](auto f) -> std::string {
    try {
      f();
    } catch (const Error& e) {
      return e.what();
    }
    return "";
  };
  EXPECT_EQ(message([] { Schedule::linear_warmup(-1); }), "linear_warmup: expected 0 steps or more, got -1");
  EXPECT_EQ(message([] { Schedule::cosine(5, 5); }), "cosine: expected 0 <= warmup < total, got warmup 5 and total 5");
  EXPECT_EQ(message([] { Schedule::cosine(5, -1); }),
            "cosine: expected 0 <= warmup < total, got warmup -1 and total 5");
  EXPECT_EQ(message([] { Schedule::cosine(5, 0, 1.5); }), "cosine: expected min_factor in [0, 1], got 1.5");
  EXPECT_EQ(message([] { Schedule::table({}); }), "table: expected one factor or more, got none");
  EXPECT_EQ(message([] { Schedule::table({1, -1}); }), "table: expected finite factors >= 0, got -1");
}

}  // namespace
}  // namespace aicf::optim
