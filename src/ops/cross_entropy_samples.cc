// The samples of cross_entropy: ranks, reductions, ignored labels, masked classes.
#include "ops/cross_entropy_samples.h"

#include <limits>
#include <numbers>

namespace aicf::ops {
namespace {

constexpr float kInf = std::numeric_limits<float>::infinity();
constexpr double kLn2 = std::numbers::ln2;

ir::Attrs attrs(const char* reduction) {
  return {{"ignore_index", int64_t{-100}}, {"reduction", std::string(reduction)}};
}

ir::Sample drawn(std::string name, Shape logits, const char* reduction, DType labels = i32) {
  ir::Sample s;
  s.name = std::move(name);
  const Shape rows(logits.dims().first(static_cast<size_t>(logits.rank() - 1)));
  s.inputs = {{f32, logits}, {labels, rows}};
  s.attrs = attrs(reduction);
  s.index_extent = logits[logits.rank() - 1];
  return s;
}

ir::Sample given(const char* name, const char* reduction, Shape shape, const std::vector<float>& logits,
                 const std::vector<int32_t>& labels, std::vector<double> loss, double count) {
  const Tensor l = Tensor::of<int32_t>({static_cast<int64_t>(labels.size())}, labels);
  return by_hand(name, {values(shape, logits), l}, {std::move(loss), {count}}, attrs(reduction), 1e-6);
}

}  // namespace

std::vector<ir::Sample> samples_cross_entropy() {
  std::vector<ir::Sample> all;
  for (const char* reduction : {"none", "sum", "mean"}) {
    const std::string suffix = std::string("_") + reduction;
    all.push_back(drawn("rows" + suffix, {6, 5}, reduction));
    all.push_back(drawn("rows_i64" + suffix, {6, 5}, reduction, i64));
    all.push_back(drawn("one_row" + suffix, {7}, reduction));
    all.push_back(drawn("rank3" + suffix, {2, 3, 4}, reduction));
    all.push_back(drawn("rank4" + suffix, {2, 1, 3, 4}, reduction));
    all.push_back(drawn("one_class" + suffix, {3, 1}, reduction));
    all.push_back(drawn("no_rows" + suffix, {0, 3}, reduction));
  }
  all.push_back(drawn("many_classes", {2, 300}, "mean"));
  // In chunks: of 1024, of 408.
  all.push_back(drawn("chunks", {2, 3072}, "mean"));
  all.push_back(drawn("chunks_of_408", {3, 2040 + 408}, "none", i64));
  ir::Sample unused = drawn("count_unused", {3, 4}, "mean");
  unused.unused_output = 1;
  all.push_back(std::move(unused));
  unused = drawn("loss_unused", {3, 4}, "mean");
  unused.unused_output = 0;
  all.push_back(std::move(unused));

  all.push_back(with_grad(given("even_mean", "mean", {2, 2}, {0, 0, 0, 0}, {0, 1}, {kLn2}, 2)));
  all.push_back(with_grad(given("even_sum", "sum", {2, 2}, {0, 0, 0, 0}, {0, 1}, {2 * kLn2}, 2)));
  all.push_back(with_grad(given("even_none", "none", {2, 2}, {0, 0, 0, 0}, {0, 1}, {kLn2, kLn2}, 2)));
  all.push_back(with_grad(given("one_ignored", "mean", {2, 2}, {0, 0, 0, 0}, {0, -100}, {kLn2}, 1)));
  all.push_back(with_grad(given("ignored_is_0_in_none", "none", {2, 2}, {0, 0, 0, 3}, {0, -100}, {kLn2, 0}, 1)));
  all.push_back(with_grad(given("all_ignored", "mean", {2, 2}, {0, 1, 2, 3}, {-100, -100}, {0}, 0)));
  all.push_back(given("masked_class", "mean", {1, 3}, {-kInf, 0, 0}, {1}, {kLn2}, 1));
  all.push_back(given("masked_row", "sum", {2, 2}, {-kInf, -kInf, 0, 0}, {1, 0}, {kLn2}, 2));
  all.push_back(given("masked_label_is_infinite", "none", {1, 2}, {-kInf, 0}, {0}, {kInf}, 1));
  all.push_back(given("large_values_swamp_differences", "mean", {1, 2}, {1e4f, -1e4f}, {1}, {2e4}, 1));
  ir::Sample other = given("own_ignore_index", "mean", {2, 2}, {0, 0, 5, 0}, {0, 1}, {kLn2}, 1);
  other.attrs.set("ignore_index", int64_t{1});
  all.push_back(with_grad(std::move(other)));
  return all;
}

}  // namespace aicf::ops
