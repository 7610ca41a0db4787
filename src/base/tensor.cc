#include "aicf/tensor.h"

#include <limits>

namespace aicf {

Tensor::Tensor(const TensorView& view) : type_(view.type), bytes_(view.type.bytes()) {
  if (!bytes_.empty()) std::memcpy(bytes_.data(), view.data, bytes_.size());
}

void Tensor::check_count(size_t count) const {
  if (static_cast<int64_t>(count) != type_.shape.elements()) {
    throw Error("tensor " + to_string(type_) + " made from " + std::to_string(count) + " values: expected " +
                std::to_string(type_.shape.elements()));
  }
}

double Tensor::at(int64_t i) const {
  if (i < 0 || i >= elements()) {
    throw Error("element " + std::to_string(i) + " of a tensor " + to_string(type_));
  }
  return element_as_double(type_.dtype, data(), i);
}

double Tensor::item() const {
  if (elements() != 1) throw Error("item() of a tensor " + to_string(type_) + ": expected one element");
  return element_as_double(type_.dtype, data(), 0);
}

std::vector<double> Tensor::to_doubles() const {
  std::vector<double> values(static_cast<size_t>(elements()));
  for (int64_t i = 0; i < elements(); ++i) values[static_cast<size_t>(i)] = element_as_double(type_.dtype, data(), i);
  return values;
}

double element_as_double(DType dtype, const void* data, int64_t i) {
  switch (dtype) {
    case DType::f64:
      return static_cast<const double*>(data)[i];
    case DType::f32:
      return static_cast<double>(static_cast<const float*>(data)[i]);
    case DType::bf16:
      return static_cast<double>(bf16_to_f32(static_cast<const uint16_t*>(data)[i]));
    case DType::f16:
      return static_cast<double>(f16_to_f32(static_cast<const uint16_t*>(data)[i]));
    case DType::i64:
      return static_cast<double>(static_cast<const int64_t*>(data)[i]);
    case DType::i32:
      return static_cast<double>(static_cast<const int32_t*>(data)[i]);
    case DType::u8:
      return static_cast<double>(static_cast<const uint8_t*>(data)[i]);
    case DType::boolean:
      return static_cast<const uint8_t*>(data)[i] != 0 ? 1.0 : 0.0;
  }
  throw InternalError("element_as_double: unknown dtype");
}

namespace {

// Saturates: the conversion of an out-of-range double is undefined behaviour.
template <class T>
T to_integer(double value) {
  if (!(value == value)) return 0;
  constexpr double low = static_cast<double>(std::numeric_limits<T>::min());
  constexpr double high = static_cast<double>(std::numeric_limits<T>::max());
  if (value <= low) return std::numeric_limits<T>::min();
  if (value >= high) return std::numeric_limits<T>::max();
  return static_cast<T>(value);
}

}  // namespace

void set_element(DType dtype, void* data, int64_t i, double value) {
  switch (dtype) {
    case DType::f64:
      static_cast<double*>(data)[i] = value;
      return;
    case DType::f32:
      static_cast<float*>(data)[i] = static_cast<float>(value);
      return;
    case DType::bf16:
      static_cast<uint16_t*>(data)[i] = f32_to_bf16(static_cast<float>(value));
      return;
    case DType::f16:
      static_cast<uint16_t*>(data)[i] = f32_to_f16(static_cast<float>(value));
      return;
    case DType::i64:
      static_cast<int64_t*>(data)[i] = to_integer<int64_t>(value);
      return;
    case DType::i32:
      static_cast<int32_t*>(data)[i] = to_integer<int32_t>(value);
      return;
    case DType::u8:
      static_cast<uint8_t*>(data)[i] = to_integer<uint8_t>(value);
      return;
    case DType::boolean:
      static_cast<uint8_t*>(data)[i] = value != 0 ? 1 : 0;
      return;
  }
  throw InternalError("set_element: unknown dtype");
}

}  // namespace aicf
