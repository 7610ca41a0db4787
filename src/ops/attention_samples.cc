// The samples of attention, with dropout and without: ranks, causal or not, as many queries as keys, fewer and more.
#include "ops/attention_samples.h"

namespace aicf::ops {
namespace {

ir::Sample drawn(std::string name, Shape q, Shape k, Shape v, bool causal) {
  ir::Sample s;
  s.name = std::move(name);
  s.inputs = floats({q, k, v});
  if (causal) s.attrs.set("causal", true);
  return s;
}

// Queries of zeros see all they may see alike.
ir::Sample even(const char* name, int64_t queries, const std::vector<float>& v, bool causal,
                std::vector<double> expected) {
  const auto keys = static_cast<int64_t>(v.size());
  const std::vector<float> zeros(static_cast<size_t>(queries), 0);
  ir::Attrs attrs;
  if (causal) attrs.set("causal", true);
  return with_grad(by_hand(name, {values({queries, 1}, zeros), cycle({keys, 1}, {1, -2, 3}), values({keys, 1}, v)},
                           {std::move(expected)}, attrs, 1e-6));
}

}  // namespace

std::vector<ir::Sample> samples_attention() {
  std::vector<ir::Sample> all;
  for (const bool causal : {false, true}) {
    const std::string suffix = causal ? "_causal" : "";
    const auto add = [&](const char* name, Shape q, Shape k, Shape v) {
      all.push_back(drawn(name + suffix, q, k, v, causal));
    };
    add("matrix", {5, 4}, {5, 4}, {5, 3});
    add("batch", {2, 4, 3}, {2, 4, 3}, {2, 4, 3});
    add("batch_and_heads", {2, 3, 6, 4}, {2, 3, 6, 4}, {2, 3, 6, 4});
    add("fewer_queries", {2, 3, 4}, {2, 5, 4}, {2, 5, 2});
    add("more_queries_than_keys", {2, 2, 5, 4}, {2, 2, 3, 4}, {2, 2, 3, 4});
    add("one_query", {1, 3}, {7, 3}, {7, 2});
    add("one", {1, 1}, {1, 1}, {1, 1});
    add("no_queries", {2, 0, 3}, {2, 4, 3}, {2, 4, 3});
    add("no_keys", {2, 4, 3}, {2, 0, 3}, {2, 0, 3});
    add("no_batch", {0, 4, 3}, {0, 4, 3}, {0, 4, 3});
    add("no_width", {4, 3}, {4, 3}, {4, 0});
    add("long_rows", {2, 3, 8}, {2, 70, 8}, {2, 70, 8});
    ir::Sample same = drawn("q_is_k_is_v" + suffix, {2, 4, 3}, {2, 4, 3}, {2, 4, 3}, causal);
    same.same_as = {-1, 0, 0};
    all.push_back(std::move(same));
  }
  ir::Sample steep = drawn("scale_given", {2, 4, 3}, {2, 4, 3}, {2, 4, 3}, true);
  steep.attrs.set("scale", 1.75);
  all.push_back(std::move(steep));

  all.push_back(even("even", 2, {2, 4}, false, {3, 3}));
  all.push_back(even("even_causal", 3, {2, 4, 9}, true, {2, 3, 5}));
  all.push_back(even("last_query_sees_all_keys", 1, {1, 2, 6}, true, {3}));
  all.push_back(even("bottom_right", 2, {1, 2, 6}, true, {1.5, 3}));
  all.push_back(even("queries_that_see_nothing_give_0", 3, {7}, true, {0, 0, 7}));
  // exp(ln 3 · scale) to 1, with scale 1 / √1 and 2.
  constexpr float ln3 = 1.0986123f;
  const std::vector<Tensor> operands = {values({1, 1}, {1}), values({2, 1}, {0, ln3}), values({2, 1}, {0, 4})};
  all.push_back(with_grad(by_hand("by_hand", operands, {{3}}, {}, 1e-6)));
  all.push_back(with_grad(by_hand("by_hand_scaled", operands, {{3.6}}, {{"scale", 2.0}}, 1e-6)));
  return all;
}

std::vector<ir::Sample> samples_attention_dropout() {
  const TensorType key = {i64, {}};
  const auto drawing = [&](ir::Sample s, double p, int64_t ordinal) {
    s.inputs.insert(s.inputs.end(), {key, key});
    s.attrs.set("ordinal", ordinal);
    s.attrs.set("p", p);
    if (!s.same_as.empty()) s.same_as.resize(5, -1);
    return s;
  };
  std::vector<ir::Sample> all;
  const auto add = [&](const char* name, Shape q, Shape k, Shape v, bool causal, double p) {
    all.push_back(drawing(drawn(name, q, k, v, causal), p, static_cast<int64_t>(all.size())));
  };
  add("matrix", {5, 4}, {5, 4}, {5, 3}, false, 0.5);
  add("batch_causal", {2, 4, 3}, {2, 4, 3}, {2, 4, 3}, true, 0.1);
  add("batch_and_heads", {2, 3, 6, 4}, {2, 3, 6, 4}, {2, 3, 6, 4}, false, 0.25);
  add("fewer_queries_causal", {2, 3, 4}, {2, 5, 4}, {2, 5, 2}, true, 0.5);
  add("more_queries_than_keys_causal", {2, 2, 5, 4}, {2, 2, 3, 4}, {2, 2, 3, 4}, true, 0.5);
  add("one", {1, 1}, {1, 1}, {1, 1}, false, 0.5);
  add("no_queries", {2, 0, 3}, {2, 4, 3}, {2, 4, 3}, false, 0.5);
  add("no_keys", {2, 4, 3}, {2, 0, 3}, {2, 0, 3}, false, 0.5);
  add("no_width", {4, 3}, {4, 3}, {4, 0}, false, 0.5);
  add("long_rows", {2, 3, 8}, {2, 70, 8}, {2, 70, 8}, false, 0.9);
  add("p_is_0", {5, 4}, {5, 4}, {5, 3}, true, 0);
  ir::Sample same = drawn("q_is_k_is_v", {2, 4, 3}, {2, 4, 3}, {2, 4, 3}, true);
  same.same_as = {-1, 0, 0};
  all.push_back(drawing(std::move(same), 0.5, 2));
  ir::Sample steep = drawn("scale_given", {2, 4, 3}, {2, 4, 3}, {2, 4, 3}, false);
  steep.attrs.set("scale", 1.75);
  all.push_back(drawing(std::move(steep), 0.3, 7));

  // With this seed the signs of the draws are + + - - and - + + +: of four quarters those are left, as halves.
  ir::Sample by_hand = drawing(even("by_hand", 2, {1, 2, 3, 4}, false, {1.5, 4.5}), 0.5, 0);
  by_hand.values.emplace_back(3, Tensor::scalar<int64_t>(1));
  by_hand.values.emplace_back(4, Tensor::scalar<int64_t>(0));
  all.push_back(std::move(by_hand));
  return all;
}

}  // namespace aicf::ops
