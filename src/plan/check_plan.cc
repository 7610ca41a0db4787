// check_plan: proves a plan from the graph and the plan alone. Knows nothing of how the planner decides.
//
// Three arguments together make the proof. (1) The launches, run symbolically in order, give every operand, external
// and output its value, for every outcome of the guards; a launch that runs never reads anything but its operands'
// values. (2) Any two accesses of one byte, one of them a write, are joined by a path of edges, so every topological
// order of the edges reads and writes what the launch order does. (3) Within a launch, a write may meet a read only by
// a rule of the op's record.
#include <fmt/format.h>

#include <algorithm>
#include <tuple>

#include "aicf/error.h"
#include "ir/op.h"
#include "plan/plan.h"

namespace aicf::plan {
namespace {

constexpr size_t kAlignment = 256;
constexpr int kNobody = -1;

const char* text_of(Home home) {
  constexpr const char* kNames[] = {"external", "constant", "arena", "fetched"};
  return kNames[static_cast<int>(home)];
}

const char* text_of(Hazard hazard) {
  constexpr const char* kNames[] = {"raw", "war", "waw"};
  return kNames[static_cast<int>(hazard)];
}

template <class... Args>
[[noreturn]] void fault(fmt::format_string<Args...> format, Args&&... args) {
  throw InternalError("check_plan: " + fmt::format(format, std::forward<Args>(args)...));
}

struct Range {
  int begin = 0;
  int end = 0;
};

// Two accesses that must be ordered.
struct Conflict {
  int first = 0;
  int second = 0;
  Hazard hazard = Hazard::raw;
  BufferId buffer = kNoBuffer;  // of the second
};

class Checker {
 public:
  Checker(const ir::Graph& graph, const ExecPlan& plan) : graph_(graph), plan_(plan) {}

  void run() {
    find_meanings();
    check_buffers();
    check_values();
    check_launches();
    check_every_op_runs();
    find_runs();
    for (int i = 0; i < launches(); ++i) check_within(i);
    check_external_writes();
    check_aliases();
    simulate_all();
    check_edges();
    check_order();
    check_totals();
  }

 private:
  int launches() const { return static_cast<int>(plan_.launches.size()); }
  int buffers() const { return static_cast<int>(plan_.buffers.size()); }
  const Launch& launch(int i) const { return plan_.launches[i]; }
  const Buffer& buffer(BufferId b) const { return plan_.buffers[b]; }
  std::string name(ir::ValueId v) const { return ir::value_name(graph_, v); }
  std::string text(int i) const { return fmt::format("launch {} \"{}\"", i, launch(i).name); }

  std::string buffer_text(BufferId b) const {
    const ir::ValueId owner = buffer(b).owner;
    const std::string what = owner >= 0 && owner < graph_.num_values() ? name(owner) : "workspace";
    return fmt::format("buffer {} ({}, {})", b, what, text_of(buffer(b).home));
  }

  bool valid(BufferId b) const { return b >= 0 && b < buffers(); }

  // A view has the bytes, so the meaning, of its operand.
  void find_meanings() {
    for (ir::ValueId v = 0; v < graph_.num_values(); ++v) {
      const ir::OpId op = graph_.value(v).producer;
      meaning_.push_back(op != ir::kNoOp && graph_.op(op).def->is(ir::kView) ? meaning_[graph_.op(op).inputs[0]] : v);
    }
    update_of_.assign(graph_.num_values(), nullptr);
    for (const ir::Update& u : graph_.updates()) {
      update_of_[u.target] = &u;
      if (u.guard != ir::kNoValue) guards_.push_back(meaning_[u.guard]);
    }
    std::sort(guards_.begin(), guards_.end());
    guards_.erase(std::unique(guards_.begin(), guards_.end()), guards_.end());
  }

