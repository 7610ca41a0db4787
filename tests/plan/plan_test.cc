// The planner's rules on graphs made by hand, one rule a test. Every plan made here is also proved by check_plan and
// run.
#include <nlohmann/json.hpp>

#include "plan/toy_plan.h"

namespace aicf::toy {
namespace {

// --- results over operands ----------------------------------------------------------------------------------------

TEST(Results, AChainOfPointwiseOpsUsesOneBuffer) {
  World w;
  const ValueId x = w.input("x");
  const ValueId a = w.op(kBump, {x}, "a"), b = w.op(kBump, {a}, "b"), c = w.op(kFlip, {b}, "c");
  w.graph.add_output("c", c);
  const ExecPlan p = plan_and_run(w);
  EXPECT_FALSE(same_storage(p, a, x));
  EXPECT_TRUE(same_storage(p, a, b));
  EXPECT_FALSE(same_storage(p, b, c));
  EXPECT_EQ(refusal(p, a, x), "%x is an input");
  EXPECT_EQ(p.arena_bytes, 512u);
}

TEST(Results, TheLastReaderTakesTheOperand) {
  World w;
  const ValueId x = w.input("x");
  const ValueId a = w.op(kBump, {x}, "a"), b = w.op(kBump, {a}, "b"), c = w.op(kBlend, {b, a}, "c");
  w.graph.add_output("c", w.op(kFlip, {c}, "d"));
  const ExecPlan p = plan_and_run(w);
  EXPECT_EQ(refusal(p, b, a), "\"blend %c\" reads it later");
  EXPECT_TRUE(same_storage(p, c, b));
}

TEST(Results, ReadersThroughViewsCount) {
  World w;
  const ValueId a = w.op(kBump, {w.input("x")}, "a");
  const ValueId view = w.op(kView, {a}, "view");
  const ValueId b = w.op(kBump, {a}, "b"), c = w.op(kFlip, {view}, "c");
  w.graph.add_output("b", w.op(kFlip, {b}, "d"));
  w.graph.add_output("c", c);
  const ExecPlan p = plan_and_run(w);
  EXPECT_TRUE(same_storage(p, view, a));
  EXPECT_EQ(refusal(p, b, a), "\"flip %c\" reads it later");
}

TEST(Results, AnOpWritesOverAView) {
  World w;
  const ValueId view = w.op(kView, {w.op(kBump, {w.input("x")}, "a")}, "view");
  const ValueId b = w.op(kBump, {view}, "b");
  w.graph.add_output("b", w.op(kFlip, {b}, "c"));
  EXPECT_TRUE(same_storage(plan_and_run(w), b, view));
}

TEST(Results, NeverOverConstantsParametersOutputsOrABroadcastOperand) {
  World w;
  const ValueId c = w.constant("c"), p0 = w.param("w"), s = w.state("s", kScalar);
  const ValueId a = w.op(kBump, {c}, "a"), b = w.op(kBump, {p0}, "b");
  const ValueId small = w.op(kBump, {s}, "small"), big = w.op(kBlend, {small, a}, "big");
  w.graph.add_output("b", b);
  w.graph.add_output("z", w.op(kFlip, {w.op(kBlend, {b, big}, "e")}, "z"));
  const ExecPlan p = plan_and_run(w);
  EXPECT_EQ(refusal(p, a, c), "%c is a constant");
  EXPECT_EQ(refusal(p, b, p0), "%w is kept from step to step");
  EXPECT_EQ(refusal(p, small, s), "%s is kept from step to step");
  EXPECT_EQ(refusal(p, big, small), "%small is read as i32[], %big is i32[96]");
  EXPECT_TRUE(same_storage(p, big, a));
  EXPECT_EQ(refusal(p, w.graph.find("e"), b), "%b is the output \"b\"");
}

TEST(Results, OneOperandIsTakenOnce) {
  World w;
  const ValueId a = w.op(kBump, {w.input("x")}, "a"), b = w.op(kBump, {w.input("y")}, "b");
  const std::vector<ValueId> r = w.ops(kPair, {a, b}, "r");
  for (ValueId v : r) w.graph.add_output("out" + std::to_string(v), w.op(kFlip, {v}, "f" + std::to_string(v)));
  const ExecPlan p = plan_and_run(w);
  EXPECT_TRUE(same_storage(p, r[0], b));
  EXPECT_EQ(refusal(p, r[1], b), "\"pair %r\" takes its storage");
}

TEST(Results, AnOperandReadElsewhereByTheSameOpStays) {
  World w;
  const ValueId a = w.op(kBump, {w.input("x")}, "a");
  const std::vector<ValueId> r = w.ops(kPair, {a, a}, "r");
  w.graph.add_output("y", w.op(kFlip, {r[0]}, "y"));
  EXPECT_EQ(refusal(plan_and_run(w), r[0], a), "pair reads %a at other places than it writes %r");
}

TEST(Results, AnUnreadResultLivesThroughItsOwnOp) {
  World w;
  const std::vector<ValueId> r = w.ops(kPair, {w.input("x"), w.input("y")}, "r");
  w.graph.add_output("z", w.op(kFlip, {w.op(kFlip, {r[0]}, "a")}, "z"));
  const ExecPlan p = plan_and_run(w);
  EXPECT_FALSE(same_storage(p, r[0], r[1]));
  EXPECT_EQ(p.arena_bytes, 1024u);  // r and r.1, then r and a
  EXPECT_EQ(p.live_peak_bytes, 1024u);
}

TEST(Results, WorkspaceLivesThroughItsLaunch) {
  World w;
  const ValueId a = w.op(kBump, {w.input("x")}, "a"), b = w.op(kSpill, {a}, "b");
  w.graph.add_output("c", w.op(kFlip, {w.op(kFlip, {b}, "t")}, "c"));
  const ExecPlan p = plan_and_run(w);
  const Launch& l = p.launches[position(p, "spill %b")];
  ASSERT_NE(l.workspace, plan::kNoBuffer);
  EXPECT_TRUE(same_storage(p, a, b));
  EXPECT_EQ(p.arena_bytes, 1024u);  // a and the workspace; t takes the workspace's place
}

TEST(Results, EmptyTensorsConflictWithNothing) {
  World w;
  const ValueId a = w.op(kFlip, {w.input("x", kEmpty)}, "a"), b = w.op(kFlip, {a}, "b");
  const ValueId s = w.state("s", kEmpty);
  w.graph.add_update(s, b);
  w.graph.add_output("b", b);
  const ExecPlan p = plan_and_run(w);
  EXPECT_EQ(p.total_bytes(), 0u);
  EXPECT_TRUE(p.edges.empty());
}

TEST(Results, RequiredRulesAreHonouredWithAliasingOffToo) {
  World w;
  const ValueId base = w.op(kBump, {w.input("x")}, "base");
  const ValueId before = w.op(kFlip, {base}, "before");
  const ValueId y = w.op(kScatter, {base, w.input("i")}, "y");
  const ValueId late = w.op(kFlip, {base}, "late");  // must be moved before the scatter
  for (ValueId v : {before, y, late}) w.graph.add_output("o" + std::to_string(v), v);
  const ExecPlan p = plan_and_run(w);
  EXPECT_LT(position(p, "flip %late"), position(p, "scatter %y"));
  EXPECT_TRUE(same_storage(w.plan({false, false}), y, base));
}

TEST(Results, ARequiredRuleThatCannotHoldIsOurBug) {
  auto message = [](const World& w) {
    try {
      w.plan();
    } catch (const InternalError& e) {
      return std::string(e.what());
    }
    return std::string("no error");
  };
  World input;
  input.graph.add_output("y", input.op(kScatter, {input.input("x"), input.input("i")}, "y"));
  EXPECT_EQ(message(input), "plan: scatter must write %y over its operand %x, but %x is an input");
  World cycle;
  const ValueId base = cycle.op(kBump, {cycle.input("x")}, "base");
  const ValueId y = cycle.op(kScatter, {base, cycle.input("i")}, "y");
  cycle.graph.add_output("z", cycle.op(kBlend, {base, y}, "z"));
  EXPECT_EQ(
      message(cycle),
      "plan: scatter must write %y over its operand %base, but \"blend %z\" reads the old %base and runs after the "
      "new value is known");
}

// --- outputs ------------------------------------------------------------------------------------------------------

TEST(Outputs, AResultIsComputedWhereItIsFetched) {
  World w;
  const ValueId y = w.op(kBump, {w.op(kBump, {w.input("x")}, "a")}, "y");
  w.graph.add_output("y", y);
  w.graph.add_output("again", y);
  w.graph.add_output("flat", w.op(kView, {y}, "v"));
  const ExecPlan p = plan_and_run(w);
  EXPECT_EQ(copies(p), 0);
  EXPECT_EQ(p.outputs, std::vector<BufferId>(3, p.buffer_of[y]));
  EXPECT_EQ(p.fetched_bytes, 384u);
}

TEST(Outputs, OldValuesAndConstantsAreCopiedBeforeAnyOverwrite) {
  World w;
  const ValueId p0 = w.param("w"), next = w.op(kBump, {p0}, "next"), c = w.constant("c");
  w.graph.add_update(p0, next);
  w.graph.add_output("old", p0);
  w.graph.add_output("view", w.op(kView, {p0}, "v"));
  w.graph.add_output("c", c);
  const ExecPlan p = plan_and_run(w);
  EXPECT_EQ(copies(p), 2);
  EXPECT_EQ(p.outputs[0], p.outputs[1]);
  EXPECT_LT(position(p, "fetch %w"), position(p, "bump %next"));
}

TEST(Outputs, ANewValueComputedInPlaceIsCopiedAfterwards) {
  World w;
  const ValueId p0 = w.param("w"), next = w.op(kBump, {p0}, "next");
  w.graph.add_update(p0, next);
  w.graph.add_output("new", next);
  const ExecPlan p = plan_and_run(w);
  EXPECT_TRUE(same_storage(p, p0, next));
  EXPECT_LT(position(p, "bump %next"), position(p, "fetch %next"));
}

// --- the whole ----------------------------------------------------------------------------------------------------

TEST(Plan, ThirtyResidualBlocksWithAndWithoutReuse) {
  World w;
  ValueId h = w.input("x");
  std::vector<ValueId> saved, weights;
  for (int i = 0; i < 30; ++i) {
    weights.push_back(w.param(("w" + std::to_string(i)).c_str()));
    saved.push_back(h);
    h = w.op(kBlend, {h, w.op(kBump, {w.op(kBlend, {w.op(kFlip, {h}, ""), weights[i]}, "")}, "")}, "");
  }
  w.graph.add_output("loss", w.op(kTotal, {h}, "loss"));
  ValueId d = w.op(kBump, {h}, "");
  for (int i = 29; i >= 0; --i) {
    const ValueId grad = w.op(kBlend, {w.op(kFlip, {d}, ""), saved[i]}, "");
    w.graph.add_output("grad" + std::to_string(i), grad);
    w.graph.add_update(weights[i], w.op(kBlend, {weights[i], grad}, ""));
    d = w.op(kBlend, {d, w.op(kBlend, {w.op(kFlip, {d}, ""), weights[i]}, "")}, "");
  }
  const ExecPlan p = plan_and_run(w), apart = w.plan({true, false});
  EXPECT_EQ(copies(p), 0);
  EXPECT_LE(p.arena_bytes, p.live_peak_bytes + p.live_peak_bytes / 10);
  EXPECT_LT(p.arena_bytes, apart.arena_bytes);
}

// --- launches side by side ------------------------------------------------------------------------------------------

// `count` chains of `length` ops from one input, blended at the end.
World branches(int count, int length) {
  World w;
  const ValueId x = w.input("x");
  ValueId sum = x;
  for (int b = 0; b < count; ++b) {
    ValueId h = x;
    for (int i = 0; i < length; ++i) h = w.op(kFlip, {h}, "");  // never in place
    sum = w.op(kBlend, {sum, h}, "");
  }
  w.graph.add_output("y", sum);
  return w;
}

TEST(Concurrent, BranchesShareNoBytesWhereMemoryIsAmple) {
  const World w = branches(4, 5);
  const ExecPlan serial = plan_and_run(w), wide = w.plan({true, true, true});
  EXPECT_EQ(plan::critical_path(plan::graph_of(wide)), 5 + 4);
  EXPECT_GT(plan::critical_path(plan::graph_of(serial)), 5 + 4) << "sharing in launch order makes branches wait";
  EXPECT_TRUE(wide.memory_orders.empty());
  EXPECT_LT(wide.arena_bytes, w.plan({true, false}).arena_bytes) << "a chain still shares along itself";
}

TEST(Concurrent, WithoutMemoryToSpareOrdersAreAddedAndListed) {
  const World w = branches(6, 4);
  const ExecPlan tight = w.plan({true, true, true, 0});
  EXPECT_LE(tight.arena_bytes, tight.live_peak_bytes + tight.live_peak_bytes / 10);
  EXPECT_FALSE(tight.memory_orders.empty());
  EXPECT_NE(plan::print(w.graph, tight).find("waiting only to save memory"), std::string::npos);
  const ExecPlan ample = w.plan({true, true, true, size_t{1} << 20});
  EXPECT_TRUE(ample.memory_orders.empty());
  EXPECT_GT(ample.arena_bytes, tight.arena_bytes);
}

// Writing over an operand that another op reads, with nothing between them, would make one wait for the other.
TEST(Concurrent, AResultTakesNoOperandThatAnUnorderedOpReads) {
  World w;
  const ValueId a = w.op(kFlip, {w.input("x")}, "a");
  const ValueId left = w.op(kFlip, {a}, "left"), right = w.op(kBump, {a}, "right");
  w.graph.add_output("left", left);
  w.graph.add_output("y", w.op(kFlip, {right}, "y"));
  EXPECT_TRUE(same_storage(w.plan(), right, a));
  EXPECT_EQ(refusal(w.plan({true, true, true}), right, a), "\"flip %left\" reads it, and need not wait");
}

TEST(Plan, TotalsCountEveryExternalAndOnlyUsedConstants) {
  World w;
  w.state("unused");
  w.constant("unused.c");
  w.graph.add_output("y", w.op(kFlip, {w.op(kFlip, {w.input("x")}, "a")}, "y"));
  const ExecPlan p = w.plan();
  EXPECT_EQ(p.external_bytes, 2 * 384u);
  EXPECT_EQ(p.constant_bytes, 0u);
  EXPECT_EQ(p.fetched_bytes, 384u);
  EXPECT_EQ(p.arena_bytes, 512u);
  EXPECT_EQ(p.total_bytes(), 3 * 384u + 512u);
}

TEST(Plan, OptionsOffMeanWhatTheySay) {
  const Adam a = Adam::composed();
  const ExecPlan p = a.w.plan({false, false});
  for (ValueId v = 0; v < a.w.graph.num_values(); ++v) {
    for (ValueId u = 0; u < v; ++u) EXPECT_FALSE(same_storage(p, u, v));
  }
  for (const plan::AliasDecision& d : p.aliases) EXPECT_EQ(d.reason, "aliasing is off");
  size_t sum = 0;
  for (const plan::Buffer& b : p.buffers) sum += b.home == Home::arena ? (b.bytes + 255) / 256 * 256 : 0;
  EXPECT_EQ(p.arena_bytes, sum);
}

TEST(Plan, CompositesAndMissingKernelsAreOurBugs) {
  World w;
  w.graph.add_output("y", w.op(kBump, {w.input("x")}, "y"));
  EXPECT_THROW(plan::make_plan(w.graph, {}, {}), InternalError);
  static const ToyOp composite = make("composite", 1, like_first, {}, nullptr, ir::kComposite);
  w.op(composite, {w.graph.find("x")}, "z");
  EXPECT_THROW(plan::make_plan(w.graph, w.kernels(), {}), InternalError);
}

// The text of a whole plan, so that a change of it is seen.
TEST(Plan, Prints) {
  World w;
  const ValueId ok = w.op(kTest, {w.input("x")}, "ok");
  const ValueId p0 = w.param("w"), next = w.op(kBlend, {p0, w.op(kFlip, {w.graph.find("x")}, "g")}, "w.next");
  w.graph.add_update(p0, next, ok);
  w.graph.add_output("w", p0);
  const ExecPlan p = w.plan();
  EXPECT_EQ(plan::print(w.graph, p), R"(plan: 4 launches, 5 buffers, 3 edges
launches (4)
     0  test %ok  [toy]  b0 -> b3
     1  flip %g  [toy]  b0 -> b4
     2  fetch %w  [copy]  b1 -> b2
     3  blend %w.next  [toy]  b1 b4 -> b1  when %ok (b3)  after 0:raw 1:raw 2:war
buffers (5)
  b0    external          384 bytes  %x
  b1    external          384 bytes  %w
  b2    fetched           384 bytes  %w
  b3    arena               1 bytes at 0  %ok
  b4    arena             384 bytes at 256  %g
  output "w" in b2
shared storage (1 granted, 0 refused)
  %w.next in %w
memory
  total                1920 bytes
  external              768 bytes
  constant                0 bytes
  fetched               384 bytes
  arena                 768 bytes
  live peak             768 bytes
)");
  EXPECT_NE(plan::print_memory(w.graph, p).find("           256          384  1..3          b4 %g\n"),
            std::string::npos)
      << plan::print_memory(w.graph, p);
  EXPECT_NE(plan::to_dot(w.graph, p).find("n3 [label=\"blend %w.next when %ok\", peripheries=2];"), std::string::npos);
  EXPECT_NE(plan::to_dot(w.graph, p).find("n2 -> n3 [label=war, style=dashed];"), std::string::npos);
  const nlohmann::json j = nlohmann::json::parse(plan::to_json(w.graph, p));
  EXPECT_EQ(j["launches"][3]["guard"], 3);
  EXPECT_EQ(j["launches"][0]["guard"], nullptr);
  EXPECT_EQ(j["bytes"]["total"], 1920);
  EXPECT_EQ(j["outputs"]["w"], 2);
  EXPECT_EQ(j["edges"].size(), p.edges.size());
}

}  // namespace
}  // namespace aicf::toy
