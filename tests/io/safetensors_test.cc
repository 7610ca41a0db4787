// Writing and reading safetensors, the durability of writing, and the log of metrics.
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmath>
#include <limits>
#include <nlohmann/json.hpp>

#include "aicf/metrics.h"
#include "aicf/safetensors.h"
#include "io/files.h"

namespace aicf::tests {
namespace {

constexpr DType kAllDTypes[kDTypeCount] = {f64, f32, bf16, f16, i64, i32, u8, boolean};

Tensor filled(DType dtype, Shape shape) {
  Tensor tensor(TensorType{dtype, shape});
  auto* bytes = static_cast<unsigned char*>(tensor.data());
  for (size_t i = 0; i < tensor.bytes(); ++i)
    bytes[i] = static_cast<unsigned char>(dtype == boolean ? i % 2 : 37 * i + 1);
  return tensor;
}

NamedTensors one_of_each() {
  NamedTensors tensors;
  for (DType dtype : kAllDTypes) {
    const std::string name(name_of(dtype));
    tensors.emplace_back(name + ".matrix", filled(dtype, {3, 5}));
    tensors.emplace_back(name + ".scalar", filled(dtype, {}));
    tensors.emplace_back(name + ".empty", filled(dtype, {0, 7}));
    tensors.emplace_back(name + ".rank8", filled(dtype, {1, 1, 1, 2, 1, 1, 1, 3}));
  }
  return tensors;
}

class SafetensorsFile : public ::testing::Test {
 protected:
  TempFolder folder_;
  const std::string path_ = folder_ / "m.safetensors";
};

TEST_F(SafetensorsFile, ReadsBackWhatItWrote) {
  const NamedTensors tensors = one_of_each();
  const std::map<std::string, std::string> metadata = {{"step", "12"}, {"", ""}, {"q\"\\\n\x01é", "\t한국어"}};
  write_safetensors(path_, tensors, metadata);
  const Safetensors read = read_safetensors(path_);
  EXPECT_EQ(read.metadata, metadata);
  EXPECT_TRUE(read.tensors == tensors);
  const std::string bytes = read_file(path_);
  const Safetensors parsed = parse_safetensors(as_bytes(bytes));
  EXPECT_EQ(parsed.metadata, metadata);
  EXPECT_TRUE(parsed.tensors == tensors);
}

TEST_F(SafetensorsFile, NothingAtAll) {
  write_safetensors(path_, {});
  EXPECT_EQ(read_file(path_), little_endian<uint64_t>(8) + "{}      ");
  EXPECT_TRUE(read_safetensors(path_).tensors.empty());
}

// The bytes, as the format's description has them.
TEST_F(SafetensorsFile, WritesTheFormat) {
  NamedTensors tensors;
  tensors.emplace_back("b", Tensor::of<float>({2}, {1.0f, -2.0f}));
  tensors.emplace_back("a\"", filled(u8, {3, 1}));
  write_safetensors(path_, tensors, {{"k", "v"}});
  std::string header = R"({"__metadata__":{"k":"v"},"b":{"dtype":"F32","shape":[2],"data_offsets":[0,8]},)"
                       R"("a\"":{"dtype":"U8","shape":[3,1],"data_offsets":[8,11]}})";
  while (header.size() % 8 != 0) header += ' ';
  EXPECT_EQ(read_file(path_), little_endian<uint64_t>(header.size()) + header + little_endian(1.0f) +
                                  little_endian(-2.0f) + "\x01\x26\x4b");
}

TEST_F(SafetensorsFile, RefusesNamesItCouldNotReadBack) {
  const Tensor t = filled(f32, {1});
  const auto refusal = [&](const NamedTensors& tensors, const std::map<std::string, std::string>& metadata = {}) {
    return error_of([&] { write_safetensors(path_, tensors, metadata); });
  };
  expect_contains(refusal({{"w", t}, {"w", t}}), "got \"w\"");
  expect_contains(refusal({{"__metadata__", t}}), "got \"__metadata__\"");
  expect_contains(refusal({{"\xff", t}}), "expected UTF-8");
  expect_contains(refusal({}, {{"\xff", "v"}}), "expected UTF-8");
  expect_contains(refusal({}, {{"k", "\xc3"}}), "expected UTF-8");
  expect_contains(refusal({}, {{"k", std::string(kMaxSafetensorsHeader, 'a')}}),
                  "expected a header of at most 100000000 bytes");
  EXPECT_EQ(folder_.entries(), 0u);
}

TEST_F(SafetensorsFile, ReplacesAndLeavesNoTemporary) {
  for (int i = 0; i < 3; ++i) write_safetensors(path_, {{"w", filled(f32, {100 * (i + 1)})}});
  EXPECT_EQ(folder_.entries(), 1u);
  EXPECT_EQ(read_safetensors(path_).tensors[0].second.elements(), 300);
}