  void check_buffers() {
    std::vector<char> owned(graph_.num_values(), 0);
    for (BufferId b = 0; b < buffers(); ++b) {
      const Buffer& it = buffer(b);
      if (it.home == Home::external || it.home == Home::constant) {
        const bool fits = it.owner >= 0 && it.owner < graph_.num_values() &&
                          (it.home == Home::external ? graph_.is_external(it.owner)
                                                     : graph_.value(it.owner).role == ir::Role::constant);
        if (!fits) fault("{} belongs to no such value", buffer_text(b));
        if (owned[it.owner]++ != 0) fault("{} has two buffers", name(it.owner));
        if (it.bytes != graph_.type(it.owner).bytes()) {
          fault("{} has {} bytes, the value {}", buffer_text(b), it.bytes, graph_.type(it.owner).bytes());
        }
      } else if (it.home == Home::arena) {
        if (it.offset % kAlignment != 0) fault("{} at {}: not a multiple of {}", buffer_text(b), it.offset, kAlignment);
        if (it.offset > plan_.arena_bytes || it.bytes > plan_.arena_bytes - it.offset) {
          fault("{} ends at {}, the arena at {}", buffer_text(b), it.offset + it.bytes, plan_.arena_bytes);
        }
      }
    }
  }

  void check_values() {
    if (plan_.buffer_of.size() != static_cast<size_t>(graph_.num_values())) {
      fault("{} values, {} places", graph_.num_values(), plan_.buffer_of.size());
    }
    for (ir::ValueId v = 0; v < graph_.num_values(); ++v) {
      const ir::ValueId base = meaning_[v];
      const BufferId b = plan_.buffer_of[v];
      if (b == kNoBuffer && graph_.value(base).role == ir::Role::constant) continue;
      if (!valid(b)) fault("{} has no buffer", name(v));
      const Buffer& it = buffer(b);
      if (it.bytes < graph_.type(v).bytes()) {
        fault("{} needs {} bytes, {} has {}", name(v), graph_.type(v).bytes(), buffer_text(b), it.bytes);
      }
      const bool fixed = graph_.value(v).role != ir::Role::tmp;
      if (fixed && (it.owner != v || (it.home != Home::external && it.home != Home::constant))) {
        fault("{} is not in a buffer of its own but in {}", name(v), buffer_text(b));
      }
    }
    if (plan_.outputs.size() != graph_.outputs().size()) {
      fault("{} outputs, {} places", graph_.outputs().size(), plan_.outputs.size());
    }
    for (size_t i = 0; i < plan_.outputs.size(); ++i) {
      const BufferId b = plan_.outputs[i];
      const ir::Output& output = graph_.outputs()[i];
      if (!valid(b)) fault("output \"{}\" has no buffer", output.name);
      if (buffer(b).home != Home::fetched) fault("output \"{}\" is in {}, not fetched", output.name, buffer_text(b));
      if (buffer(b).bytes < graph_.type(output.value).bytes()) {
        fault("output \"{}\" needs {} bytes, {} has {}", output.name, graph_.type(output.value).bytes(), buffer_text(b),
              buffer(b).bytes);
      }
    }
  }

  // The launch's buffers are those of the op's operands and results, in their order.
  void check_operands(int i, const std::vector<BufferId>& got, const std::vector<ir::ValueId>& want, const char* what) {
    if (got.size() != want.size()) fault("{} has {} {}s, the op {}", text(i), got.size(), what, want.size());
    for (size_t k = 0; k < got.size(); ++k) {
      if (got[k] == plan_.buffer_of[want[k]] && valid(got[k])) continue;
      fault("{}: {} {} is {} in buffer {}, not buffer {}", text(i), what, k, name(want[k]), plan_.buffer_of[want[k]],
            got[k]);
    }
  }

