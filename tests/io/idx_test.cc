// read_idx over well-formed and malformed files, and the image sets made from them.
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>
#include <zlib.h>

#include <cmath>

#include "aicf/data.h"
#include "io/files.h"

namespace aicf::tests {
namespace {

std::string header(unsigned type, const std::vector<uint32_t>& extents) {
  std::string text = {'\0', '\0', static_cast<char>(type), static_cast<char>(extents.size())};
  for (uint32_t extent : extents) text += big_endian(extent);
  return text;
}

std::string gzip(const std::string& plain) {
  z_stream stream = {};
  EXPECT_EQ(deflateInit2(&stream, 9, Z_DEFLATED, 15 + 16, 8, Z_DEFAULT_STRATEGY), Z_OK);
  std::string packed(deflateBound(&stream, plain.size()), '\0');
  stream.next_in = reinterpret_cast<Bytef*>(const_cast<char*>(plain.data()));
  stream.avail_in = static_cast<uInt>(plain.size());
  stream.next_out = reinterpret_cast<Bytef*>(packed.data());
  stream.avail_out = static_cast<uInt>(packed.size());
  EXPECT_EQ(deflate(&stream, Z_FINISH), Z_STREAM_END);
  packed.resize(stream.total_out);
  deflateEnd(&stream);
  return packed;
}

class Idx : public ::testing::Test {
 protected:
  // Reads the bytes as a file, and as a gzip file: both must agree.
  Tensor read(const std::string& bytes) {
    write_file(folder_ / "plain", bytes);
    write_file(folder_ / "packed", gzip(bytes));
    const Tensor plain = read_idx(folder_ / "plain");
    EXPECT_TRUE(plain == read_idx(folder_ / "packed"));
    return plain;
  }
  std::string refusal(const std::string& bytes) {
    write_file(folder_ / "bad", bytes);
    const std::string message = error_of([&] { read_idx(folder_ / "bad"); });
    expect_contains(message, "read_idx(\"" + (folder_ / "bad") + "\"): expected ");
    expect_contains(message, ", got ");
    return message;
  }
  TempFolder folder_;
};

TEST_F(Idx, EveryAcceptedElementType) {
  Tensor bytes(TensorType{u8, {2, 2}});
  std::memcpy(bytes.data(), "\x01\x80\xff\x00", 4);
  EXPECT_TRUE(read(header(0x08, {2, 2}) + std::string("\x01\x80\xff\x00", 4)) == bytes);
  EXPECT_TRUE(read(header(0x0C, {2}) + big_endian<int32_t>(-2) + big_endian<int32_t>(0x01020304)) ==
              Tensor::of<int32_t>({2}, {-2, 0x01020304}));
  EXPECT_TRUE(read(header(0x0D, {1, 2}) + big_endian(1.5f) + big_endian(-0.25f)) ==
              Tensor::of<float>({1, 2}, {1.5f, -0.25f}));
  EXPECT_TRUE(read(header(0x0E, {2}) + big_endian(1e300) + big_endian(-3.0)) == Tensor::of<double>({2}, {1e300, -3.0}));
}

TEST_F(Idx, EmptyAndHighRank) {
  EXPECT_EQ(read(header(0x0D, {0, 3})).type(), (TensorType{f32, {0, 3}}));
  EXPECT_EQ(read(header(0x08, {1, 1, 1, 1, 1, 1, 1, 2}) + "ab").type(), (TensorType{u8, {1, 1, 1, 1, 1, 1, 1, 2}}));
}

TEST_F(Idx, RefusesEveryOtherElementType) {
  expect_contains(refusal(header(0x09, {1}) + "a"), "i8");
  expect_contains(refusal(header(0x0B, {1}) + "ab"), "i16");
  for (unsigned type = 0; type < 256; ++type) {
    if (type == 0x08 || type == 0x0C || type == 0x0D || type == 0x0E) continue;
    expect_contains(refusal(header(type, {0})), "expected element");
  }
}

TEST_F(Idx, RefusesMalformedFiles) {
  const std::string good = header(0x0C, {3, 2}) + std::string(24, 'x');
  for (size_t n = 0; n < good.size(); ++n) refusal(good.substr(0, n));
  expect_contains(refusal(good.substr(0, 35)), "expected 36 bytes (12 of header, 24 of data), got 35");
  expect_contains(refusal(good + "y"), "got 37");
  expect_contains(refusal("PNG" + good), "two zero bytes, got 0x50 0x4e");
  expect_contains(refusal(std::string("\0\0\x08\0z", 5)), "rank from 1 to 8, got 0");
  expect_contains(refusal(header(0x08, std::vector<uint32_t>(9, 1)) + "a"), "rank from 1 to 8, got 9");
}

TEST_F(Idx, RefusesProductsThatOverflow) {
  const uint32_t most = 0xffffffff;
  expect_contains(refusal(header(0x08, {most, most, 4})), "2^62");
  expect_contains(refusal(header(0x0E, {0x80000000, 0x80000000})), "2^62");  // 2^62 elements of 8 bytes
  expect_contains(refusal(header(0x08, {most, most, most, 0})), "2^62");     // a zero hides nothing
  expect_contains(refusal(header(0x08, {0x80000000, 0x10000000})), "got 12");
}

TEST_F(Idx, RefusesMalformedGzip) {
  std::string noise;
  for (int i = 0; i < 600; ++i) noise += static_cast<char>((i * 7919) >> 3);
  const std::string good = gzip(header(0x08, {600}) + noise);
  for (size_t n = 2; n < good.size(); ++n) refusal(good.substr(0, n));
  std::string bad_checksum = good;
  bad_checksum[good.size() - 8] ^= 1;
  expect_contains(refusal(bad_checksum), "corrupt data");
  std::string bad_data = good;
  bad_data[10] = '\x06';  // the reserved block type
  expect_contains(refusal(bad_data), "corrupt data");
  expect_contains(refusal(good + "x"), "expected the end of the file after the gzip data, got more");
  expect_contains(refusal(good + "\x1f"), "expected more gzip data");
  expect_contains(refusal(gzip(header(0x08, {600}) + noise + "x")), "expected 600 bytes of data, got more");
  expect_contains(refusal(gzip(header(0x08, {600}) + noise.substr(1))), "expected 600 bytes of data, got 599");
  expect_contains(refusal(gzip("")), "expected 4 bytes of header, got 0");
}

TEST_F(Idx, JoinsGzipMembers) {
  const std::string bytes = header(0x08, {4}) + "abcd";
  write_file(folder_ / "members", gzip(bytes.substr(0, 3)) + gzip("") + gzip(bytes.substr(3)));
  write_file(folder_ / "plain", bytes);
  EXPECT_TRUE(read_idx(folder_ / "members") == read_idx(folder_ / "plain"));
}

// A small gzip file that declares more than it could hold is refused before the tensor is allocated; one that inflates
// to more than it declares is not read beyond that.
TEST_F(Idx, RefusesDecompressionBombs) {
  expect_contains(refusal(gzip(header(0x08, {0xffffffff}) + std::string(100, 'a'))), "declares 4294967303");
  expect_contains(refusal(gzip(header(0x08, {0xffffffff, 0x10000000}))), "gzip file");
  expect_contains(refusal(gzip(header(0x08, {8}) + std::string(64 << 20, 'a'))), "expected 8 bytes of data, got more");
}

TEST_F(Idx, RefusesWhatIsNoFile) {
  expect_contains(error_of([&] { read_idx(folder_ / "missing"); }), "missing\"): cannot open: No such file");
  expect_contains(error_of([&] { read_idx(folder_.path()); }), "expected a regular file");
  ASSERT_EQ(mkfifo((folder_ / "pipe").c_str(), 0600), 0);
  expect_contains(error_of([&] { read_idx(folder_ / "pipe"); }), "expected a regular file");
  expect_contains(error_of([&] { read_idx("/dev/zero"); }), "expected a regular file");
}

// --- image sets ---------------------------------------------------------------------------------------------

class ImageSet : public ::testing::Test {
 protected:
  void write(const std::string& images, const std::string& labels) {
    write_file(folder_ / "train-images-idx3-ubyte", images);
    write_file(folder_ / "train-labels-idx1-ubyte", labels);
  }
  ImageSetOptions options() const {
    ImageSetOptions options;
    options.folder = folder_.path();
    options.mean = 0.5;
    options.deviation = 0.25;
    return options;
  }
  std::string refusal(const ImageSetOptions& options) {
    return error_of([&] { load_image_set(options); });
  }
  TempFolder folder_;
};

TEST_F(ImageSet, StandardisesPixelsAndReadsLabels) {
  write(header(0x08, {2, 1, 2}) + std::string("\x00\xff\x33\x66", 4), header(0x08, {2}) + "\x09\x03");
  const Dataset data = load_image_set(options());
  EXPECT_EQ(data.size(), 2);
  // (x/255 - 0.5) / 0.25 for x/255 = 0, 1, 0.2, 0.4, rounded once to f32.
  EXPECT_TRUE(data["x"] == Tensor::of<float>({2, 1, 2}, {-2.0f, 2.0f, -1.2f, -0.4f}));
  EXPECT_TRUE(data["y"] == Tensor::of<int32_t>({2}, {9, 3}));
  expect_contains(error_of([&] { data["z"]; }), "expected one of \"x\", \"y\", got \"z\"");
}

TEST_F(ImageSet, ReshapesAndRenames) {
  write(header(0x08, {2, 2, 2}) + std::string(8, 'a'), header(0x08, {2}) + "\x09\x03");
  ImageSetOptions flat = options();
  flat.image_shape = {4};
  flat.images = "pixels";
  EXPECT_EQ(load_image_set(flat)["pixels"].shape(), (Shape{2, 4}));
  flat.image_shape = {2, 2, 1};
  EXPECT_EQ(load_image_set(flat)["pixels"].shape(), (Shape{2, 2, 2, 1}));
  flat.image_shape = {5};
  expect_contains(refusal(flat), "expected images of 2x2 pixels");
  flat.image_shape = {4};
  flat.labels = "pixels";
  expect_contains(refusal(flat), "expected unique names");
}

TEST_F(ImageSet, RefusesFilesThatDisagree) {
  const std::string images = header(0x08, {2, 1, 1}) + "ab";
  write(images, header(0x08, {3}) + "\x01\x02\x03");
  expect_contains(refusal(options()), "expected 2 labels, one for each image");
  write(images, header(0x08, {2}) + "\x09\x0a");
  const std::string message = refusal(options());
  expect_contains(message, "train-labels-idx1-ubyte\"): expected labels from 0 to 9, got 10 at example 1");
  write(images, header(0x08, {2, 1}) + "\x01\x02");
  expect_contains(refusal(options()), "expected u8 of rank 1, got u8[2,1]");
  write(header(0x0D, {1, 1, 1}) + big_endian(1.0f), header(0x08, {1}) + "\x01");
  expect_contains(refusal(options()), "expected u8 of rank 3, got f32[1,1,1]");
  ASSERT_EQ(unlink((folder_ / "train-labels-idx1-ubyte").c_str()), 0);
  write_file(folder_ / "train-images-idx3-ubyte", images);
  expect_contains(refusal(options()), "train-labels-idx1-ubyte.gz\"): cannot open");
}

TEST_F(ImageSet, TheEnvironmentNamesAnotherDefaultFolder) {
  write(header(0x08, {2, 1, 1}) + "ab", header(0x08, {2}) + "\x09\x03");
  setenv("AICF_FASHION_MNIST", folder_.path().c_str(), 1);
  EXPECT_EQ(load_image_set().size(), 2) << "instead of the default";
  ImageSetOptions other = options();
  other.folder = folder_ / "nowhere";
  expect_contains(refusal(other), "nowhere");
  unsetenv("AICF_FASHION_MNIST");
}

TEST_F(ImageSet, RefusesOptionsOutOfRange) {
  ImageSetOptions bad = options();
  bad.deviation = 0;
  expect_contains(refusal(bad), "positive deviation, got 0.5 and 0");
  bad.deviation = std::nan("");
  expect_contains(refusal(bad), "positive deviation");
  bad = options();
  bad.classes = 0;
  expect_contains(refusal(bad), "at least 1 class");
}

// Facts its authors publish (github.com/zalandoresearch/fashion-mnist): 60,000 and 10,000 images of 28 × 28, ten
// classes of equal size. With the default mean and deviation the training images have mean 0 and deviation 1; the
// constants have four digits, which leaves an error of at most 0.00005 / 0.353.
TEST(FashionMnist, HasThePublishedSize) {
  if (access(kFashionMnistFolder, R_OK) != 0) GTEST_SKIP() << "no " << kFashionMnistFolder;
  for (const bool train : {true, false}) {
    ImageSetOptions options;
    options.train = train;
    const Dataset data = load_image_set(options);
    const int64_t n = train ? 60000 : 10000;
    ASSERT_EQ(data["x"].type(), (TensorType{f32, {n, 28, 28}}));
    ASSERT_EQ(data["y"].type(), (TensorType{i32, {n}}));
    std::vector<int64_t> count(10);
    for (int64_t i = 0; i < n; ++i) ++count[data["y"].as<int32_t>()[i]];
    EXPECT_EQ(count, std::vector<int64_t>(10, n / 10));
    if (!train) continue;
    double sum = 0, squares = 0;
    for (int64_t i = 0; i < data["x"].elements(); ++i) {
      const double v = data["x"].as<float>()[i];
      sum += v;
      squares += v * v;
    }
    const double mean = sum / data["x"].elements();
    EXPECT_NEAR(mean, 0, 0.00005 / 0.353);
    EXPECT_NEAR(std::sqrt(squares / data["x"].elements() - mean * mean), 1, 0.00005 / 0.353);
  }
}

}  // namespace
}  // namespace aicf::tests