TEST_F(SafetensorsFile, AFailureKeepsTheOldFile) {
  const NamedTensors old = {{"w", filled(f32, {10})}};
  write_safetensors(path_, old);

  expect_contains(error_of([&] { write_safetensors(folder_ / "missing/m.safetensors", old); }),
                  "missing/m.safetensors\"): cannot open its folder: No such file");
  ASSERT_EQ(mkdir((folder_ / "taken").c_str(), 0700), 0);
  expect_contains(error_of([&] { write_safetensors(folder_ / "taken", old); }), "cannot rename the finished file");
  EXPECT_EQ(folder_.entries(), 2u);

  // A file-size limit fails a write half way, as a full disk does.
  struct rlimit unlimited;
  getrlimit(RLIMIT_FSIZE, &unlimited);
  struct rlimit small = {4096, unlimited.rlim_max};
  signal(SIGXFSZ, SIG_IGN);
  setrlimit(RLIMIT_FSIZE, &small);
  const std::string message = error_of([&] { write_safetensors(path_, {{"w", filled(f32, {10000})}}); });
  setrlimit(RLIMIT_FSIZE, &unlimited);
  signal(SIGXFSZ, SIG_DFL);
  expect_contains(message, "m.safetensors\"): cannot write: File too large");
  EXPECT_EQ(folder_.entries(), 2u);
  EXPECT_TRUE(read_safetensors(path_).tensors == old);
}

// A process killed at any moment of saving leaves the old file or the new one, whole.
TEST_F(SafetensorsFile, SurvivesKill9) {
  const auto version = [](int i) {
    return NamedTensors{{"w", Tensor::of<int32_t>({20000}, std::vector<int32_t>(20000, i))}};
  };
  write_safetensors(path_, version(0));
  for (int round = 0; round < 20; ++round) {
    const pid_t child = fork();
    ASSERT_GE(child, 0);
    if (child == 0) {
      for (int i = 1;; ++i) write_safetensors(path_, version(i));
    }
    usleep(static_cast<useconds_t>(1000 + 1700 * round));
    kill(child, SIGKILL);
    waitpid(child, nullptr, 0);
    const Tensor w = read_safetensors(path_).tensors.at(0).second;
    ASSERT_EQ(w.elements(), 20000);
    const int32_t* values = w.as<int32_t>();
    for (int i = 1; i < 20000; ++i) ASSERT_EQ(values[i], values[0]);
  }
}

TEST_F(SafetensorsFile, RefusesWhatIsNoFile) {
  expect_contains(error_of([&] { read_safetensors(path_); }), "m.safetensors\"): cannot open: No such file");
  expect_contains(error_of([&] { read_safetensors(folder_.path()); }), "expected a regular file");
}

// --- metrics ------------------------------------------------------------------------------------------------

class Metrics : public ::testing::Test {
 protected:
  TempFolder folder_;
  const std::string path_ = folder_ / "metrics.jsonl";
};

TEST_F(Metrics, OneObjectALineAsItIsWritten) {
  MetricsWriter writer(path_);
  const double loss = 0.1 + 0.2;  // needs all 17 digits
  writer.write({{"step", int64_t{1}}, {"loss", loss}, {"note", "a \"b\"\nc"}});
  const auto line = nlohmann::json::parse(read_file(path_));
  EXPECT_EQ(line["step"], 1);
  EXPECT_EQ(line["loss"].get<double>(), loss);
  EXPECT_EQ(line["note"], "a \"b\"\nc");
  writer.write({{"nan", std::nan("")},
                {"inf", -std::numeric_limits<double>::infinity()},
                {"n", std::numeric_limits<int64_t>::min()}});
  writer.write({});
  const std::string text = read_file(path_);
  EXPECT_EQ(text.substr(text.find('\n') + 1), "{\"nan\":null,\"inf\":null,\"n\":-9223372036854775808}\n{}\n");
}

TEST_F(Metrics, AppendsAndEndsALineThatWasCutOff) {
  { MetricsWriter(path_).write({{"a", int64_t{1}}}); }
  { MetricsWriter(path_).write({{"a", int64_t{2}}}); }
  EXPECT_EQ(read_file(path_), "{\"a\":1}\n{\"a\":2}\n");
  write_file(path_, "{\"a\":1}\n{\"a\":");
  { MetricsWriter(path_).write({{"a", int64_t{3}}}); }
  EXPECT_EQ(read_file(path_), "{\"a\":1}\n{\"a\":\n{\"a\":3}\n");
}

TEST_F(Metrics, Refusals) {
  expect_contains(error_of([&] { MetricsWriter(folder_ / "missing/m"); }), "missing/m\"): cannot open: No such file");
  MetricsWriter writer(path_);
  expect_contains(error_of([&] { writer.write({{"a", 1.0}, {"a", 2.0}}); }), "got \"a\" twice");
  expect_contains(error_of([&] { writer.write({{"a", "\xff"}}); }), "expected UTF-8");
  EXPECT_EQ(read_file(path_), "");
  MetricsWriter full("/dev/full");
  expect_contains(error_of([&] { full.write({{"a", 1.0}}); }), "\"/dev/full\"): cannot write: No space left");
}

}  // namespace
}  // namespace aicf::tests