  void check_launches() {
    launch_of_.assign(graph_.num_ops(), kNobody);
    for (int i = 0; i < launches(); ++i) {
      const Launch& it = launch(i);
      if (it.kind == LaunchKind::kernel) {
        if (it.op < 0 || it.op >= graph_.num_ops()) fault("{} runs no op", text(i));
        if (launch_of_[it.op] != kNobody) fault("{} repeats launch {}", text(i), launch_of_[it.op]);
        launch_of_[it.op] = i;
        check_operands(i, it.reads, graph_.op(it.op).inputs, "operand");
        check_operands(i, it.writes, graph_.op(it.op).outputs, "result");
      } else {
        if (it.reads.size() != 1 || it.writes.size() != 1 || !valid(it.reads[0]) || !valid(it.writes[0])) {
          fault("{} does not copy one buffer to one", text(i));
        }
        if (buffer(it.reads[0]).bytes != buffer(it.writes[0]).bytes) {
          fault("{} copies {} bytes into {}", text(i), buffer(it.reads[0]).bytes, buffer(it.writes[0]).bytes);
        }
      }
      if ((it.workspace != kNoBuffer) != (it.kernel.workspace_bytes > 0)) {
        fault("{} asks for {} bytes of workspace, got buffer {}", text(i), it.kernel.workspace_bytes, it.workspace);
      }
      if (it.workspace != kNoBuffer) {
        if (!valid(it.workspace) || buffer(it.workspace).home != Home::arena ||
            buffer(it.workspace).bytes < it.kernel.workspace_bytes) {
          fault("{}: buffer {} does not hold its {} bytes of workspace", text(i), it.workspace,
                it.kernel.workspace_bytes);
        }
      }
      if (it.guard != kNoBuffer && (!valid(it.guard) || buffer(it.guard).bytes != 1)) {
        fault("{}: buffer {} is no guard", text(i), it.guard);
      }
      if (it.guard != kNoBuffer && !it.kernel.guardable) fault("{} has a guard, and nothing skips its kernel", text(i));
    }
  }

  void check_every_op_runs() {
    for (ir::OpId i = 0; i < graph_.num_ops(); ++i) {
      if (launch_of_[i] != kNobody) continue;
      const ir::Op& op = graph_.op(i);
      const std::string result = op.outputs.empty() ? "" : " " + name(op.outputs[0]);
      if (!op.def->is(ir::kView)) fault("{}{} is never launched", op.def->name, result);
      if (plan_.buffer_of[op.outputs[0]] != plan_.buffer_of[op.inputs[0]]) {
        fault("{}{} is neither launched nor a view of {}", op.def->name, result, name(op.inputs[0]));
      }
    }
  }

  // Cuts memory into runs of bytes that each buffer covers wholly or not at all: a buffer outside the arena is one run,
  // the arena is cut at both ends of every buffer in it.
  void find_runs() {
    std::vector<size_t> cuts;
    for (const Buffer& b : plan_.buffers) {
      if (b.home != Home::arena || b.bytes == 0) continue;
      cuts.push_back(b.offset);
      cuts.push_back(b.offset + b.bytes);
    }
    std::sort(cuts.begin(), cuts.end());
    cuts.erase(std::unique(cuts.begin(), cuts.end()), cuts.end());
    run_count_ = static_cast<int>(cuts.size());
    for (const Buffer& b : plan_.buffers) {
      Range range{run_count_, run_count_};
      if (b.bytes > 0 && b.home != Home::arena) range.end = ++run_count_;
      if (b.bytes > 0 && b.home == Home::arena) {
        range.begin = static_cast<int>(std::lower_bound(cuts.begin(), cuts.end(), b.offset) - cuts.begin());
        range.end = range.begin;
        while (cuts[range.end] < b.offset + b.bytes) ++range.end;
      }
      runs_of_.push_back(range);
    }
  }

  bool overlap(BufferId a, BufferId b) const {
    return runs_of_[a].begin < runs_of_[b].end && runs_of_[b].begin < runs_of_[a].end;
  }

  bool may_overwrite(const ir::Op& op, size_t operand, size_t result) const {
    if (graph_.type(op.inputs[operand]) != graph_.type(op.outputs[result])) return false;
    for (const ir::AliasRule& rule : ir::alias_rules(op)) {
      if (rule.in == static_cast<int>(operand) && rule.out == static_cast<int>(result)) return true;
    }
    return false;
  }

