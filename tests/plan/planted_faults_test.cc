// Valid plans with one fault planted in each: check_plan must refuse them, and say exactly what is wrong.
#include <gtest/gtest.h>

#include "plan/toy.h"

namespace aicf::toy {
namespace {

using plan::Edge;
using plan::ExecPlan;
using plan::Hazard;
using plan::Home;
using plan::kNoBuffer;
using plan::Launch;

// A little step with a bit of everything. The names of launches and buffers in the expected messages are from here.
struct Step {
  World w;
  ValueId x, weight, old, gate, ok, a, view, b, g, next, loss, two;
  ExecPlan p;

  explicit Step(plan::Options options = {}) {
    x = w.input("x");
    weight = w.param("w");
    old = w.state("old");
    gate = w.state("gate", kFlag);
    ok = w.op(kTest, {x}, "ok");
    a = w.op(kFlip, {x}, "a");
    view = w.op(kView, {a}, "view");
    b = w.op(kSpill, {w.op(kFlip, {view}, "f")}, "b");
    g = w.op(kFlip, {w.op(kBlend, {w.op(kView, {b}, "bv"), w.constant("c")}, "s")}, "g");
    next = w.op(kBlend, {weight, g}, "w.next");
    w.graph.add_update(weight, next, ok);
    w.graph.add_update(old, weight);
    w.graph.add_update(gate, w.op(kNot, {gate}, "gate.next"), w.input("go", kFlag));
    loss = w.op(kTotal, {g}, "loss");
    w.graph.add_output("loss", loss);
    w.graph.add_output("x", x);
    p = w.plan(options);
  }

