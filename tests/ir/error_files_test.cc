// tests/errors/*.ir: malformed graphs, each with the message it must get.
//   # expect: MESSAGE      what() of the error, all of it
//   # hint: TEXT           its hint(); none when the line is missing
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <sstream>

#include "aicf/error.h"
#include "ir/text.h"

namespace aicf::ir {
namespace {

namespace fs = std::filesystem;

std::vector<std::string> files() {
  std::vector<std::string> found;
  for (const auto& entry : fs::directory_iterator(AICF_SOURCE_DIR "/tests/errors")) {
    if (entry.path().extension() == ".ir") found.push_back(entry.path().stem());
  }
  std::sort(found.begin(), found.end());
  return found;
}

// The rest of the line that starts with `head`, or "".
std::string line_after(const std::string& text, const std::string& head) {
  std::istringstream lines(text);
  for (std::string line; std::getline(lines, line);) {
    if (line.rfind(head, 0) == 0) return line.substr(head.size());
  }
  return {};
}

class ErrorFile : public testing::TestWithParam<std::string> {};

TEST_P(ErrorFile, GetsItsMessage) {
  std::ifstream file(AICF_SOURCE_DIR "/tests/errors/" + GetParam() + ".ir");
  std::stringstream text;
  text << file.rdbuf();
  const std::string expected = line_after(text.str(), "# expect: ");
  ASSERT_FALSE(expected.empty()) << "the file has no `# expect: MESSAGE`";
  try {
    parse(text.str());
    FAIL() << "accepted; expected: " << expected;
  } catch (const Error& e) {
    EXPECT_EQ(e.what(), expected);
    EXPECT_EQ(e.hint(), line_after(text.str(), "# hint: "));
  }
}

INSTANTIATE_TEST_SUITE_P(Errors, ErrorFile, testing::ValuesIn(files()), [](const auto& info) {
  std::string name = info.param;
  std::replace(name.begin(), name.end(), '-', '_');
  return name;
});

}  // namespace
}  // namespace aicf::ir
