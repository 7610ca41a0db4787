// Loading a part: by role, by name, by another program's names; what is left out is told.
#include <gtest/gtest.h>

#include <algorithm>

#include "aicf/safetensors.h"
#include "support/programs.h"

namespace aicf {
namespace {

using test::error_of;
using Names = std::vector<std::string>;

struct Fixture {
  test::SmallMlp m, other{2};
  Program p = compile(m.model, {.loss = m.loss, .optimizer = optim::AdamW{.lr = 0.1}});
  NamedTensors before, source;
  Fixture() {
    Program q = compile(other.model, {.loss = other.loss, .optimizer = optim::AdamW{.lr = 0.2}});
    for (int i = 0; i < 3; ++i) q.step(test::feeds_of(test::small_mlp_batch(i)));
    source = q.snapshot();
    before = p.snapshot();
  }
  // Those of p that are the source's now, where the two differed.
  Names changed() const {
    Names names;
    const NamedTensors now = p.snapshot();
    for (size_t i = 0; i < now.size(); ++i) {
      EXPECT_TRUE(now[i].second == before[i].second || now[i].second == source[i].second) << now[i].first;
      if (now[i].second != before[i].second) names.push_back(now[i].first);
    }
    return names;
  }
};

bool is_param(const std::string& name) { return name.starts_with("fc"); }

Names sorted(Names names) {
  std::sort(names.begin(), names.end());
  return names;
}

TEST(PartialLoad, ByRole) {
  for (const bool params : {true, false}) {
    Fixture f;
    const LoadReport report = f.p.load(f.source, {.params = params, .states = !params, .strict = false});
    for (const std::string& name : report.loaded) EXPECT_EQ(is_param(name), params) << name;
    for (const std::string& name : report.unused) EXPECT_EQ(is_param(name), !params) << name;
    EXPECT_EQ(report.loaded.size() + report.unused.size(), f.source.size());
    EXPECT_TRUE(report.missing.empty());
    for (const std::string& name : f.changed()) EXPECT_EQ(is_param(name), params) << name;
    EXPECT_FALSE(f.changed().empty());
    EXPECT_NE(error_of([&] {
                f.p.load(f.source, {.params = params, .states = !params});
              }).find("not among the tensors to load here"),
              std::string::npos);
  }
}

TEST(PartialLoad, ByName) {
  Fixture f;
  const LoadReport report =
      f.p.load(f.source, {.strict = false, .names = {"fc1.*", "optimizer.lr", "optimizer.?/fc2.bias"}});
  const Names expected = {"fc1.bias", "fc1.weight", "optimizer.lr", "optimizer.m/fc2.bias", "optimizer.v/fc2.bias"};
  EXPECT_EQ(sorted(report.loaded), expected);
  EXPECT_EQ(sorted(f.changed()), expected);
  EXPECT_EQ(report.unused.size(), f.source.size() - expected.size());

  Fixture g;
  NamedTensors one = {g.source[0]};
  const LoadReport missing = g.p.load(one, {.strict = false, .names = {"fc1.*"}});
  EXPECT_EQ(missing.missing.size(), 1u);
  EXPECT_NE(missing.missing[0], one[0].first);
  EXPECT_NE(error_of([&] { g.p.load(one, {.names = {"fc1.*"}}); }).find("missing"), std::string::npos);
  EXPECT_NE(error_of([&] { g.p.load(one, {.names = {"fc3.*"}}); }).find("no param or state matches 'fc3.*'"),
            std::string::npos);
  EXPECT_EQ(g.p.snapshot({.names = {"fc1.*"}}).size(), 2u);
  EXPECT_EQ(g.p.snapshot({.states = false}).size(), 4u);
}

TEST(PartialLoad, AStrictLoadLeavesNothingOut) {
  Fixture f;
  const LoadReport report = f.p.load(f.source);
  EXPECT_EQ(report.loaded.size(), f.source.size());
  EXPECT_TRUE(report.missing.empty() && report.unused.empty());
  EXPECT_EQ(f.p.snapshot(), f.source);
}

// A wrong type is an error, strict or not; so is a state that is derived.
TEST(PartialLoad, NotStrictIsNotCareless) {
  Fixture f;
  NamedTensors wrong = f.source;
  wrong.back().second = Tensor(TensorType{f64, {7}});
  EXPECT_NE(error_of([&] { f.p.load(wrong, {.strict = false}); }).find("f64[7]"), std::string::npos);
  EXPECT_TRUE(f.changed().empty());
}

Tensor number(float value) { return Tensor::of<float>({1}, {value}); }

TEST(RenameTensors, MapsAnotherProgramsNames) {
  const NamedTensors torch = {{"layers.0.weight", number(0)},
                              {"layers.0.bias", number(1)},
                              {"layers.10.weight", number(2)},
                              {"head", number(3)},
                              {"layers.0.mask", number(4)}};
  const NamedTensors ours =
      rename_tensors(torch, {{"layers.*.mask", ""}, {"layers.*", "h*"}, {"head", "lm_head.weight"}});
  const NamedTensors expected = {
      {"h0.weight", number(0)}, {"h0.bias", number(1)}, {"h10.weight", number(2)}, {"lm_head.weight", number(3)}};
  EXPECT_EQ(ours, expected);
  EXPECT_EQ(rename_tensors(torch, {}), torch);
  EXPECT_EQ(rename_tensors({{"a", number(1)}, {"b", number(2)}}, {{"a", "b"}, {"b", "a"}}),
            (NamedTensors{{"b", number(1)}, {"a", number(2)}}));
  EXPECT_EQ(rename_tensors({{"aa", number(1)}}, {{"a*a", "x*"}}), (NamedTensors{{"x", number(1)}}));
  const auto says = [&](const NameMap& map, const std::string& what) {
    const std::string message = error_of([&] { rename_tensors(torch, map); });
    EXPECT_NE(message.find(what), std::string::npos) << message;
  };
  says({{"layer.*", "h*"}}, "layer.*");
  says({{"layers.0.*", "x"}}, "would both be named");
  says({{"head", "layers.0.bias"}}, "would both be named");
  says({{"*.*", "x"}}, "at most one *");
  says({{"head", "x*"}}, "at most one *");
}

}  // namespace
}  // namespace aicf
