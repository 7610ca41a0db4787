// Random regions against their ops run one by one: the same bits, for any number of threads and order of parts, in
// poisoned memory, and with a result in the storage of an operand.
#include <gtest/gtest.h>

#include <cstdlib>
#include <functional>
#include <map>

#include "ir/text.h"
#include "ops/interpret.h"
#include "ops/loops.h"
#include "ops/random_region.h"
#include "ops/region_op.h"
#include "support/every_target.h"

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

RandomRegion region_of(const std::vector<TensorType>& inputs,
                       const std::function<std::vector<Value>(std::vector<Value>)>& f) {
  RandomRegion region;
  region.inputs = inputs;
  region.body = std::const_pointer_cast<ir::Graph>(ops::body_of(inputs, f));
  std::mt19937_64 random(1);
  for (const TensorType& type : inputs) {
    Tensor x(type);
    for (int64_t i = 0; i < x.elements(); ++i)
      set_element(type.dtype, x.data(), i, static_cast<double>(random() % 999) / 128 - 3);
    region.operands.push_back(std::move(x));
  }
  return region;
}

// Rows around the sizes of vectors, blocks of a chain, blocks of the reduction tree and tiles; few and many of them,
// some in bands; an operand that all share, one that lies across them.
void check_rows_of_many_lengths() {
  std::mt19937_64 random(1);
  for (int64_t n :
       {1, 15, 16, 17, 48, 63, 64, 65, 128, 192, 255, 256, 257, 320, 1000, 1024, 1025, 2000, 2049, 4096, 5000}) {
    for (int64_t rows : {2, 15, 16, 48}) {
      SCOPED_TRACE(std::to_string(rows) + " rows of " + std::to_string(n));
      const TensorType full{f32, {rows, n}}, across{f32, {n, rows}}, row{f32, {n}};
      const auto width = static_cast<double>(n);
      check(region_of({full, across, row},
                      [](std::vector<Value> v) {
                        const Value t = transpose(v[1], {1, 0});
                        return std::vector<Value>{t * v[2] + v[0], t - v[0]};
                      }),
            random);
      check(region_of({full, across, row},
                      [&](std::vector<Value> v) {
                        const Value x = v[0] + transpose(v[1], {1, 0});
                        const Value centred = x - sum(x, {1}, true) / width;
                        const Value scale = rsqrt(sum(centred * centred, {1}, true) / width + 1e-5);
                        return std::vector<Value>{centred * scale * v[2], scale, sum(v[0], {1})};
                      }),
            random);
      check(region_of({across},
                      [](std::vector<Value> v) {
                        const Value x = transpose(v[0], {1, 0}), e = exp(x - max(x, {1}, true));
                        return std::vector<Value>{e / sum(e, {1}, true)};
                      }),
            random);
    }
  }
}

// More ops one after the other, and more values at a time, than a chain holds.
TEST(FusedRandom, RowsOfManyLengths) {
  on_every_target([](const char*) { check_rows_of_many_lengths(); });
}

TEST(FusedRandom, ManyOps) {
  const TensorType type{f32, {3, 77}};
  std::mt19937_64 random(1);
  check(region_of({type, type},
                  [](std::vector<Value> v) {
                    Value x = v[0];
                    std::vector<Value> results;
                    for (int i = 0; i < 300; ++i) {
                      x = i % 3 == 0 ? x * 0.5 + v[1] : i % 3 == 1 ? v[0] - x : maximum(x, v[1] * 0.25);
                      if (i % 40 == 0) results.push_back(x);
                    }
                    results.push_back(x);
                    return results;
                  }),
        random);
}

// Masks of indices that are made once, that every row shares, and that are too large for it; both ways to choose.
TEST(FusedRandom, MasksOfIndices) {
  std::mt19937_64 random(1);
  for (int64_t n : {5, 16, 64, 77, 300}) {
    SCOPED_TRACE(n);
    const TensorType type{f32, {2, 3, n, n}};
    check(region_of({type, type},
                    [&](std::vector<Value> v) {
                      const Value row = iota(v[0], i32, {n, n}, 0), column = iota(v[0], i32, {n, n}, 1);
                      const Value causal = less_equal(column, row);
                      const Value number = iota(v[0], i32, {n}), few = equal(number * number, number);
                      const Value kept = select(causal, v[0] * 0.5, v[1]), other = select(few, v[1], kept * v[0]);
                      return std::vector<Value>{kept, other, exp(other - max(other, {3}, true))};
                    }),
          random);
  }
}

// Results that are written past the cache, one of them in place.
TEST(FusedRandom, LargeResults) {
  const Shape shape = {3, (6 << 20) / 4 + 5};
  const RandomRegion region = region_of({{f32, shape}, {bf16, shape}, {f32, {shape[1]}}}, [](std::vector<Value> v) {
    const Value y = v[0] * v[2] + cast(v[1], f32);
    return std::vector<Value>{y, cast(y * 3.0, bf16), v[0] - y};
  });
  std::mt19937_64 random(1);
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