  // What one launch reads and writes meets only where the op's record allows it.
  void check_within(int i) const {
    const Launch& it = launch(i);
    for (size_t k = 0; k < it.writes.size(); ++k) {
      const BufferId w = it.writes[k];
      for (size_t j = 0; j < it.reads.size(); ++j) {
        if (!overlap(w, it.reads[j])) continue;
        if (it.kind == LaunchKind::copy) fault("{} copies a buffer over itself", text(i));
        const ir::Op& op = graph_.op(it.op);
        if (w != it.reads[j] || !may_overwrite(op, j, k)) {
          fault("{} writes {} over {}, which its record does not allow", text(i), name(op.outputs[k]),
                name(op.inputs[j]));
        }
      }
      for (size_t j = 0; j < k; ++j) {
        if (overlap(w, it.writes[j])) fault("{}: results {} and {} overlap", text(i), j, k);
      }
      if (it.guard != kNoBuffer && overlap(w, it.guard)) fault("{} writes over its guard", text(i));
    }
    if (it.workspace != kNoBuffer) {
      std::vector<BufferId> used = it.reads;
      used.insert(used.end(), it.writes.begin(), it.writes.end());
      if (it.guard != kNoBuffer) used.push_back(it.guard);
      for (BufferId b : used) {
        if (overlap(b, it.workspace)) fault("{}: the workspace overlaps {}", text(i), buffer_text(b));
      }
    }
    if (it.kind == LaunchKind::copy || graph_.op(it.op).def->is(ir::kView)) return;
    for (const ir::AliasRule& rule : ir::alias_rules(graph_.op(it.op))) {
      if (rule.must && it.writes[rule.out] != it.reads[rule.in]) {
        fault("{} must write result {} over operand {}", text(i), rule.out, rule.in);
      }
    }
  }

  // Externals are written by their update alone, once and under its guard; inputs and constants never.
  void check_external_writes() {
    std::vector<int> writer(graph_.num_values(), kNobody);
    for (int i = 0; i < launches(); ++i) {
      const Launch& it = launch(i);
      for (size_t k = 0; k < it.writes.size(); ++k) {
        const Buffer& to = buffer(it.writes[k]);
        if (to.home == Home::constant) fault("{} writes the constant {}", text(i), name(to.owner));
        if (to.home != Home::external) continue;
        const ir::Update* update = update_of_[to.owner];
        if (update == nullptr) fault("{} writes {}, which has no update", text(i), name(to.owner));
        if (writer[to.owner] != kNobody)
          fault("{} writes {} after launch {}", text(i), name(to.owner), writer[to.owner]);
        writer[to.owner] = i;
        if (it.kind == LaunchKind::kernel && meaning_[graph_.op(it.op).outputs[k]] != meaning_[update->value]) {
          fault("{} writes {} into {}, whose update is {}", text(i), name(graph_.op(it.op).outputs[k]), name(to.owner),
                name(update->value));
        }
        if (update->guard == ir::kNoValue && it.guard != kNoBuffer) {
          fault("{} writes {} under a guard, the update has none", text(i), name(to.owner));
        }
        if (update->guard != ir::kNoValue && it.guard == kNoBuffer) {
          fault("{} writes {} without the guard {}", text(i), name(to.owner), name(update->guard));
        }
      }
    }
    for (const ir::Update& u : graph_.updates()) {
      if (writer[u.target] == kNobody && meaning_[u.value] != u.target) fault("nothing updates {}", name(u.target));
    }
  }

  void check_aliases() const {
    for (const AliasDecision& d : plan_.aliases) {
      if (d.granted && plan_.buffer_of[d.value] != plan_.buffer_of[d.target]) {
        fault("{} is said to have the storage of {}, and has not", name(d.value), name(d.target));
      }
    }
  }

  // --- the symbolic run ---------------------------------------------------------------------------------------

  // What a run holds: its share of a value that begins at the run `begin`, or nothing known; and the launch that last
  // wrote it.
  struct Held {
    ir::ValueId value = ir::kNoValue;
    int begin = 0;
    int by = kNobody;
  };

  std::string when() const {
    std::string result;
    for (size_t g = 0; g < guards_.size(); ++g) {
      if (!guard_true_[g]) result += (result.empty() ? " when " : ", ") + name(guards_[g]) + " is false";
    }
    return result;
  }

  std::string found(const Held& held) const {
    if (held.value != ir::kNoValue) return "there is " + name(held.value);
    if (held.by == kNobody) return "nothing has been written";
    return "overwritten by " + text(held.by);
  }

