// Data sets in host memory.
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdlib>
#include <set>
#include <string_view>

#include "aicf/data.h"
#include "aicf/error.h"
#include "io/bytes.h"

namespace aicf {

Dataset::Dataset(NamedTensors tensors) {
  std::set<std::string_view> names;
  for (const auto& [name, tensor] : tensors) {
    if (!names.insert(name).second)
      throw Error(fmt::format("Dataset: expected unique names, got {} twice", io::quote(name)));
    if (tensor.shape().rank() == 0) {
      throw Error(
          fmt::format("Dataset: {}: expected a tensor whose first axis is the example, got a scalar", io::quote(name)));
    }
    const auto& [first_name, first] = tensors.front();
    if (tensor.shape()[0] != first.shape()[0]) {
      throw Error(fmt::format("Dataset: {}: expected {} examples as in {}, got {}", io::quote(name), first.shape()[0],
                              io::quote(first_name), tensor.shape()[0]));
    }
  }
  if (!tensors.empty()) size_ = tensors.front().second.shape()[0];
  tensors_ = std::make_shared<const NamedTensors>(std::move(tensors));
}

const NamedTensors& Dataset::tensors() const {
  static const NamedTensors none;
  return tensors_ ? *tensors_ : none;
}

const Tensor& Dataset::operator[](const std::string& name) const {
  std::string names;
  for (const auto& [key, tensor] : tensors()) {
    if (key == name) return tensor;
    names += (names.empty() ? "" : ", ") + io::quote(key);
  }
  throw Error(
      fmt::format("Dataset: expected one of {}, got {}", names.empty() ? "no tensors" : names, io::quote(name)));
}

namespace {

std::string folder_of(const ImageSetOptions& options) {
  const char* instead = std::getenv("AICF_FASHION_MNIST");
  return options.folder == kFashionMnistFolder && instead != nullptr && *instead != '\0' ? instead : options.folder;
}

// The file as Debian compresses it, or else as it was published.
std::string find_file(const std::string& folder, const std::string& name) {
  const std::string path = folder + "/" + name;
  const bool plain = access((path + ".gz").c_str(), F_OK) != 0 && access(path.c_str(), F_OK) == 0;
  return plain ? path : path + ".gz";
}

Tensor read_u8(const std::string& path, int rank) {
  Tensor tensor = read_idx(path);
  if (tensor.dtype() != u8 || tensor.shape().rank() != rank) {
    throw Error(fmt::format("load_image_set({}): expected u8 of rank {}, got {}", io::quote(path), rank,
                            to_string(tensor.type())));
  }
  return tensor;
}

Tensor standardised(const Tensor& raw, const ImageSetOptions& options, const std::string& path) {
  std::vector<int64_t> dims = {raw.shape()[0]};
  if (options.image_shape.empty()) {
    dims.insert(dims.end(), raw.shape().begin() + 1, raw.shape().end());
  } else {
    dims.insert(dims.end(), options.image_shape.begin(), options.image_shape.end());
  }
  const Shape shape(dims);
  if (shape.elements() != raw.elements()) {
    throw Error(
        fmt::format("load_image_set({}): expected images of {}x{} pixels in shape {}, got another number of pixels",
                    io::quote(path), raw.shape()[1], raw.shape()[2], to_string(Shape(std::span(dims).subspan(1)))));
  }
  std::array<float, 256> table;
  for (size_t i = 0; i < table.size(); ++i) {
    table[i] = static_cast<float>((static_cast<double>(i) / 255.0 - options.mean) / options.deviation);
  }
  Tensor images(TensorType{f32, shape});
  const uint8_t* from = raw.as<uint8_t>();
  std::transform(from, from + raw.elements(), images.as<float>(), [&](uint8_t pixel) { return table[pixel]; });
  return images;
}

Tensor checked_labels(const Tensor& raw, int64_t classes, const std::string& path) {
  Tensor labels(TensorType{i32, raw.shape()});
  const uint8_t* from = raw.as<uint8_t>();
  int32_t* to = labels.as<int32_t>();
  for (int64_t i = 0; i < raw.elements(); ++i) {
    if (from[i] >= classes) {
      throw Error(fmt::format("load_image_set({}): expected labels from 0 to {}, got {} at example {}", io::quote(path),
                              classes - 1, from[i], i));
    }
    to[i] = from[i];
  }
  return labels;
}

}  // namespace

Dataset load_image_set(const ImageSetOptions& options) {
  if (!(options.deviation > 0) || !std::isfinite(options.deviation) || !std::isfinite(options.mean)) {
    throw Error(fmt::format("load_image_set: expected a finite mean and a positive deviation, got {} and {}",
                            options.mean, options.deviation));
  }
  if (options.classes < 1)
    throw Error(fmt::format("load_image_set: expected at least 1 class, got {}", options.classes));
  const std::string folder = folder_of(options);
  const std::string prefix = options.train ? "train" : "t10k";
  const std::string image_path = find_file(folder, prefix + "-images-idx3-ubyte");
  const std::string label_path = find_file(folder, prefix + "-labels-idx1-ubyte");
  const Tensor images = read_u8(image_path, 3);
  const Tensor labels = read_u8(label_path, 1);
  if (images.shape()[0] != labels.elements()) {
    throw Error(fmt::format("load_image_set({}): expected {} labels, one for each image in {}, got {}",
                            io::quote(label_path), images.shape()[0], io::quote(image_path), labels.elements()));
  }
  NamedTensors tensors;
  tensors.emplace_back(options.images, standardised(images, options, image_path));
  tensors.emplace_back(options.labels, checked_labels(labels, options.classes, label_path));
  return Dataset(std::move(tensors));
}

}  // namespace aicf
