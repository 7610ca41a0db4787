// What the tests of plans made by hand share: plan, prove, run; and questions to a plan.
#pragma once

#include <gtest/gtest.h>

#include "plan/toy.h"

namespace aicf::toy {

using plan::ExecPlan;
using plan::Home;
using plan::Launch;
using plan::LaunchKind;

// Makes and proves the plan under every option, runs each on the same externals, and returns that of the defaults.
inline ExecPlan plan_and_run(const World& w) {
  const std::map<ValueId, Bytes> before = random_externals(w.graph, 1);
  const Result want = evaluate(w.graph, before);
  for (const plan::Options& options : kAllOptions) {
    const ExecPlan p = w.plan(options);
    Machine machine(w.graph, p);
    EXPECT_EQ(machine.run(before, machine.launch_order()), want) << plan::print(w.graph, p);
    std::mt19937 rng(2);
    for (int i = 0; i < 10; ++i) EXPECT_EQ(machine.run(before, machine.random_order(rng)), want);
  }
  return w.plan();
}

inline bool same_storage(const ExecPlan& p, ValueId a, ValueId b) { return p.buffer_of[a] == p.buffer_of[b]; }
inline Home home_of(const ExecPlan& p, ValueId v) { return p.buffers[p.buffer_of[v]].home; }

// The reason recorded against `value` in `target`; "granted" or "undecided" when there is none.
inline std::string refusal(const ExecPlan& p, ValueId value, ValueId target) {
  for (const plan::AliasDecision& d : p.aliases) {
    if (d.value == value && d.target == target) return d.granted ? "granted" : d.reason;
  }
  return "undecided";
}

inline int position(const ExecPlan& p, const std::string& name) {
  for (size_t i = 0; i < p.launches.size(); ++i) {
    if (p.launches[i].name == name) return static_cast<int>(i);
  }
  return -1;
}

inline int copies(const ExecPlan& p) {
  return static_cast<int>(
      std::count_if(p.launches.begin(), p.launches.end(), [](const Launch& l) { return l.kind == LaunchKind::copy; }));
}

// One parameter under Adam, guarded by %ok.
struct Adam {
  World w;
  ValueId p, m, v, ok, p_next, m_next, v_next;

  // Composed of small ops: p.next reads m.next and v.next by way of temporaries.
  static Adam composed() {
    Adam a;
    a.declare();
    const ValueId g = a.w.op(kFlip, {a.w.input("x")}, "g");
    a.m_next = a.w.op(kBlend, {a.w.op(kBump, {a.m}, "m.decayed"), g}, "m.next");
    a.v_next = a.w.op(kBlend, {a.w.op(kBump, {a.v}, "v.decayed"), a.w.op(kBump, {g}, "g2")}, "v.next");
    const ValueId step =
        a.w.op(kBlend, {a.w.op(kBump, {a.m_next}, "m.hat"), a.w.op(kBump, {a.v_next}, "v.hat")}, "step");
    a.p_next = a.w.op(kBlend, {a.p, step}, "p.next");
    a.finish();
    return a;
  }
  static Adam triplet() {
    Adam a;
    a.declare();
    const std::vector<ValueId> r = a.w.ops(kAdam, {a.p, a.w.op(kFlip, {a.w.input("x")}, "g"), a.m, a.v}, "p.next");
    a.p_next = r[0], a.m_next = r[1], a.v_next = r[2];
    a.finish();
    return a;
  }

 private:
  void declare() {
    p = w.param("p"), m = w.state("m"), v = w.state("v");
    ok = w.op(kTest, {w.input("labels")}, "ok");
  }
  void finish() {
    w.graph.add_update(p, p_next, ok);
    w.graph.add_update(m, m_next, ok);
    w.graph.add_update(v, v_next, ok);
  }
};

}  // namespace aicf::toy
