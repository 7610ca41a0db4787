// Random regions against their ops run one by one: the same bits, for any number of threads and order of parts, in
// poisoned memory, and with a result in the storage of an operand.
#include <gtest/gtest.h>

#include <cstdlib>
#include <map>

#include "ir/text.h"
#include "ops/interpret.h"
#include "ops/loops.h"
#include "ops/random_region.h"
#include "ops/region_op.h"

namespace aicf::test {
namespace {

const RunMode kModes[] = {{.threads = 0, .last_part_first = true, .poison = 0xCD},
                          {.threads = 1, .poison = 0xFF},
                          {.threads = 2, .poison = 0xCD},
                          {.threads = 8, .poison = 0xFF}};

std::vector<Tensor> one_by_one(const RandomRegion& region) {
  TensorMap feeds;
  for (size_t i = 0; i < region.operands.size(); ++i) feeds[std::to_string(i)] = region.operands[i];
  const TensorMap outputs = interpret(*region.body, feeds);
  std::vector<Tensor> results;
  for (size_t o = 0; o < outputs.size(); ++o) results.push_back(outputs.at(std::to_string(o)));
  return results;
}

std::string difference(const Tensor& got, const Tensor& want) {
  for (int64_t i = 0; i < got.elements(); ++i) {
    const size_t size = size_of(got.dtype());
    const auto* g = static_cast<const char*>(got.data()) + static_cast<size_t>(i) * size;
    const auto* w = static_cast<const char*>(want.data()) + static_cast<size_t>(i) * size;
    if (std::equal(g, g + size, w)) continue;
    return "element " + std::to_string(i) + " is " + std::to_string(got.at(i)) + ", one by one " +
           std::to_string(want.at(i));
  }
  return "none";
}

void expect_same(const std::vector<Tensor>& got, const std::vector<Tensor>& want, const std::string& where) {
  ASSERT_EQ(got.size(), want.size());
  for (size_t o = 0; o < got.size(); ++o) {
    EXPECT_TRUE(got[o] == want[o]) << where << ": result " << o << ", " << difference(got[o], want[o]);
  }
}

const backend::Kernel* kernel_of(const BoundOp& op) {
  return backend::choose(backend::cpu::kernel_table(), op.query());
}

void check(const RandomRegion& region, std::mt19937_64& random) {
  BoundOp op{&ops::fused_def, {}, region.inputs, {}, region.body};
  for (const ir::Output& o : region.body->outputs()) op.out.push_back(region.body->type(o.value));
  const backend::Kernel* const kernel = kernel_of(op);
  ASSERT_NE(kernel, nullptr) << "no kernel runs it";
  const std::vector<Tensor> want = one_by_one(region);
  std::vector<const Tensor*> operands;
  for (const Tensor& t : region.operands) operands.push_back(&t);
  for (const RunMode& mode : kModes) {
    expect_same(run_kernel(op, *kernel, operands, mode), want, std::to_string(mode.threads) + " threads");
  }
  const std::vector<ir::AliasRule> rules = op.alias_rules();
  if (rules.empty()) return;
  const ir::AliasRule rule = rules[random() % rules.size()];
  const RunMode aliased = {.threads = random() % 2 == 0 ? 0 : 2, .alias_out = rule.out, .alias_in = rule.in};
  expect_same(run_kernel(op, *kernel, operands, aliased), want,
              "result " + std::to_string(rule.out) + " in operand " + std::to_string(rule.in));
}

// Results that are written past the cache, one of them in place.
TEST(FusedRandom, LargeResults) {
  const Shape shape = {3, (6 << 20) / 4 + 5};
  RandomRegion region;
  region.inputs = {{f32, shape}, {bf16, shape}, {f32, {shape[1]}}};
  region.body = std::const_pointer_cast<ir::Graph>(ops::body_of(region.inputs, [](std::vector<Value> v) {
    const Value y = v[0] * v[2] + cast(v[1], f32);
    return std::vector<Value>{y, cast(y * 3.0, bf16), v[0] - y};
  }));
  std::mt19937_64 random(1);
  for (const TensorType& type : region.inputs) {
    Tensor x(type);
    for (int64_t i = 0; i < x.elements(); ++i)
      set_element(type.dtype, x.data(), i, static_cast<double>(random() % 999) / 8);
    region.operands.push_back(std::move(x));
  }
  check(region, random);
}

TEST(FusedRandom, HasTheBitsOfItsOpsOneByOne) {
  const char* const only = std::getenv("AICF_SEED");
  const uint64_t first = only != nullptr ? std::strtoull(only, nullptr, 10) : 1;
  const char* const more = std::getenv("AICF_SEEDS");
  const uint64_t count = only != nullptr ? 1 : more != nullptr ? std::strtoull(more, nullptr, 10) : 300;
  std::map<ops::Loops::Kind, int> kinds;
  std::map<std::string, int> refused;
  for (uint64_t seed = first; seed < first + count; ++seed) {
    SCOPED_TRACE("AICF_SEED=" + std::to_string(seed));
    const RandomRegion region = random_region(seed, true);
    std::string why;
    const std::optional<ops::Loops> loops = ops::loops_of(*region.body, &why);
    if (!loops) {
      ++refused[why];
      continue;
    }
    ++kinds[loops->kind];
    if (only != nullptr) std::cout << ir::print(*region.body);
    std::mt19937_64 random(seed);
    check(region, random);
    if (HasFailure()) std::cout << ir::print(*region.body);
    if (HasFatalFailure() || HasNonfatalFailure()) break;
  }
  for (const auto& [why, times] : refused) std::cout << times << " refused: " << why << "\n";
  if (only != nullptr || HasFailure()) return;
  // Enough of each for the comparison to mean something.
  for (const auto kind :
       {ops::Loops::Kind::pointwise, ops::Loops::Kind::row, ops::Loops::Kind::reduce, ops::Loops::Kind::epilogue}) {
    std::cout << "kind " << static_cast<int>(kind) << ": " << kinds[kind] << "\n";
    EXPECT_GE(kinds[kind], static_cast<int>(count) / 10) << "of kind " << static_cast<int>(kind);
  }
}

}  // namespace
}  // namespace aicf::test