  int at(const std::string& launch) const {
    for (size_t i = 0; i < p.launches.size(); ++i) {
      if (p.launches[i].name == launch) return static_cast<int>(i);
    }
    ADD_FAILURE() << "no launch " << launch << '\n' << plan::print(w.graph, p);
    return 0;
  }
  Launch& launch(const std::string& name) { return p.launches[at(name)]; }
  plan::Buffer& buffer(ValueId v) { return p.buffers[p.buffer_of[v]]; }
  void drop(const std::string& from, const std::string& to, Hazard hazard) {
    const size_t n = std::erase_if(
        p.edges, [&](const Edge& e) { return e.from == at(from) && e.to == at(to) && e.hazard == hazard; });
    EXPECT_EQ(n, 1u) << plan::print(w.graph, p);
  }
  // What check_plan says of the plan now.
  std::string fault() const {
    try {
      plan::check_plan(w.graph, p);
    } catch (const InternalError& e) {
      return e.what();
    }
    return "accepted\n" + plan::print(w.graph, p);
  }
};

TEST(Planted, NothingPlantedIsAccepted) {
  for (const plan::Options& options : kAllOptions) {
    Step s(options);
    EXPECT_NO_THROW(plan::check_plan(s.w.graph, s.p));
  }
}

// --- edges --------------------------------------------------------------------------------------------------------

TEST(Planted, ADroppedRawEdge) {
  Step s;
  s.drop("flip %g", "total %loss", Hazard::raw);
  EXPECT_EQ(s.fault(),
            "check_plan: launch 5 \"flip %g\" and launch 9 \"total %loss\" may run in any order: raw on buffer 12 (%g, "
            "arena)");
}

TEST(Planted, ADroppedRawEdgeToAGuard) {
  Step s;
  s.drop("test %ok", "blend %w.next", Hazard::raw);
  EXPECT_EQ(
      s.fault(),
      "check_plan: launch 0 \"test %ok\" and launch 7 \"blend %w.next\" may run in any order: raw on buffer 8 (%ok, "
      "arena)");
}

TEST(Planted, ADroppedWarEdge) {
  Step s;
  s.drop("update %old", "blend %w.next", Hazard::war);
  EXPECT_EQ(s.fault(),
            "check_plan: launch 6 \"update %old\" and launch 7 \"blend %w.next\" may run in any order: war on buffer 1 "
            "(%w, external)");
}

// Two results that nobody reads, one after the other in the same bytes: only the write-write edge orders them.
TEST(Planted, ADroppedWawEdge) {
  World w;
  const ValueId x = w.input("x");
  w.op(kFlip, {x}, "a");
  w.op(kFlip, {x}, "b");
  ExecPlan p = w.plan();
  ASSERT_EQ(p.edges.size(), 1u);
  p.edges.clear();
  try {
    plan::check_plan(w.graph, p);
    FAIL();
  } catch (const InternalError& e) {
    EXPECT_STREQ(e.what(),
                 "check_plan: launch 0 \"flip %a\" and launch 1 \"flip %b\" may run in any order: waw on buffer 2 (%b, "
                 "arena)");
  }
}

TEST(Planted, EdgesBackwardsTwiceOrWithoutCause) {
  Step backwards;
  backwards.p.edges.front() = {5, 1, Hazard::raw};
  EXPECT_EQ(backwards.fault(), "check_plan: edge 5 -> 1 does not go forward");
  Step twice;
  twice.p.edges.insert(twice.p.edges.begin(), twice.p.edges.front());
  EXPECT_EQ(twice.fault(), "check_plan: edge 0 -> 7 (raw) is out of order or there twice");
  Step needless;
  needless.p.edges.insert(needless.p.edges.begin(), {0, 1, Hazard::raw});
  EXPECT_EQ(needless.fault(), "check_plan: edge 0 -> 1 (raw) has no cause");
}

// --- buffers ------------------------------------------------------------------------------------------------------

TEST(Planted, OverlappingLives) {
  Step s;
  s.buffer(s.ok).offset = s.buffer(s.a).offset;
  EXPECT_EQ(s.fault(), "check_plan: launch 7 \"blend %w.next\" is guarded by %g, which guards nothing");
}

TEST(Planted, AnOperandOverwrittenBeforeItsReader) {
  Step s;
  const ValueId f = s.w.graph.find("f");
  s.p.buffers[s.launch("spill %b").workspace].offset = 0;
  s.buffer(s.g).offset = s.buffer(f).offset;
  EXPECT_EQ(s.fault(), "check_plan: launch 5 \"flip %g\" writes %g over %s, which its record does not allow");
  World w;
  const ValueId x = w.input("x"), a = w.op(kFlip, {x}, "a"), b = w.op(kSpill, {x}, "b");
  w.graph.add_output("c", w.op(kPair, {a, b}, "c"));
  auto fault = [&](auto move) {
    ExecPlan p = w.plan({false, true});
    move(p).offset = p.buffers[p.buffer_of[a]].offset;
    try {
      plan::check_plan(w.graph, p);
    } catch (const InternalError& e) {
      return std::string(e.what());
    }
    return std::string("accepted");
  };
  EXPECT_EQ(fault([&](ExecPlan& p) -> plan::Buffer& { return p.buffers[p.buffer_of[b]]; }),
            "check_plan: launch 2 \"pair %c\" reads %a: there is %b");
  EXPECT_EQ(fault([&](ExecPlan& p) -> plan::Buffer& { return p.buffers[p.launches[1].workspace]; }),
            "check_plan: launch 2 \"pair %c\" reads %a: overwritten by launch 1 \"spill %b\"");
}

TEST(Planted, AnOffsetOutOfBounds) {
  Step s;
  s.buffer(s.g).offset = s.p.arena_bytes;
  EXPECT_EQ(s.fault(), "check_plan: buffer 12 (%g, arena) ends at 1664, the arena at 1280");
}

TEST(Planted, AMisalignedOffset) {
  Step s;
  s.buffer(s.ok).offset = 8;
  EXPECT_EQ(s.fault(), "check_plan: buffer 8 (%ok, arena) at 8: not a multiple of 256");
}

TEST(Planted, ABufferTooSmall) {
  Step s;
  s.buffer(s.g).bytes = 100;
  EXPECT_EQ(s.fault(), "check_plan: %g needs 384 bytes, buffer 12 (%g, arena) has 100");
}

TEST(Planted, AnExternalWithTwoBuffersOrAnother) {
  Step twice;
  twice.p.buffers.push_back(twice.buffer(twice.weight));
  EXPECT_EQ(twice.fault(), "check_plan: %w has two buffers");
  Step other;
  other.p.buffer_of[other.weight] = other.p.buffer_of[other.old];
  EXPECT_EQ(other.fault(), "check_plan: %w is not in a buffer of its own but in buffer 2 (%old, external)");
}

TEST(Planted, AnOutputInTheArena) {
  Step s;
  s.p.outputs[0] = s.p.buffer_of[s.g];
  EXPECT_EQ(s.fault(), "check_plan: output \"loss\" is in buffer 12 (%g, arena), not fetched");
}

TEST(Planted, AnotherOutputsBuffer) {
  Step s;
  s.p.outputs[0] = s.p.outputs[1];
  EXPECT_EQ(s.fault(), "check_plan: output \"loss\" should be %loss: there is %x");
}

TEST(Planted, AWorkspaceMissingSmallOrShared) {
  Step missing;
  missing.launch("spill %b").workspace = kNoBuffer;
  EXPECT_EQ(missing.fault(), "check_plan: launch 3 \"spill %b\" asks for 384 bytes of workspace, got buffer -1");
  Step small;
  small.launch("spill %b").workspace = small.p.buffer_of[small.ok];
  EXPECT_EQ(small.fault(), "check_plan: launch 3 \"spill %b\": buffer 8 does not hold its 384 bytes of workspace");
  Step shared;
  shared.p.buffers[shared.launch("spill %b").workspace].offset = shared.buffer(shared.b).offset;
  EXPECT_EQ(shared.fault(), "check_plan: launch 3 \"spill %b\": the workspace overlaps buffer 10 (%f, arena)");
}

TEST(Planted, AGuardThatItsKernelIgnores) {
  Step s;
  s.launch("blend %w.next").kernel.guardable = false;
  EXPECT_EQ(s.fault(), "check_plan: launch 7 \"blend %w.next\" has a guard, and nothing skips its kernel");
}

// --- launches -----------------------------------------------------------------------------------------------------

TEST(Planted, AWrongBuffer) {
  Step s;
  s.launch("flip %f").writes[0] = s.p.buffer_of[s.g];
  EXPECT_EQ(s.fault(), "check_plan: launch 2 \"flip %f\": result 0 is %f in buffer 10, not buffer 12");
}

TEST(Planted, SwappedOperands) {
  Step s;
  Launch& l = s.launch("blend %w.next");
  std::swap(l.reads[0], l.reads[1]);
  EXPECT_EQ(s.fault(), "check_plan: launch 7 \"blend %w.next\": operand 0 is %w in buffer 1, not buffer 12");
}

TEST(Planted, AMissingOperand) {
  Step s;
  s.launch("blend %w.next").reads.pop_back();
  EXPECT_EQ(s.fault(), "check_plan: launch 7 \"blend %w.next\" has 1 operands, the op 2");
}

TEST(Planted, AMissingLaunch) {
  Step s;
  s.p.launches.pop_back();  // the fetch
  EXPECT_EQ(s.fault(), "check_plan: output \"x\" should be %x: nothing has been written");
  s.p.launches.pop_back();
  EXPECT_EQ(s.fault(), "check_plan: total %loss is never launched");
}

TEST(Planted, AMissingView) {
  Step s({false, true});
  std::erase_if(s.p.launches, [](const Launch& l) { return l.name == "view %view"; });
  EXPECT_EQ(s.fault(), "check_plan: view %view is neither launched nor a view of %a");
}

TEST(Planted, ARepeatedLaunch) {
  Step s;
  s.p.launches.push_back(s.launch("flip %a"));
  EXPECT_EQ(s.fault(), "check_plan: launch 11 \"flip %a\" repeats launch 1");
}

TEST(Planted, ReversedOrder) {
  Step s;
  std::swap(s.launch("flip %g"), s.launch("blend %s"));
  EXPECT_EQ(s.fault(), "check_plan: launch 4 \"flip %g\" reads %s: there is %b");
  Step t;
  std::swap(t.launch("flip %a"), t.launch("flip %f"));
  EXPECT_EQ(t.fault(), "check_plan: launch 1 \"flip %f\" reads %view: nothing has been written");
}

TEST(Planted, AnAliasWithoutARule) {
  Step s;
  const BufferId b = s.p.buffer_of[s.a];
  s.p.buffer_of[s.w.graph.find("f")] = b;
  s.launch("flip %f").writes[0] = b;
  s.launch("spill %b").reads[0] = b;
  EXPECT_EQ(s.fault(), "check_plan: launch 2 \"flip %f\" writes %f over %view, which its record does not allow");
}

TEST(Planted, ARequiredAliasNotTaken) {
  World w;
  const ValueId base = w.op(kBump, {w.input("x")}, "base"), y = w.op(kScatter, {base, w.input("i")}, "y");
  w.graph.add_output("y", y);
  ExecPlan p = w.plan();
  p.aliases.clear();
  p.buffers.push_back({Home::arena, base, 384, 0});
  p.arena_bytes = 512;
  p.buffer_of[base] = static_cast<BufferId>(p.buffers.size()) - 1;
  p.launches[0].writes[0] = p.launches[1].reads[0] = p.buffer_of[base];
  try {
    plan::check_plan(w.graph, p);
    FAIL();
  } catch (const InternalError& e) {
    EXPECT_STREQ(e.what(), "check_plan: launch 1 \"scatter %y\" must write result 0 over operand 0");
  }
}

TEST(Planted, AnAliasThatIsNotThere) {
  Step s;
  s.p.aliases.push_back({s.g, s.a, true, ""});
  EXPECT_EQ(s.fault(), "check_plan: %g is said to have the storage of %a, and has not");
}

// --- updates and guards -------------------------------------------------------------------------------------------

TEST(Planted, AnExternalWrittenWithoutUpdate) {
  Step s;
  s.launch("fetch %x").writes[0] = s.p.buffer_of[s.x];
  s.launch("fetch %x").reads[0] = s.p.buffer_of[s.weight];
  EXPECT_EQ(s.fault(), "check_plan: launch 10 \"fetch %x\" writes %x, which has no update");
  Step t;
  t.launch("fetch %x").writes[0] = t.p.buffer_of[t.w.graph.find("c")];
  EXPECT_EQ(t.fault(), "check_plan: launch 10 \"fetch %x\" writes the constant %c");
}

TEST(Planted, AMissingCopy) {
  Step s;
  std::erase_if(s.p.launches, [](const Launch& l) { return l.name == "update %old"; });
  EXPECT_EQ(s.fault(), "check_plan: nothing updates %old");
}

TEST(Planted, ACopyAfterTheOverwrite) {
  Step s;
  std::swap(s.launch("update %old"), s.launch("blend %w.next"));
  EXPECT_EQ(s.fault(), "check_plan: %old should be %w at the end: there is %w.next");
}

TEST(Planted, ACopyOfAnotherValue) {
  Step s;
  s.launch("update %old").reads[0] = s.p.buffer_of[s.g];
  EXPECT_EQ(s.fault(), "check_plan: %old should be %w at the end: there is %g");
}

TEST(Planted, AnotherResultInTheExternal) {
  Step s;
  const BufferId w = s.p.buffer_of[s.weight];
  s.p.buffer_of[s.g] = w;
  s.launch("flip %g").writes[0] = s.launch("total %loss").reads[0] = s.launch("blend %w.next").reads[1] = w;
  EXPECT_EQ(s.fault(), "check_plan: launch 5 \"flip %g\" writes %g into %w, whose update is %w.next");
}

TEST(Planted, TwoWritersOfAnExternal) {
  Step s;
  s.launch("fetch %x").writes[0] = s.p.buffer_of[s.weight];
  EXPECT_EQ(s.fault(), "check_plan: launch 10 \"fetch %x\" writes %w after launch 7");
}

TEST(Planted, AMissingGuard) {
  Step s;
  s.launch("blend %w.next").guard = kNoBuffer;
  EXPECT_EQ(s.fault(), "check_plan: launch 7 \"blend %w.next\" writes %w without the guard %ok");
}

TEST(Planted, AWrongGuard) {
  Step s;
  s.launch("blend %w.next").guard = s.p.buffer_of[s.w.graph.find("go")];
  EXPECT_EQ(s.fault(), "check_plan: launch 7 \"blend %w.next\" is guarded by %go, the update of %w by %ok");
  Step t;
  t.launch("blend %w.next").guard = t.p.buffer_of[t.gate];
  EXPECT_EQ(t.fault(), "check_plan: launch 7 \"blend %w.next\" is guarded by %gate, which guards nothing");
  Step u;
  u.launch("update %old").guard = u.p.buffer_of[u.ok];
  EXPECT_EQ(u.fault(), "check_plan: launch 6 \"update %old\" writes %old under a guard, the update has none");
}

TEST(Planted, AGuardThatHidesAResult) {
  Step s;
  s.launch("total %loss").guard = s.p.buffer_of[s.ok];
  EXPECT_EQ(s.fault(), "check_plan: output \"loss\" should be %loss: nothing has been written when %ok is false");
  Step t;
  t.launch("blend %s").guard = t.p.buffer_of[t.ok];
  EXPECT_EQ(t.fault(), "check_plan: launch 5 \"flip %g\" reads %s: there is %b when %ok is false");
}

TEST(Planted, AGuardReadBeforeItIsKnown) {
  Step s;
  std::swap(s.launch("test %ok"), s.launch("blend %w.next"));
  EXPECT_EQ(s.fault(), "check_plan: launch 0 \"blend %w.next\" reads its guard: nothing has been written");
}

TEST(Planted, AReaderOfASkippedResultWithoutTheGuard) {
  World w;
  const ValueId m = w.state("m"), v = w.state("v"), ok = w.input("ok", kFlag);
  const ValueId m_next = w.op(kBump, {m}, "m.next"), hat = w.op(kFlip, {m_next}, "hat");
  w.graph.add_update(m, m_next, ok);
  w.graph.add_update(v, w.op(kFlip, {hat}, "v.next"), ok);
  ExecPlan p = w.plan();
  p.launches[1].guard = kNoBuffer;
  try {
    plan::check_plan(w.graph, p);
    FAIL();
  } catch (const InternalError& e) {
    EXPECT_STREQ(e.what(), "check_plan: launch 1 \"flip %hat\" reads %m.next: there is %m when %ok is false");
  }
}

// --- totals -------------------------------------------------------------------------------------------------------

TEST(Planted, WrongTotals) {
  const std::pair<size_t ExecPlan::*, const char*> totals[] = {
      {&ExecPlan::external_bytes, "check_plan: external_bytes is 1155, counted 1154"},
      {&ExecPlan::constant_bytes, "check_plan: constant_bytes is 385, counted 384"},
      {&ExecPlan::fetched_bytes, "check_plan: fetched_bytes is 389, counted 388"},
      {&ExecPlan::arena_bytes, "check_plan: arena_bytes is 1281, counted 1280"},
      {&ExecPlan::live_peak_bytes, "check_plan: live_peak_bytes is 1281, counted 1280"}};
  for (const auto& [total, message] : totals) {
    Step s;
    ++(s.p.*total);
    EXPECT_EQ(s.fault(), message);
  }
  Step spare;
  spare.p.buffers.push_back({Home::arena, spare.a, 64, 0});
  EXPECT_EQ(spare.fault(), "check_plan: buffer 13 (%a, arena) is used by no launch");
}

}  // namespace
}  // namespace aicf::toy
