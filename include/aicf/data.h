// Data sets: the IDX reader, a data set in host memory, and the loader that hands out shuffled batches.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "aicf/tensor.h"

namespace aicf {

// A gzip file may declare far more than it holds; above this its contents are refused.
inline constexpr uint64_t kMaxInflatedIdxBytes = uint64_t{4} << 30;

// Reads an IDX file (yann.lecun.com/exdb/mnist), plain or gzip, of rank 1 to 8 and elements u8, i32, f32 or f64. Throws
// Error naming the file, what was expected and what was found; a file that is too short, too long or corrupt is
// refused.
Tensor read_idx(const std::string& path);

// Named tensors whose first axis is the example. A handle: copies share the tensors, which never change.
class Dataset {
 public:
  Dataset() = default;  // no tensors, no examples
  // Throws Error on a repeated name, a tensor of rank 0, or tensors with different numbers of examples.
  explicit Dataset(NamedTensors tensors);

  int64_t size() const { return size_; }  // examples
  const NamedTensors& tensors() const;
  const Tensor& operator[](const std::string& name) const;  // throws Error when there is none

 private:
  std::shared_ptr<const NamedTensors> tensors_;
  int64_t size_ = 0;
};

// Where Debian's package dataset-fashion-mnist installs its files. The environment variable AICF_FASHION_MNIST, where
// it is set, names another folder to use instead of this one; a recipe may name any other.
inline constexpr const char* kFashionMnistFolder = "/usr/share/datasets/fashion-mnist";

// Images and labels in the files of the MNIST family: {train,t10k}-images-idx3-ubyte and
// {train,t10k}-labels-idx1-ubyte, with or without .gz.
struct ImageSetOptions {
  std::string folder = kFashionMnistFolder;
  bool train = true;  // false: the test set
  // Pixels become (x / 255 - mean) / deviation; the defaults are those of Fashion-MNIST's training images.
  double mean = 0.2860;
  double deviation = 0.3530;
  int64_t classes = 10;
  // The shape of one image; empty keeps the file's (28, 28). {784} and {28, 28, 1} are other ways to see the same
  // pixels.
  std::vector<int64_t> image_shape = {};
  std::string images = "x";  // the tensors' names
  std::string labels = "y";
};

// Images as f32 and labels as i32. Throws Error when a file is missing or malformed, the counts differ, or a label is
// not a class (naming the file and the example).
Dataset load_image_set(const ImageSetOptions& options = {});

// The bytes of a text as tokens.
struct TextSetOptions {
  // The file; "" is the King James Bible as `bible -f ge1:1-re22:21` of Debian's package bible-kjv prints it, or the
  // file that the environment variable AICF_BIBLE_KJV names.
  std::string path = {};
  bool train = true;                     // false: the test set
  double held_out = 0.1;                 // the part of the bytes, at the end, that is the test set
  int64_t context = 64;                  // bytes of one example
  std::string tokens = "x", next = "y";  // the tensors' names
};

// Windows of `context` bytes one after another as i32, and the byte that follows each of them; a rest too short for a
// window is left out. Throws Error when the file cannot be read or is too short, and when `bible` is not installed.
Dataset load_text_set(const TextSetOptions& options);

// A position in the stream of batches. The order of epoch e is a function of (seed, e) alone, so this is all there is
// to save.
struct LoaderState {
  uint64_t seed = 0;
  int64_t epoch = 0;
  int64_t position = 0;  // examples of the epoch already handed out

  bool operator==(const LoaderState&) const = default;
};

struct LoaderOptions {
  int64_t batch = 64;
  bool shuffle = true;
  uint64_t seed = 0;
  // True, for training: an incomplete last batch is left out. False, for evaluation: it is filled up with example 0.
  bool drop_last = true;
  int prefetch = 2;  // batches prepared ahead
  // Called on the loader's thread for each filled batch, an augmentation say. It may change elements, not types; for a
  // repeatable stream it depends on nothing but its arguments. What it throws, next() rethrows.
  std::function<void(const LoaderState& at, std::span<Tensor> tensors)> transform = {};
};

struct Batch {
  std::vector<Feed> feeds;  // one a tensor of the data set; the first axis is the batch
  int64_t count = 0;        // real examples; those after it repeat example 0
  LoaderState at;           // of its first example
  bool last = false;        // of its epoch
};

// An endless stream of batches, epoch after epoch, prepared ahead by a thread of its own into buffers made once.
// One loader is used from one thread at a time.
class Loader {
 public:
  // Throws Error on options out of range and on a data set that holds no batch.
  Loader(Dataset data, LoaderOptions options);
  ~Loader();
  Loader(Loader&&) noexcept;
  Loader& operator=(Loader&&) noexcept;

  // Valid until the next call of next() or set_state().
  const Batch& next();
  int64_t batches_per_epoch() const;
  int64_t examples() const;  // of the data set

  // Where the next batch begins. set_state on a loader of the same data and options continues the stream from there; it
  // throws Error, with nothing changed, when the position is outside the data set.
  LoaderState state() const;
  void set_state(const LoaderState& state);

 private:
  class Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace aicf