  void write(BufferId b, ir::ValueId value, int by) {
    const Range range = runs_of_[b];
    for (int r = range.begin; r < range.end; ++r) held_[r] = {value, range.begin, by};
  }

  // The value whose bytes begin where the buffer does; kNoValue when there is none.
  ir::ValueId first_value(BufferId b) const {
    const Range range = runs_of_[b];
    return range.begin == range.end || held_[range.begin].begin != range.begin ? ir::kNoValue
                                                                               : held_[range.begin].value;
  }

  // Faults, beginning with `what`, unless the buffer holds this very value.
  template <class What>
  void expect(BufferId b, ir::ValueId value, const What& what) const {
    const Range range = runs_of_[b];
    for (int r = range.begin; r < range.end; ++r) {
      if (held_[r].value == ir::kNoValue || held_[r].value != value || held_[r].begin != range.begin) {
        fault("{}: {}{}", what(), found(held_[r]), when());
      }
    }
  }

  // Whether the launch runs, as its guard says. A launch that writes an external must have the update's own guard.
  bool guard_holds(int i) const {
    const ir::ValueId guard = first_value(launch(i).guard);
    expect(launch(i).guard, guard, [&] { return text(i) + " reads its guard"; });
    const auto it = std::lower_bound(guards_.begin(), guards_.end(), guard);
    if (it == guards_.end() || *it != guard) fault("{} is guarded by {}, which guards nothing", text(i), name(guard));
    for (BufferId b : launch(i).writes) {
      if (buffer(b).home != Home::external) continue;
      const ir::Update& update = *update_of_[buffer(b).owner];
      if (guard == meaning_[update.guard]) continue;
      fault("{} is guarded by {}, the update of {} by {}", text(i), name(guard), name(update.target),
            name(update.guard));
    }
    return guard_true_[it - guards_.begin()];
  }

  void simulate_launch(int i) {
    const Launch& it = launch(i);
    if (it.guard != kNoBuffer && !guard_holds(i)) return;
    if (it.kind == LaunchKind::copy) {
      const ir::ValueId value = first_value(it.reads[0]);
      expect(it.reads[0], value, [&] { return text(i) + " copies " + buffer_text(it.reads[0]); });
      return write(it.writes[0], value, i);
    }
    const ir::Op& op = graph_.op(it.op);
    for (size_t k = 0; k < op.inputs.size(); ++k) {
      expect(it.reads[k], meaning_[op.inputs[k]], [&] { return text(i) + " reads " + name(op.inputs[k]); });
    }
    if (it.workspace != kNoBuffer) write(it.workspace, ir::kNoValue, i);
    for (size_t k = 0; k < op.outputs.size(); ++k) write(it.writes[k], meaning_[op.outputs[k]], i);
  }

  void simulate() {
    held_.assign(run_count_, {});
    for (BufferId b = 0; b < buffers(); ++b) {
      if (buffer(b).home == Home::external || buffer(b).home == Home::constant) write(b, buffer(b).owner, kNobody);
    }
    for (int i = 0; i < launches(); ++i) simulate_launch(i);
    for (ir::ValueId v = 0; v < graph_.num_values(); ++v) {
      if (!graph_.is_external(v)) continue;
      ir::ValueId want = v;
      if (const ir::Update* u = update_of_[v]; u != nullptr) {
        const bool applied = u->guard == ir::kNoValue || guard_true_[index_of_guard(meaning_[u->guard])];
        if (applied) want = meaning_[u->value];
      }
      expect(plan_.buffer_of[v], want, [&] { return fmt::format("{} should be {} at the end", name(v), name(want)); });
    }
    for (size_t i = 0; i < plan_.outputs.size(); ++i) {
      const ir::Output& output = graph_.outputs()[i];
      expect(plan_.outputs[i], meaning_[output.value],
             [&] { return fmt::format("output \"{}\" should be {}", output.name, name(output.value)); });
    }
  }

  size_t index_of_guard(ir::ValueId meaning) const {
    return static_cast<size_t>(std::lower_bound(guards_.begin(), guards_.end(), meaning) - guards_.begin());
  }

