// Random graphs: every plan of every option is accepted by check_plan, and, run on real bytes in launch order and in
// random topological orders, gives what the graph means, bit for bit.
#include <gtest/gtest.h>

#include "plan/toy.h"

namespace aicf::toy {
namespace {

class Generator {
 public:
  explicit Generator(uint32_t seed) : rng_(seed) {}

  World make() {
    for (int i = 0, n = 3 + below(5); i < n; ++i) add_external(i);
    if (chance(2)) keep(world_.constant("c", chance(3) ? kFlag : kVec));
    for (int i = 0, n = 4 + below(30); i < n; ++i) add_op(i);
    add_updates();
    for (int i = 0, n = 1 + below(3); i < n; ++i) {
      world_.graph.add_output("out" + std::to_string(i), all_[chance(4) ? below(all_.size()) : recent()]);
    }
    return std::move(world_);
  }

 private:
  size_t below(size_t n) { return rng_() % n; }
  bool chance(size_t one_in) { return below(one_in) == 0; }
  size_t recent() { return all_.size() - 1 - below(std::min<size_t>(all_.size(), 8)); }

  void keep(ValueId v) {
    all_.push_back(v);
    of_type_[to_string(world_.graph.type(v))].push_back(v);
  }

  // A value of the type, more often a late one. A list without any gets an op that makes one.
  ValueId pick(const TensorType& type) {
    std::vector<ValueId>& list = of_type_[to_string(type)];
    if (list.empty()) {
      const std::string name = "made" + std::to_string(all_.size());
      if (type == kVec || type == kMat) {
        keep(type == kVec ? world_.input(name.c_str()) : world_.op(kView, {pick(kVec)}, name));
      } else {
        keep(world_.op(type == kFlag ? kTest : kTotal, {pick(kVec)}, name));
      }
    }
    return chance(2) ? list[below(list.size())] : list[list.size() - 1 - below(std::min<size_t>(list.size(), 4))];
  }

  void add_external(int i) {
    const TensorType types[] = {kVec, kVec, kVec, kMat, kScalar, kFlag};
    const TensorType type = types[below(6)];
    const std::string name = "x" + std::to_string(i);
    keep(chance(4)   ? world_.input(name.c_str(), type)
         : chance(2) ? world_.param(name.c_str(), type)
                     : world_.state(name.c_str(), type));
  }

  void add_op(int i) {
    const std::string name = "t" + std::to_string(i);
    const TensorType type = chance(4) ? kMat : kVec;
    std::vector<ValueId> in{pick(type)};
    const ToyOp* op = &kBump;
    switch (below(13)) {
      case 0:
        op = &kFlip;
        break;
      case 1:
        op = &kTotal;
        break;
      case 2:
        op = &kTest;
        break;
      case 3:
        op = &kNot, in = {pick(kFlag)};
        break;
      case 4:
        op = &kView;
        break;
      case 5:
        op = &kPair, in.push_back(pick(type));
        break;
      case 6:
        op = &kAdam, in = {in[0], pick(type), pick(type), pick(type)};
        break;
      case 7:
        op = &kScatter, in = {world_.op(kBump, in, name + ".base"), pick(type)};
        break;
      case 8:
        op = &kSpill;
        break;
      case 9:
        op = &kBoth, in = {pick(kFlag), pick(kFlag)};
        break;
      case 10:
        break;
      default:
        op = &kBlend, in.push_back(pick(chance(5) ? kScalar : type));
    }
    for (ValueId v : world_.ops(*op, in, name)) keep(v);
  }

  void add_updates() {
    const ValueId ok = pick(kFlag), other = pick(kFlag);
    for (ValueId v = 0; v < world_.graph.num_values(); ++v) {
      const ir::Role role = world_.graph.value(v).role;
      if ((role != ir::Role::param && role != ir::Role::state) || chance(5)) continue;
      const ValueId guards[] = {ok, ok, ok, other, ir::kNoValue, ir::kNoValue};
      world_.graph.add_update(v, pick(world_.graph.type(v)), guards[below(6)]);
    }
  }

  std::mt19937 rng_;
  World world_;
  std::vector<ValueId> all_;
  std::map<std::string, std::vector<ValueId>> of_type_;
};

// What the graphs must have reached for the test to mean something.
struct Reached {
  int updates_in_place = 0, guarded_in_place = 0, copies = 0, saves = 0, fetches = 0, refusals = 0, shared_bytes = 0;
};

void count(const World& world, const plan::ExecPlan& p, Reached& reached) {
  for (const plan::AliasDecision& d : p.aliases) {
    if (!d.granted) ++reached.refusals;
    if (d.granted && world.graph.find_update(d.target) >= 0 && !world.graph.is_external(d.value)) {
      const ir::Update& u = world.graph.updates()[world.graph.find_update(d.target)];
      if (u.value != d.value) continue;
      ++reached.updates_in_place;
      if (u.guard != ir::kNoValue) ++reached.guarded_in_place;
    }
  }
  for (const plan::Launch& l : p.launches) {
    reached.copies += l.name.starts_with("update ");
    reached.saves += l.name.starts_with("save ");
    reached.fetches += l.name.starts_with("fetch ");
  }
  size_t sum = 0;
  for (const plan::Buffer& b : p.buffers) sum += b.home == plan::Home::arena ? b.bytes : 0;
  reached.shared_bytes += sum > p.arena_bytes;
}

TEST(RandomPlan, EveryPlanIsProvedAndRunsAsTheGraphMeans) {
  Reached reached;
  for (uint32_t seed = 0; seed < 600; ++seed) {
    const World world = Generator(seed).make();
    std::map<ValueId, Bytes> before = random_externals(world.graph, seed);
    const Result first = evaluate(world.graph, before);
    const Result second = evaluate(world.graph, first.externals);
    for (const plan::Options& options : kAllOptions) {
      SCOPED_TRACE("seed " + std::to_string(seed) + " alias " + std::to_string(options.alias) + " reuse " +
                   std::to_string(options.reuse));
      plan::ExecPlan p;
      ASSERT_NO_THROW(p = plan::make_plan(world.graph, world.kernels(), options));
      try {
        plan::check_plan(world.graph, p);
      } catch (const std::exception& e) {
        FAIL() << e.what() << '\n' << plan::print(world.graph, p);
      }
      Machine machine(world.graph, p);
      ASSERT_EQ(machine.run(before, machine.launch_order()), first) << plan::print(world.graph, p);
      ASSERT_EQ(machine.run(first.externals, machine.launch_order()), second);
      std::mt19937 rng(seed);
      for (int i = 0; i < 20; ++i) ASSERT_EQ(machine.run(before, machine.random_order(rng)), first);
      if (options.alias && options.reuse) count(world, p, reached);
    }
  }
  EXPECT_GT(reached.updates_in_place, 200);
  EXPECT_GT(reached.guarded_in_place, 50);
  EXPECT_GT(reached.copies, 200);
  EXPECT_GT(reached.saves, 20);
  EXPECT_GT(reached.fetches, 50);
  EXPECT_GT(reached.refusals, 1000);
  EXPECT_GT(reached.shared_bytes, 300);
}

}  // namespace
}  // namespace aicf::toy
