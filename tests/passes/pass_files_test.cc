// tests/passes/*.ir: what a pass makes of a graph.
//   # pass: NAME           of the pipeline, `inference_mode`, `compute_casts`, or `apply_precision PRECISION`
//   (a graph)
//   # ---
//   (the graph expected after the pass, or "unchanged": the pass must report no change and leave the text as it is)
// Both graphs of an exact pass give the same bits, on every pair of special values.
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <functional>
#include <sstream>

#include "ir/text.h"
#include "lower/evaluate.h"
#include "passes/pass.h"
#include "passes/special_values.h"

namespace aicf::passes {
namespace {

namespace fs = std::filesystem;

std::vector<std::string> files() {
  std::vector<std::string> found;
  for (const auto& entry : fs::directory_iterator(AICF_SOURCE_DIR "/tests/passes")) {
    if (entry.path().extension() == ".ir") found.push_back(entry.path().stem());
  }
  std::sort(found.begin(), found.end());
  return found;
}

using PassFn = std::function<bool(ir::Graph&)>;

constexpr std::string_view kPolicy = "apply_precision ";
bool is_policy(const std::string& name) { return name.starts_with(kPolicy); }

PassFn find_pass(const std::string& name) {
  for (const Pass& pass : pipeline()) {
    if (pass.name != name) continue;
    return [pass](ir::Graph& graph) { return pass.run(graph, lower::evaluate_on_cpu); };
  }
  if (is_policy(name)) {
    return [precision = name.substr(kPolicy.size())](ir::Graph& graph) {
      const std::string before = ir::print(graph);
      apply_precision(graph, precision);
      return ir::print(graph) != before;
    };
  }
  if (name == "inference_mode") return inference_mode;
  return name == "compute_casts" ? compute_casts : PassFn();
}

std::string trimmed(const std::string& text) {
  const size_t begin = text.find_first_not_of(" \n"), end = text.find_last_not_of(" \n");
  return begin == std::string::npos ? "" : text.substr(begin, end - begin + 1);
}

struct Case {
  std::string pass, expected;
  ir::Graph graph;
};

Case read_case(const std::string& name_of_file) {
  std::ifstream file(AICF_SOURCE_DIR "/tests/passes/" + name_of_file + ".ir");
  std::stringstream stream;
  stream << file.rdbuf();
  const std::string text = stream.str(), head = "# pass: ", cut = "\n# ---\n";
  const size_t name = text.find(head), middle = text.find(cut);
  if (name == std::string::npos || middle == std::string::npos) throw Error("no `# pass: NAME`, or no `# ---`");
  const size_t begin = name + head.size();
  return {text.substr(begin, text.find('\n', begin) - begin), trimmed(text.substr(middle + cut.size())),
          ir::parse(text.substr(0, middle + 1))};
}

bool is_exact(const std::string& name) {
  return std::any_of(pipeline().begin(), pipeline().end(),
                     [&](const Pass& pass) { return pass.name == name && pass.effect == Effect::exact; });
}

class PassFile : public testing::TestWithParam<std::string> {};

TEST_P(PassFile, GivesTheExpectedGraph) {
  const Case c = read_case(GetParam());
  const PassFn pass = find_pass(c.pass);
  ASSERT_TRUE(pass) << "no such pass";
  ir::Graph graph = c.graph;
  const std::string before = ir::print(graph);
  const bool changed = pass(graph);
  ir::verify(graph);
  if (c.expected == "unchanged") {
    EXPECT_FALSE(changed);
    EXPECT_EQ(ir::print(graph), before);
  } else {
    EXPECT_TRUE(changed);
    EXPECT_EQ(trimmed(ir::print(graph)), c.expected);
    if (is_policy(c.pass)) return;  // applied once
    const std::string once = ir::print(graph);
    EXPECT_FALSE(pass(graph)) << "the pass changes its own result";
    EXPECT_EQ(ir::print(graph), once);
  }
}

TEST_P(PassFile, KeepsEveryBit) {
  const Case c = read_case(GetParam());
  if (!is_exact(c.pass)) return;
  ir::Graph graph = c.graph;
  find_pass(c.pass)(graph);
  EXPECT_EQ(test::difference_of(c.graph, graph), "");
}

INSTANTIATE_TEST_SUITE_P(Passes, PassFile, testing::ValuesIn(files()), [](const auto& info) {
  std::string name = info.param;
  std::replace(name.begin(), name.end(), '-', '_');
  return name;
});

}  // namespace
}  // namespace aicf::passes
