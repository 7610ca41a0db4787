// tests/passes/*.ir: what a pass makes of a graph.
//   # pass: NAME           of the pipeline, `inference_mode`, `compute_casts`, or `apply_precision PRECISION`
//   (a graph)
//   # ---
//   (the graph expected after the pass, or "unchanged": the pass must report no change and leave the text as it is)
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <functional>
#include <sstream>

#include "ir/text.h"
#include "passes/pass.h"

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
    if (pass.name == name) return pass.run;
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

class PassFile : public testing::TestWithParam<std::string> {};

TEST_P(PassFile, GivesTheExpectedGraph) {
  std::ifstream file(AICF_SOURCE_DIR "/tests/passes/" + GetParam() + ".ir");
  std::stringstream stream;
  stream << file.rdbuf();
  const std::string text = stream.str(), head = "# pass: ", cut = "\n# ---\n";
  const size_t name = text.find(head), middle = text.find(cut);
  ASSERT_NE(name, std::string::npos) << "no `# pass: NAME`";
  ASSERT_NE(middle, std::string::npos) << "no `# ---`";
  const size_t begin = name + head.size();
  const std::string name_of_pass = text.substr(begin, text.find('\n', begin) - begin);
  const PassFn pass = find_pass(name_of_pass);
  ASSERT_TRUE(pass) << "no such pass";
  const std::string expected = trimmed(text.substr(middle + cut.size()));

  ir::Graph graph = ir::parse(text.substr(0, middle + 1));
  const std::string before = ir::print(graph);
  const bool changed = pass(graph);
  ir::verify(graph);
  if (expected == "unchanged") {
    EXPECT_FALSE(changed);
    EXPECT_EQ(ir::print(graph), before);
  } else {
    EXPECT_TRUE(changed);
    EXPECT_EQ(trimmed(ir::print(graph)), expected);
    if (is_policy(name_of_pass)) return;  // applied once
    const std::string once = ir::print(graph);
    EXPECT_FALSE(pass(graph)) << "the pass changes its own result";
    EXPECT_EQ(ir::print(graph), once);
  }
}

INSTANTIATE_TEST_SUITE_P(Passes, PassFile, testing::ValuesIn(files()), [](const auto& info) {
  std::string name = info.param;
  std::replace(name.begin(), name.end(), '-', '_');
  return name;
});

}  // namespace
}  // namespace aicf::passes
