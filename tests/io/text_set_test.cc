// Text as tokens: windows, the held-out part, what is refused, and the text of Debian's package bible-kjv.
#include <stdlib.h>
#include <unistd.h>

#include "aicf/data.h"
#include "io/files.h"

namespace aicf::tests {
namespace {

std::string refusal(const TextSetOptions& options) {
  try {
    load_text_set(options);
  } catch (const Error& e) {
    return e.what();
  }
  return "no error";
}

std::vector<double> numbers(const std::string& text) {
  std::vector<double> list;
  for (const char c : text) list.push_back(static_cast<unsigned char>(c));
  return list;
}

// 20 bytes, a quarter held out: 15 hold three windows of 4 and their last next byte; 5 hold one.
TEST(TextSet, CutsWindowsAndHoldsOutTheEnd) {
  const TempFolder folder;
  const std::string path = folder / "t.txt";
  write_file(path, "abcdefghijklm\xC3\xA9pqrst");
  const Dataset train = load_text_set({.path = path, .held_out = 0.25, .context = 4});
  EXPECT_EQ(train["x"].type(), (TensorType{i32, {3, 4}}));
  EXPECT_EQ(train["x"].to_doubles(), numbers("abcdefghijkl"));
  EXPECT_EQ(train["y"].to_doubles(), numbers("bcdefghijklm"));
  const Dataset test = load_text_set({.path = path, .train = false, .held_out = 0.25, .context = 4});
  EXPECT_EQ(test["x"].to_doubles(), numbers("pqrs"));
  EXPECT_EQ(test["y"].to_doubles(), numbers("qrst"));
  const Dataset whole = load_text_set({.path = path, .held_out = 0, .context = 19, .tokens = "a", .next = "b"});
  EXPECT_EQ(whole["b"].at(18), 't');
  EXPECT_EQ(whole["a"].at(13), 0xC3) << "bytes, not signed";
}

TEST(TextSet, Refuses) {
  const TempFolder folder;
  const std::string path = folder / "t.txt";
  write_file(path, "abcdefgh");
  EXPECT_NE(refusal({.path = path, .held_out = 0, .context = 8}).find("more than 8 bytes to train on, got 8"),
            std::string::npos);
  EXPECT_NE(refusal({.path = path, .train = false, .context = 1}).find("bytes to test on, got 1"), std::string::npos);
  EXPECT_NE(refusal({.path = path, .context = 0}).find("expected a context >= 1, got 0"), std::string::npos);
  EXPECT_NE(refusal({.path = path, .held_out = 1.5}).find("held_out from 0 to 1, got 1.5"), std::string::npos);
  EXPECT_NE(refusal({.path = folder / "none"}).find("none"), std::string::npos);
}

TEST(BibleText, TheEnvironmentNamesAFileInstead) {
  const TempFolder folder;
  write_file(folder / "b.txt", "In the beginning");
  setenv("AICF_BIBLE_KJV", (folder / "b.txt").c_str(), 1);
  EXPECT_EQ(load_text_set({.held_out = 0, .context = 5})["x"].shape(), (Shape{3, 5}));
  unsetenv("AICF_BIBLE_KJV");
}

TEST(BibleText, IsTheWholeTextAsPrinted) {
  if (access("/usr/bin/bible", X_OK) != 0) GTEST_SKIP() << "no /usr/bin/bible";
  const Dataset train = load_text_set({.context = 64}), test = load_text_set({.train = false, .context = 64});
  EXPECT_EQ(train.size(), (4404412 * 9 / 10 - 1) / 64);
  EXPECT_EQ(test.size(), (4404412 - 4404412 * 9 / 10 - 1) / 64);
  std::string start;
  for (int i = 0; i < 30; ++i) start += static_cast<char>(train["x"].at(i));
  EXPECT_EQ(start, "Ge1:1 In the beginning God cre");
}

}  // namespace
}  // namespace aicf::tests
