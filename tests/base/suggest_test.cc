// The nearest name, and the hash of cache keys.
#include "aicf/suggest.h"

#include <gtest/gtest.h>

#include <vector>

#include "base/hash.h"

namespace aicf::base {
namespace {

const std::vector<std::string> kOps = {"add", "matmul", "reduce_max", "reduce_min", "relu", "reshape"};

TEST(Nearest, FindsSlips) {
  EXPECT_EQ(nearest("matmull", kOps), "matmul");  // one letter more
  EXPECT_EQ(nearest("matml", kOps), "matmul");    // one fewer
  EXPECT_EQ(nearest("natmul", kOps), "matmul");   // another
  EXPECT_EQ(nearest("rleu", kOps), "relu");       // two swapped count as one
  EXPECT_EQ(nearest("reduce_mxx", kOps), "reduce_max");
  EXPECT_EQ(nearest("add", kOps), "add");
}

TEST(Nearest, TakesTheCloserThenTheFirst) {
  EXPECT_EQ(nearest("reduce_mix", kOps), "reduce_max") << "as near as reduce_min, and before it";
  EXPECT_EQ(nearest("reduce_mn", kOps), "reduce_min");
}

TEST(Nearest, OffersNothingFar) {
  EXPECT_EQ(nearest("softmax", kOps), "");
  EXPECT_EQ(nearest("adxx", kOps), "");
  EXPECT_EQ(nearest("", kOps), "");
  EXPECT_EQ(nearest("a", std::vector<std::string>{"b"}), "") << "any two single letters are one edit apart";
  EXPECT_EQ(nearest("matmul", {}), "");
  EXPECT_EQ(nearest(std::string(100000, 'a'), std::vector<std::string>{std::string(100001, 'a')}), "");
}

TEST(Nearest, Sentence) {
  EXPECT_EQ(did_you_mean("rellu", kOps), "did you mean relu?");
  EXPECT_EQ(did_you_mean("conv2d", kOps), "");
}

// The published test vectors of FNV-1a, 64 bits.
TEST(Hash, KnownValues) {
  EXPECT_EQ(hash_text(""), 0xcbf29ce484222325u);
  EXPECT_EQ(hash_text("a"), 0xaf63dc4c8601ec8cu);
  EXPECT_EQ(hash_text("foobar"), 0x85944171f73967e8u);
}

TEST(Hash, Chains) {
  EXPECT_EQ(hash_text("bar", hash_text("foo")), hash_text("foobar"));
  EXPECT_NE(hash_text("ba"), hash_text("ab"));
}

}  // namespace
}  // namespace aicf::base