  // Every outcome of up to four guards; of more, all alike and one apart from the others.
  void simulate_all() {
    const size_t n = guards_.size();
    if (n <= 4) {
      for (unsigned outcome = 0; outcome < 1u << n; ++outcome) {
        guard_true_.clear();
        for (size_t g = 0; g < n; ++g) guard_true_.push_back((outcome >> g & 1) == 0);
        simulate();
      }
      return;
    }
    for (bool others : {true, false}) {
      for (size_t apart = 0; apart <= n; ++apart) {
        guard_true_.assign(n, others);
        if (apart < n) guard_true_[apart] = !others;
        simulate();
      }
    }
  }

  // --- any order the edges allow ------------------------------------------------------------------------------

  // What a launch writes, or what it reads.
  std::vector<BufferId> touched(int i, bool written) const {
    const Launch& it = launch(i);
    std::vector<BufferId> result = written ? it.writes : it.reads;
    const BufferId last = written ? it.workspace : it.guard;
    if (last != kNoBuffer) result.push_back(last);
    return result;
  }

  bool has_cause(const Edge& e) const {
    for (BufferId a : touched(e.from, e.hazard != Hazard::war)) {
      for (BufferId b : touched(e.to, e.hazard != Hazard::raw)) {
        if (overlap(a, b)) return true;
      }
    }
    return false;
  }

  void check_edges() {
    auto key = [](const Edge& e) { return std::tuple(e.from, e.to, e.hazard); };
    for (size_t i = 0; i < plan_.edges.size(); ++i) {
      const Edge& e = plan_.edges[i];
      if (e.from < 0 || e.to >= launches() || e.from >= e.to) fault("edge {} -> {} does not go forward", e.from, e.to);
      if (i > 0 && key(plan_.edges[i - 1]) >= key(e)) {
        fault("edge {} -> {} ({}) is out of order or there twice", e.from, e.to, text_of(e.hazard));
      }
      if (!has_cause(e)) fault("edge {} -> {} ({}) has no cause", e.from, e.to, text_of(e.hazard));
    }
  }

  // For each run, every pair of accesses that are next to each other: a read and the writes before and after it, two
  // writes without a read between. A path for each of these is a path for all.
  std::vector<Conflict> find_conflicts() const {
    struct Last {
      int write = kNobody;
      std::vector<int> reads;  // since
    };
    std::vector<Last> last(run_count_);
    std::vector<Conflict> conflicts;
    auto meet = [&](int first, int second, Hazard hazard, BufferId b) {
      if (first != kNobody && first != second) conflicts.push_back({first, second, hazard, b});
    };
    for (int i = 0; i < launches(); ++i) {
      for (BufferId b : touched(i, false)) {
        for (int r = runs_of_[b].begin; r < runs_of_[b].end; ++r) {
          meet(last[r].write, i, Hazard::raw, b);
          last[r].reads.push_back(i);
        }
      }
      for (BufferId b : touched(i, true)) {
        for (int r = runs_of_[b].begin; r < runs_of_[b].end; ++r) {
          if (last[r].reads.empty()) meet(last[r].write, i, Hazard::waw, b);
          for (int read : last[r].reads) meet(read, i, Hazard::war, b);
          last[r] = {i, {}};
        }
      }
    }
    auto key = [](const Conflict& c) { return std::tie(c.first, c.second, c.hazard, c.buffer); };
    std::sort(conflicts.begin(), conflicts.end(), [&](const auto& a, const auto& b) { return key(a) < key(b); });
    const auto end =
        std::unique(conflicts.begin(), conflicts.end(), [&](const auto& a, const auto& b) { return key(a) == key(b); });
    conflicts.erase(end, conflicts.end());
    return conflicts;
  }

