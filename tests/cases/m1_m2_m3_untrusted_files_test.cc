// Cases M1, M2, M3 and their class: crafted safetensors files are refused with an Error, in little memory. M1: lengths
// and offsets that are not what they must be. M2: shapes whose product wraps, and empty tensors. M3: ranges that do not
// fit the tensor or the file. And ranges that overlap or leave gaps, and names given twice.
#include <gtest/gtest.h>
#include <unistd.h>

#include "aicf/safetensors.h"
#include "io/bytes.h"
#include "io/counted_new.h"
#include "io/files.h"
#include "io/safetensors.h"

namespace aicf::tests {
namespace {

constexpr size_t kMiB = size_t{1} << 20;

std::string file_of(const std::string& header, size_t data_bytes) {
  return little_endian<uint64_t>(header.size()) + header + std::string(data_bytes, '\0');
}

std::string entry(const std::string& dtype, const std::string& shape, const std::string& offsets,
                  const std::string& name = "w") {
  return "\"" + name + R"(":{"dtype":")" + dtype + R"(","shape":)" + shape + R"(,"data_offsets":)" + offsets + "}";
}

std::string one(const std::string& dtype, const std::string& shape, const std::string& offsets, size_t data_bytes) {
  return file_of("{" + entry(dtype, shape, offsets) + "}", data_bytes);
}

class Untrusted : public ::testing::Test {
 protected:
  // The message of the refusal, the same from a file and from memory, in less than 1 MiB each.
  std::string refusal(const std::string& bytes) {
    write_file(path_, bytes);
    std::string from_file, from_memory;
    const size_t file_peak = peak_during([&] { from_file = error_of([&] { read_safetensors(path_); }); });
    const size_t memory_peak =
        peak_during([&] { from_memory = error_of([&] { parse_safetensors(as_bytes(bytes), path_); }); });
    EXPECT_LT(file_peak, kMiB);
    EXPECT_LT(memory_peak, kMiB);
    expect_contains(from_file, "read_safetensors(\"" + path_ + "\"): ");
    expect_contains(from_file, "expected ");
    EXPECT_EQ(from_file.substr(from_file.find('(')),
              from_memory.substr(std::min(from_memory.size(), from_memory.find('('))));
    return from_file;
  }
  Safetensors accepted(const std::string& bytes) {
    write_file(path_, bytes);
    parse_safetensors(as_bytes(bytes));
    return read_safetensors(path_);
  }
  TempFolder folder_;
  const std::string path_ = folder_ / "crafted.safetensors";
};

struct NamedDType {
  const char* name;
  DType dtype;
};
constexpr NamedDType kAccepted[kDTypeCount] = {{"F64", f64}, {"F32", f32}, {"BF16", bf16}, {"F16", f16},
                                               {"I64", i64}, {"I32", i32}, {"U8", u8},     {"BOOL", boolean}};

class M1 : public Untrusted {};
class M2 : public Untrusted {};
class M3 : public Untrusted {};
class Ranges : public Untrusted {};
class Header : public Untrusted {};

// --- M1 -----------------------------------------------------------------------------------------------------

TEST_F(M1, HeaderLengthIsCheckedBeforeAnyAllocation) {
  const std::string rest = "{}      ";
  for (uint64_t length :
       {~uint64_t{0}, uint64_t{1} << 63, uint64_t{16 - 7}, ~uint64_t{0} - 7, ~uint64_t{0} - 15, uint64_t{1} << 40}) {
    expect_contains(refusal(little_endian(length) + rest), "expected a header of at most 8 bytes in a file of 16");
  }
  expect_contains(refusal(little_endian<uint64_t>(0) + rest), "expected a header beginning with '{'");
  for (size_t n = 0; n < 8; ++n) expect_contains(refusal(std::string(n, '\0')), "expected at least 8 bytes");
}

// A file may be large and still lie about its header; a sparse one costs nothing to make.
TEST_F(M1, HeaderLengthIsCapped) {
  write_file(path_, little_endian(kMaxSafetensorsHeader + 1) + "{");
  ASSERT_EQ(truncate(path_.c_str(), off_t{1} << 30), 0);
  std::string message;
  EXPECT_LT(peak_during([&] { message = error_of([&] { read_safetensors(path_); }); }), kMiB);
  expect_contains(message, "expected a header of at most 100000000 bytes");
}

TEST_F(M1, OffsetsAreExactlyTwoOrderedIntegers) {
  for (const char* offsets : {"[]",
                              "[0]",
                              "[0,4,4]",
                              "[8,0]",
                              "[4,0]",
                              "[-1,4]",
                              "[-0,4]",
                              "[0,-4]",
                              "[0.5,4]",
                              "[0,4.0]",
                              "[0,4e0]",
                              "[false,4]",
                              "[false,true]",
                              "[null,4]",
                              "[\"0\",\"4\"]",
                              "[[0],4]",
                              "[{},4]",
                              "0",
                              "\"[0,4]\"",
                              "null",
                              "{}",
                              "true",
                              "[0,18446744073709551616]",
                              "[0,18446744073709551615]",
                              "[18446744073709551612,0]"}) {
    SCOPED_TRACE(offsets);
    refusal(one("F32", "[1]", offsets, 4));
    refusal(one("F32", "[1]", offsets, 8));
    refusal(one("U8", "[0]", offsets, 0));
  }
  EXPECT_EQ(accepted(one("F32", "[1]", "[0,4]", 4)).tensors.size(), 1u);
}

// --- M2 -----------------------------------------------------------------------------------------------------

TEST_F(M2, ProductsThatWrapAreRefusedForEveryDType) {
  for (const auto& [name, dtype] : kAccepted) {
    SCOPED_TRACE(name);
    for (const char* shape :
         {"[4294967296,4294967296]", "[4611686018427387904,4]", "[9223372036854775808]", "[18446744073709551615]",
          "[4294967296,4294967296,0]", "[0,4294967296,4294967296]", "[2305843009213693952,8]"}) {
      SCOPED_TRACE(shape);
      expect_contains(refusal(one(name, shape, "[0,0]", 0)), "2^62");
      refusal(one(name, shape, "[0,1000000000]", 0));
      refusal(one(name, shape, "[0,8]", 8));
    }
    // The number of elements fits 2^64, the number of bytes wraps to 0.
    if (size_of(dtype) == 8) expect_contains(refusal(one(name, "[2305843009213693952]", "[0,0]", 0)), "2^62");
  }
}

TEST_F(M2, ExtentsAreNonNegativeIntegers) {
  for (const char* shape :
       {"[-1,-1]", "[-1]", "[-0]", "[1e300]", "[1.0]", "[1e0]", "[0.5]", "[true]", "[null]", "[\"1\"]", "[[1]]", "[{}]",
        "1", "\"[1]\"", "null", "{}", "[18446744073709551616]", "[18446744073709551617]"}) {
    SCOPED_TRACE(shape);
    refusal(one("U8", shape, "[0,1]", 1));
    refusal(one("U8", shape, "[0,0]", 0));
  }
  expect_contains(refusal(one("U8", "[1,1,1,1,1,1,1,1,1]", "[0,1]", 1)), "rank of at most 8");
  EXPECT_EQ(accepted(one("U8", "[1,1,1,1,1,1,1,1]", "[0,1]", 1)).tensors.size(), 1u);
  EXPECT_EQ(accepted(one("U8", "[]", "[0,1]", 1)).tensors[0].second.shape(), Shape{});
}

TEST_F(M2, AnEmptyTensorStillHasItsOffsetsChecked) {
  for (const auto& [name, dtype] : kAccepted) {
    SCOPED_TRACE(name);
    expect_contains(refusal(one(name, "[0]", "[1000000000,1000000000]", 0)), "within 0 bytes");
    expect_contains(refusal(one(name, "[0]", "[1,1]", 0)), "within 0 bytes");
    refusal(one(name, "[0]", "[0,8]", 8));
    for (int k = 0; k <= 8; ++k) {
      const std::string at = "[" + std::to_string(k) + "," + std::to_string(k) + "]";
      const Safetensors read =
          accepted(file_of("{" + entry(name, "[3,0]", at) + "," + entry("F64", "[1]", "[0,8]", "v") + "}", 8));
      EXPECT_EQ(read.tensors[0].second.type(), (TensorType{dtype, {3, 0}}));
    }
  }
}

// --- M3 -----------------------------------------------------------------------------------------------------

TEST_F(M3, TheRangeIsTheSizeOfTheTensorForEveryDType) {
  for (const auto& [name, dtype] : kAccepted) {
    SCOPED_TRACE(name);
    const size_t size = 6 * size_of(dtype);
    const auto range = [](size_t end) { return "[0," + std::to_string(end) + "]"; };
    const Safetensors read = accepted(one(name, "[2,3]", range(size), size));
    ASSERT_EQ(read.tensors.size(), 1u);
    EXPECT_EQ(read.tensors[0].first, "w");
    EXPECT_EQ(read.tensors[0].second.type(), (TensorType{dtype, {2, 3}}));
    for (size_t wrong : {size_t{0}, size - 1, size + 1, 2 * size}) refusal(one(name, "[2,3]", range(wrong), wrong));
    refusal(one(name, "[2,3]", range(size), size - 1));
    refusal(one(name, "[2,3]", range(size), size + 1));
    refusal(one(name, "[2,3]", range(size), 0));
  }
}

TEST_F(M3, ASmallRangeOrFileForALargeTensor) {
  expect_contains(refusal(one("F32", "[1000,1000]", "[0,4]", 4)),
                  "expected 4000000 bytes for F32[1000,1000], got data_offsets [0,4]");
  const std::string header = "{" + entry("F32", "[1000,1000]", "[0,4000000]") + "}";
  const std::string bytes = file_of(header, 90 - 8 - header.size());
  ASSERT_EQ(bytes.size(), 90u);
  expect_contains(refusal(bytes), "got [0,4000000]");
}

TEST_F(M3, AFileTruncatedAfterItWasOpened) {
  const size_t size = 1 << 20;
  const std::string bytes = one("F32", "[262144]", "[0,1048576]", size);
  for (size_t left :
       {bytes.size() - 1, bytes.size() - size / 2, bytes.size() - size, size_t{20}, size_t{8}, size_t{0}}) {
    write_file(path_, bytes);
    const io::FileBytes file("read_safetensors", path_);
    ASSERT_EQ(truncate(path_.c_str(), static_cast<off_t>(left)), 0);
    expect_contains(error_of([&] { io::read_safetensors(file); }), "the file shrank while it was read");
  }
}

// --- ranges, names and the header's form -------------------------------------------------------------------------

TEST_F(Ranges, TileTheDataExactly) {
  const auto two = [](const std::string& a, const std::string& b, size_t data_bytes) {
    return file_of("{" + entry("U8", "[4]", a, "a") + "," + entry("U8", "[4]", b, "b") + "}", data_bytes);
  };
  EXPECT_EQ(accepted(two("[0,4]", "[4,8]", 8)).tensors[0].first, "a");
  EXPECT_EQ(accepted(two("[4,8]", "[0,4]", 8)).tensors[0].first, "a");
  expect_contains(refusal(two("[0,4]", "[0,4]", 4)), "overlap");
  expect_contains(refusal(two("[0,4]", "[0,4]", 8)), "overlap");
  expect_contains(refusal(two("[3,7]", "[0,4]", 7)), "overlap");
  expect_contains(refusal(two("[0,4]", "[5,9]", 9)), "leave a gap");
  expect_contains(refusal(two("[1,5]", "[5,9]", 9)), "leave a gap");
  expect_contains(refusal(two("[0,4]", "[4,8]", 9)), "expected 8 bytes of data, got 9");
  expect_contains(refusal(file_of("{}", 1)), "expected 0 bytes of data, got 1");
}

TEST_F(Header, NamesAndKeysAreUnique) {
  const std::string a = entry("U8", "[0]", "[0,0]", "a");
  expect_contains(refusal(file_of("{" + a + "," + a + "}", 0)), "\"a\" twice");
  expect_contains(refusal(file_of("{" + a + "," + entry("U8", "[0]", "[0,0]", "\\u0061") + "}", 0)), "\"a\" twice");
  expect_contains(refusal(file_of(R"({"__metadata__":{"k":"1","k":"2"}})", 0)), "\"k\" twice");
  expect_contains(refusal(file_of(R"({"__metadata__":{},"__metadata__":{}})", 0)), "\"__metadata__\" twice");
  for (const char* again : {R"("dtype":"U8")", R"("shape":[0])", R"("data_offsets":[0,0])"}) {
    const std::string twice = a.substr(0, a.size() - 1) + "," + again + "}";
    expect_contains(refusal(file_of("{" + twice + "}", 0)), "twice");
  }
}

TEST_F(Header, HasNothingMissingAndNothingMore) {
  for (const char* body : {R"("shape":[0],"data_offsets":[0,0])", R"("dtype":"U8","data_offsets":[0,0])",
                           R"("dtype":"U8","shape":[0])", "", R"("dtype":"U8","shape":[0],"data_offsets":[0,0],"x":0)",
                           R"("Dtype":"U8","shape":[0],"data_offsets":[0,0])"}) {
    SCOPED_TRACE(body);
    expect_contains(refusal(file_of(R"({"w":{)" + std::string(body) + "}}", 0)),
                    "expected the keys dtype, shape and data_offsets");
  }
}

TEST_F(Header, EveryOtherDTypeIsRefused) {
  for (const char* name : {"I8", "I16", "U16", "U32", "U64", "F8_E4M3", "F8_E5M2", "F8_E8M0", "F4", "C64", "f32",
                           "F32 ", "", "BOOL\\u0000"}) {
    SCOPED_TRACE(name);
    expect_contains(refusal(one(name, "[0]", "[0,0]", 0)),
                    "expected dtype F64, F32, BF16, F16, I64, I32, U8 or BOOL, got \"");
  }
  for (const char* value : {"1", "null", "[\"F32\"]", "{}", "true"}) {
    refusal(file_of(R"({"w":{"dtype":)" + std::string(value) + R"(,"shape":[0],"data_offsets":[0,0]}})", 0));
  }
}

TEST_F(Header, IsOneObjectOfObjects) {
  using namespace std::string_literals;
  for (const std::string& text : {"[]"s,
                                  "0"s,
                                  "\"a\""s,
                                  " {}"s,
                                  "\xef\xbb\xbf{}"s,
                                  "{"s,
                                  "{}}"s,
                                  "{}{}"s,
                                  "{},"s,
                                  "{\"a\":}"s,
                                  "{\"a\":0}"s,
                                  "{\"a\":[]}"s,
                                  "{\"a\":null}"s,
                                  "{a:{}}"s,
                                  "{\"a\"}"s,
                                  "{/**/}"s,
                                  "{\"\xff\":{}}"s,
                                  "{\"a\n\":{}}"s,
                                  "{}\0"s,
                                  "{}\0trailing"s,
                                  "\0{}"s,
                                  "{\"__metadata__\":null}"s,
                                  "{\"__metadata__\":[]}"s,
                                  "{\"__metadata__\":{\"a\":1}}"s,
                                  "{\"__metadata__\":{\"a\":null}}"s,
                                  "{\"__metadata__\":{\"a\":{}}}"s}) {
    SCOPED_TRACE(text);
    refusal(file_of(text, 0));
  }
  EXPECT_EQ(accepted(file_of("{\"__metadata__\":{\"a\":\"b\"}} \n\t ", 0)).metadata.at("a"), "b");
}

// Neither deep nesting nor long strings and numbers cost more than a few times the header.
TEST_F(Header, HostileJsonStaysWithinAFewTimesItsSize) {
  const size_t n = 100000;
  refusal(file_of(std::string(n, '{'), 0));
  refusal(file_of("{\"w\":" + std::string(n, '['), 0));
  refusal(file_of("{\"" + std::string(n, 'a'), 0));
  refusal(file_of("{\"" + std::string(n, 'a') + "\":0}", 0));
  refusal(file_of("{\"w\":" + std::string(n, '9') + "}", 0));
  refusal(one("F32", "[" + std::string(n, '1') + "]", "[0,4]", 4));
  std::string ones = "[1";
  for (size_t i = 0; i < n / 2; ++i) ones += ",1";
  refusal(one("U8", ones + "]", "[0,1]", 1));
}

TEST_F(Header, ABooleanIsZeroOrOne) {
  std::string bytes = one("BOOL", "[3]", "[0,3]", 3);
  bytes[bytes.size() - 2] = 1;
  EXPECT_EQ(accepted(bytes).tensors[0].second.at(1), 1.0);
  bytes[bytes.size() - 2] = 2;
  expect_contains(refusal(bytes), "expected BOOL bytes 0 or 1, got 2 at element 1");
}

}  // namespace
}  // namespace aicf::tests
