// Updates and guards: what is computed in place, what is copied and when, what is skipped. One rule a test, on graphs
// made by hand; every plan is also proved by check_plan and run.
#include "plan/toy_plan.h"

namespace aicf::toy {
namespace {

// --- updates ------------------------------------------------------------------------------------------------------

TEST(Updates, ComputedInPlace) {
  World w;
  const ValueId p0 = w.param("w"), next = w.op(kBlend, {p0, w.op(kBump, {w.input("x")}, "g")}, "w.next");
  w.graph.add_update(p0, next);
  const ExecPlan p = plan_and_run(w);
  EXPECT_TRUE(same_storage(p, p0, next));
  EXPECT_EQ(copies(p), 0);
  EXPECT_EQ(refusal(p, next, p0), "granted");
}

// An op that reads the old parameter and stands after the update in the graph sees the old value: it is moved.
TEST(Updates, ALateReaderOfTheOldValueGoesFirst) {
  World w;
  const ValueId p0 = w.param("w"), next = w.op(kBlend, {p0, w.input("g")}, "w.next");
  w.graph.add_update(p0, next);
  const ValueId view = w.op(kView, {p0}, "view");
  w.graph.add_output("y", w.op(kFlip, {view}, "y"));
  const ExecPlan p = plan_and_run(w);
  EXPECT_TRUE(same_storage(p, p0, next));
  EXPECT_LT(position(p, "flip %y"), position(p, "blend %w.next"));
}

TEST(Updates, AReaderThatNeedsBothOldAndNewForcesACopy) {
  World w;
  const ValueId p0 = w.param("w"), next = w.op(kBlend, {p0, w.input("g")}, "w.next");
  w.graph.add_update(p0, next);
  w.graph.add_output("y", w.op(kBlend, {p0, next}, "y"));
  const ExecPlan p = plan_and_run(w);
  EXPECT_FALSE(same_storage(p, p0, next));
  EXPECT_EQ(refusal(p, next, p0), "\"blend %y\" reads the old %w and runs after the new value is known");
  EXPECT_LT(position(p, "blend %y"), position(p, "update %w"));
}

TEST(Updates, AnOpThatReadsItElsewhereForcesACopy) {
  World w;
  const ValueId p0 = w.param("w"), next = w.op(kFlip, {w.op(kView, {p0}, "view")}, "n");
  const ValueId back = w.op(kView, {next}, "w.next");
  w.graph.add_update(p0, back);
  const ExecPlan p = plan_and_run(w);
  EXPECT_EQ(refusal(p, back, p0), "flip reads %view at other places than it writes %n");
  EXPECT_EQ(copies(p), 1);
}

TEST(Updates, ThroughViewsOfBothSides) {
  World w;
  const ValueId p0 = w.param("w"), flat = w.op(kView, {p0}, "flat");
  const ValueId next = w.op(kBump, {flat}, "n"), back = w.op(kView, {next}, "w.next");
  w.graph.add_update(p0, back);
  const ExecPlan p = plan_and_run(w);
  EXPECT_TRUE(same_storage(p, p0, next));
  EXPECT_EQ(copies(p), 0);
}

TEST(Updates, ToItselfIsNothing) {
  World w;
  const ValueId a = w.state("a"), b = w.state("b");
  w.graph.add_update(a, a);
  w.graph.add_update(b, w.op(kView, {w.op(kView, {b}, "m")}, "v"));
  EXPECT_TRUE(plan_and_run(w).launches.empty());
}

TEST(Updates, OneValueForTwoTargetsIsCopied) {
  World w;
  const ValueId a = w.state("a"), b = w.state("b"), v = w.op(kBump, {w.input("x")}, "v");
  w.graph.add_update(a, v);
  w.graph.add_update(b, v);
  const ExecPlan p = plan_and_run(w);
  EXPECT_EQ(refusal(p, v, a), "%v is the value of several updates");
  EXPECT_EQ(copies(p), 2);
}

TEST(Updates, ByConstantsAndOldValues) {
  World w;
  const ValueId a = w.state("a"), b = w.state("b"), c = w.constant("c"), x = w.input("x");
  w.graph.add_update(a, c);
  w.graph.add_update(b, x);
  const ExecPlan p = plan_and_run(w);
  EXPECT_EQ(refusal(p, c, a), "%c is a constant");
  EXPECT_EQ(refusal(p, x, b), "the value is the old %x, which has its own storage");
}

TEST(Updates, AHistoryIsShiftedBeforeItIsOverwritten) {
  World w;
  const ValueId now = w.state("now"), last = w.state("last"), before = w.state("before");
  const ValueId next = w.op(kBlend, {now, w.input("x")}, "next");
  w.graph.add_update(now, next);
  w.graph.add_update(last, now);
  w.graph.add_update(before, last);
  const ExecPlan p = plan_and_run(w);
  EXPECT_TRUE(same_storage(p, now, next));
  EXPECT_EQ(copies(p), 2);  // and nothing saved
  EXPECT_LT(position(p, "update %before"), position(p, "update %last"));
  EXPECT_LT(position(p, "update %last"), position(p, "blend %next"));
}

TEST(Updates, ASwapSavesOneValue) {
  World w;
  const ValueId a = w.state("a"), b = w.state("b");
  w.graph.add_update(a, b);
  w.graph.add_update(b, a);
  const ExecPlan p = plan_and_run(w);
  EXPECT_EQ(copies(p), 3);
  EXPECT_EQ(home_of(p, a), Home::external);
}

TEST(Updates, ARotationSavesOneValueAndItsFollowersNone) {
  World w;
  const ValueId tail = w.state("tail"), a = w.state("a"), b = w.state("b"), c = w.state("c");
  w.graph.add_update(tail, a);
  w.graph.add_update(a, b);
  w.graph.add_update(b, c);
  w.graph.add_update(c, a);
  EXPECT_EQ(copies(plan_and_run(w)), 5);
}

TEST(Updates, ASwapOfViewsAndOneUnderGuards) {
  World w;
  const ValueId a = w.state("a"), b = w.state("b", kMat), ok = w.input("ok", kFlag), go = w.input("go", kFlag);
  w.graph.add_update(a, w.op(kView, {b}, "bv"), ok);
  w.graph.add_update(b, w.op(kView, {a}, "av"), go);
  EXPECT_EQ(copies(plan_and_run(w)), 3);
}

// Each guards the other: both guards are old values.
TEST(Updates, GuardsAreOldValues) {
  World w;
  const ValueId g = w.state("g", kFlag), h = w.state("h", kFlag), x = w.state("x");
  w.graph.add_update(g, w.op(kNot, {g}, "g.next"), h);
  w.graph.add_update(h, w.op(kNot, {h}, "h.next"), g);
  w.graph.add_update(x, w.op(kBump, {x}, "x.next"), g);
  plan_and_run(w);
}

TEST(Updates, AnExternalMayGuardItself) {
  World w;
  const ValueId g = w.state("g", kFlag), next = w.op(kNot, {g}, "next");
  w.graph.add_update(g, next, g);
  const ExecPlan p = plan_and_run(w);
  EXPECT_EQ(refusal(p, next, g), "%g is its own guard");
  EXPECT_EQ(copies(p), 2);
}

TEST(Updates, ADerivedStateFollowsInPlace) {
  World w;
  const ValueId ok = w.op(kTest, {w.input("y")}, "ok");
  const ValueId p0 = w.param("w"), next = w.op(kBlend, {p0, w.input("g")}, "w.next");
  const ValueId t = w.state("w.flip"), t_next = w.op(kFlip, {next}, "t.next");
  w.graph.add_update(p0, next, ok);
  w.graph.add_update(t, t_next, ok);
  const ExecPlan p = plan_and_run(w);
  EXPECT_TRUE(same_storage(p, p0, next));
  EXPECT_TRUE(same_storage(p, t, t_next));
  EXPECT_EQ(copies(p), 0);
}

// --- guards -------------------------------------------------------------------------------------------------------

void expect_in_place(const Adam& a, const ExecPlan& p) {
  EXPECT_TRUE(same_storage(p, a.p, a.p_next));
  EXPECT_TRUE(same_storage(p, a.m, a.m_next));
  EXPECT_TRUE(same_storage(p, a.v, a.v_next));
  EXPECT_EQ(copies(p), 0);
}

TEST(Guards, AdamComposedIsInPlaceAndSkipsWhatReadsTheNewMoments) {
  const Adam a = Adam::composed();
  const ExecPlan p = plan_and_run(a.w);
  expect_in_place(a, p);
  for (const Launch& l : p.launches) {
    const bool skipped = l.name == "blend %m.next" || l.name == "blend %v.next" || l.name == "bump %m.hat" ||
                         l.name == "bump %v.hat" || l.name == "blend %step" || l.name == "blend %p.next";
    EXPECT_EQ(l.guard, skipped ? p.buffer_of[a.ok] : plan::kNoBuffer) << l.name;
  }
}

TEST(Guards, AdamTripletIsInPlace) {
  const Adam a = Adam::triplet();
  expect_in_place(a, plan_and_run(a.w));
}

// A library call runs whatever the guard says: what it reads must be right then too.
TEST(Guards, ALibraryCallIsNeverSkipped) {
  const Adam a = Adam::composed();
  std::vector<backend::PreparedKernel> kernels = a.w.kernels();
  const ValueId step = a.w.graph.find("step");
  kernels[static_cast<size_t>(a.w.graph.value(step).producer)].guardable = false;
  const ExecPlan p = plan::make_plan(a.w.graph, std::move(kernels), {});
  EXPECT_NO_THROW(plan::check_plan(a.w.graph, p));
  EXPECT_EQ(refusal(p, a.m_next, a.m), "\"blend %step\" is a library call, which no guard skips");
  EXPECT_EQ(refusal(p, a.v_next, a.v), "\"blend %step\" is a library call, which no guard skips");
  EXPECT_TRUE(same_storage(p, a.p, a.p_next));
}

TEST(Guards, AFetchedValueIsKeptWhenTheGuardIsFalse) {
  Adam a = Adam::composed();
  a.w.graph.add_output("m", a.m_next);
  const ExecPlan p = plan_and_run(a.w);
  EXPECT_EQ(refusal(p, a.m_next, a.m), "the output \"m\" needs %m.next even when the guard %ok is false");
  EXPECT_EQ(home_of(p, a.m_next), Home::fetched);
  EXPECT_TRUE(same_storage(p, a.v, a.v_next));
  EXPECT_TRUE(same_storage(p, a.p, a.p_next));
}

TEST(Guards, ACopyOfTheNewValueFetchedThroughOtherOps) {
  Adam a = Adam::composed();
  a.w.graph.add_output("norm", a.w.op(kTotal, {a.w.op(kView, {a.p_next}, "view")}, "norm"));
  const ExecPlan p = plan_and_run(a.w);
  EXPECT_EQ(refusal(p, a.p_next, a.p), "the output \"norm\" needs %norm even when the guard %ok is false");
  EXPECT_EQ(refusal(p, a.m_next, a.m), "the output \"norm\" needs %norm even when the guard %ok is false");
}

TEST(Guards, OtherGuardsAndUnguardedUpdatesKeepItApart) {
  Adam a = Adam::composed();
  const ValueId count = a.w.state("count", kScalar), ema = a.w.state("ema");
  a.w.graph.add_update(count, a.w.op(kTotal, {a.m_next}, "t"));
  a.w.graph.add_update(ema, a.w.op(kBlend, {ema, a.v_next}, "ema.next"), a.w.op(kTest, {a.w.input("z")}, "other"));
  const ExecPlan p = plan_and_run(a.w);
  EXPECT_EQ(refusal(p, a.m_next, a.m), "the update of %count needs %t even when the guard %ok is false");
  EXPECT_EQ(refusal(p, a.v_next, a.v), "the update of %ema needs %ema.next even when the guard %ok is false");
  EXPECT_TRUE(same_storage(p, a.p, a.p_next));
}

TEST(Guards, AGuardComputedFromTheNewValue) {
  World w;
  const ValueId p0 = w.param("w"), next = w.op(kBump, {p0}, "next");
  w.graph.add_update(p0, next, w.op(kTest, {next}, "ok"));
  EXPECT_EQ(refusal(plan_and_run(w), next, p0), "the guard %ok is computed from it");
}

TEST(Guards, TheGuardIsMovedBeforeTheUpdate) {
  World w;
  const ValueId p0 = w.param("w"), next = w.op(kBump, {p0}, "next");
  const ValueId ok = w.op(kTest, {w.input("x")}, "ok");
  w.graph.add_update(p0, next, ok);
  const ExecPlan p = plan_and_run(w);
  EXPECT_TRUE(same_storage(p, p0, next));
  EXPECT_LT(position(p, "test %ok"), position(p, "bump %next"));
}

TEST(Guards, AGuardThatReadsTheOldValueGoesFirst) {
  World w;
  const ValueId p0 = w.param("w"), next = w.op(kBump, {p0}, "next");
  w.graph.add_update(p0, next, w.op(kTest, {p0}, "ok"));
  EXPECT_TRUE(same_storage(plan_and_run(w), p0, next));
}

TEST(Guards, AGuardIsNotOverwrittenByAnOpItGuards) {
  World w;
  const ValueId a = w.state("a", kFlag), b = w.state("b", kFlag);
  const ValueId ok = w.op(kNot, {w.input("x", kFlag)}, "ok");
  const ValueId a_next = w.op(kNot, {a}, "a.next"), b_next = w.op(kBoth, {a_next, ok}, "t");
  w.graph.add_update(a, a_next, ok);
  w.graph.add_update(b, w.op(kNot, {b_next}, "b.next"), ok);
  const ExecPlan p = plan_and_run(w);
  EXPECT_TRUE(same_storage(p, a, a_next));
  EXPECT_EQ(refusal(p, b_next, ok), "%ok is the guard of the op itself");
}

}  // namespace
}  // namespace aicf::toy