  // Reachability from a block of launches at a time, so that memory stays linear in the plan.
  void check_order() {
    const std::vector<Conflict> conflicts = find_conflicts();
    std::vector<Edge> by_target = plan_.edges;
    std::stable_sort(by_target.begin(), by_target.end(), [](const Edge& a, const Edge& b) { return a.to < b.to; });
    constexpr int kBlock = 4096, kWords = kBlock / 64;
    size_t next = 0;
    const Conflict* nearest = nullptr;  // of those not ordered, the one closest to the missing edge
    for (int base = 0; base < launches(); base += kBlock) {
      std::vector<uint64_t> reached(static_cast<size_t>(launches()) * kWords, 0);  // [launch][source - base]
      for (int i = base; i < std::min(base + kBlock, launches()); ++i) {
        reached[static_cast<size_t>(i) * kWords + (i - base) / 64] |= uint64_t{1} << ((i - base) % 64);
      }
      for (const Edge& e : by_target) {
        for (int w = 0; w < kWords; ++w) {
          reached[static_cast<size_t>(e.to) * kWords + w] |= reached[static_cast<size_t>(e.from) * kWords + w];
        }
      }
      for (; next < conflicts.size() && conflicts[next].first < base + kBlock; ++next) {
        const Conflict& c = conflicts[next];
        const int bit = c.first - base;
        if ((reached[static_cast<size_t>(c.second) * kWords + bit / 64] >> (bit % 64) & 1) != 0) continue;
        if (nearest == nullptr || c.second - c.first < nearest->second - nearest->first) nearest = &c;
      }
    }
    if (nearest == nullptr) return;
    fault("{} and {} may run in any order: {} on {}", text(nearest->first), text(nearest->second),
          text_of(nearest->hazard), buffer_text(nearest->buffer));
  }

  // --- totals -------------------------------------------------------------------------------------------------

  void check_total(const char* what, size_t stated, size_t counted) const {
    if (stated != counted) fault("{} is {}, counted {}", what, stated, counted);
  }

  void check_totals() const {
    auto padded = [](size_t bytes) { return bytes + (kAlignment - bytes % kAlignment) % kAlignment; };
    size_t by_home[4] = {};
    std::vector<Range> used(buffers(), {launches(), 0});  // launches
    for (int i = 0; i < launches(); ++i) {
      for (bool written : {false, true}) {
        for (BufferId b : touched(i, written)) used[b] = {std::min(used[b].begin, i), i + 1};
      }
    }
    std::vector<int64_t> change(plan_.launches.size() + 1, 0);
    size_t arena = 0;
    for (BufferId b = 0; b < buffers(); ++b) {
      const Buffer& it = buffer(b);
      by_home[static_cast<int>(it.home)] += it.bytes;
      if (it.home == Home::external) continue;
      if (used[b].end == 0) fault("{} is used by no launch", buffer_text(b));
      if (it.home != Home::arena || it.bytes == 0) continue;
      arena = std::max(arena, it.offset + padded(it.bytes));
      change[used[b].begin] += static_cast<int64_t>(padded(it.bytes));
      change[used[b].end] -= static_cast<int64_t>(padded(it.bytes));
    }
    int64_t now = 0, peak = 0;
    for (int64_t c : change) peak = std::max(peak, now += c);
    check_total("external_bytes", plan_.external_bytes, by_home[static_cast<int>(Home::external)]);
    check_total("constant_bytes", plan_.constant_bytes, by_home[static_cast<int>(Home::constant)]);
    check_total("fetched_bytes", plan_.fetched_bytes, by_home[static_cast<int>(Home::fetched)]);
    check_total("arena_bytes", plan_.arena_bytes, arena);
    check_total("live_peak_bytes", plan_.live_peak_bytes, static_cast<size_t>(peak));
  }

  const ir::Graph& graph_;
  const ExecPlan& plan_;
  std::vector<ir::ValueId> meaning_;          // by value: the value whose bytes a view shows
  std::vector<const ir::Update*> update_of_;  // by external
  std::vector<ir::ValueId> guards_;           // distinct, sorted
  std::vector<char> guard_true_;              // the outcome simulated now
  std::vector<int> launch_of_;                // by op
  int run_count_ = 0;
  std::vector<Range> runs_of_;  // by buffer
  std::vector<Held> held_;      // by run
};

}  // namespace

void check_plan(const ir::Graph& graph, const ExecPlan& plan) { Checker(graph, plan).run(); }

}  // namespace aicf::plan
