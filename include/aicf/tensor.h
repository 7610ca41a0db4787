// Host tensors: what goes into a step and what comes out of one.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "aicf/error.h"
#include "aicf/shape.h"

namespace aicf {

template <class T>
constexpr DType no_dtype() {
  static_assert(sizeof(T) == 0, "expected double, float, int64_t, int32_t, uint8_t or bool elements");
  return {};
}

// The DType of a C++ element type. Any other type does not compile: an `unsigned` or `long long` written as bytes would
// overrun the tensor.
template <class T>
inline constexpr DType kDTypeOf = no_dtype<T>();
template <>
inline constexpr DType kDTypeOf<double> = DType::f64;
template <>
inline constexpr DType kDTypeOf<float> = DType::f32;
template <>
inline constexpr DType kDTypeOf<int64_t> = DType::i64;
template <>
inline constexpr DType kDTypeOf<int32_t> = DType::i32;
template <>
inline constexpr DType kDTypeOf<uint8_t> = DType::u8;
template <>
inline constexpr DType kDTypeOf<bool> = DType::boolean;

class Tensor;

// Borrowed, read-only, dense row-major memory. Valid while the owner is.
struct TensorView {
  TensorType type;
  const void* data = nullptr;

  TensorView() = default;
  TensorView(TensorType t, const void* d) : type(t), data(d) {}
  TensorView(const Tensor& tensor);
};

// An owned host tensor. Copies are deep.
class Tensor {
 public:
  Tensor() : type_{DType::f32, {0}} {}                                     // no elements
  explicit Tensor(TensorType type) : type_(type), bytes_(type.bytes()) {}  // zero-filled
  explicit Tensor(const TensorView& view);
  // Throws Error when the number of values is not the shape's.
  template <class T>
  static Tensor of(Shape shape, const std::vector<T>& values) {
    Tensor t(TensorType{kDTypeOf<T>, shape});
    t.check_count(values.size());
    T* out = reinterpret_cast<T*>(t.bytes_.data());
    for (size_t i = 0; i < values.size(); ++i) out[i] = values[i];
    return t;
  }
  // A rank-0 tensor.
  template <class T>
  static Tensor scalar(T value) {
    return of<T>(Shape{}, std::vector<T>{value});
  }

  const TensorType& type() const { return type_; }
  DType dtype() const { return type_.dtype; }
  const Shape& shape() const { return type_.shape; }
  int64_t elements() const { return type_.shape.elements(); }
  size_t bytes() const { return bytes_.size(); }
  const void* data() const { return bytes_.data(); }
  void* data() { return bytes_.data(); }

  // The elements as T. Throws Error when T is not the tensor's dtype; 16-bit floats are uint16_t bit patterns.
  template <class T>
  const T* as() const {
    check_type<T>();
    return reinterpret_cast<const T*>(bytes_.data());
  }
  template <class T>
  T* as() {
    check_type<T>();
    return reinterpret_cast<T*>(bytes_.data());
  }
  // Element i converted to double, whatever the dtype. Throws Error when i is out of range.
  double at(int64_t i) const;
  // The only element. Throws Error when there is not exactly one.
  double item() const;
  // All elements converted to double.
  std::vector<double> to_doubles() const;

  // Same type and same bits.
  bool operator==(const Tensor& other) const { return type_ == other.type_ && bytes_ == other.bytes_; }

 private:
  template <class T>
  void check_type() const {
    bool ok;
    if constexpr (sizeof(T) == 2) {
      ok = type_.dtype == DType::f16 || type_.dtype == DType::bf16;
    } else {
      ok = kDTypeOf<T> == type_.dtype;
    }
    if (!ok) throw Error("tensor of type " + to_string(type_) + " read as another element type");
  }
  void check_count(size_t count) const;

  TensorType type_;
  std::vector<unsigned char> bytes_;
};

inline TensorView::TensorView(const Tensor& tensor) : type(tensor.type()), data(tensor.data()) {}

// Reads element i of a dense array as double, and writes one (integers truncate towards zero).
double element_as_double(DType dtype, const void* data, int64_t i);
void set_element(DType dtype, void* data, int64_t i, double value);

// A named tensor handed to a step.
struct Feed {
  std::string_view name;
  TensorView tensor;
  // CUDA, inputs only: `tensor.data` is memory of the GPU, valid in the order of StepOptions::stream, which must be
  // given.
  bool on_device = false;
};

using NamedTensors = std::vector<std::pair<std::string, Tensor>>;

}  // namespace aicf
