// Whether two graphs of the same externals, outputs and updates give the same bits on the values where arithmetic has
// its corners, by the CPU's kernels.
#pragma once

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>
#include <limits>
#include <string>
#include <vector>

#include "aicf/ops.h"
#include "ops/interpret.h"

namespace aicf::test {

// Bit patterns. NaNs of other bits than the usual; signalling ones only where nothing converts: a conversion between
// floats makes them quiet.
inline std::vector<uint64_t> special_bits(DType dtype) {
  switch (dtype) {
    case DType::f64:
      return {0x3ff0000000000000, 0, 0x8000000000000000, 0x7ff0000000000000, 0xfff0000000000000, 0x7ff8000000000000,
              0xfff8000000000123, 1, 0x8000000000000001, 0x0010000000000000, 0xc004000000000000, 0x7fefffffffffffff};
    case DType::f32:
      return {0x3f800000, 0, 0x80000000, 0x7f800000, 0xff800000, 0x7fc00000,
              0xffc00123, 1, 0x807fffff, 0x00800000, 0xc0200000, 0x7f7fffff};
    case DType::bf16:
      return {0x3f80, 0, 0x8000, 0x7f80, 0xff80, 0x7fc0, 0xffc1, 1, 0x807f, 0x0080, 0xc020, 0x7f7f};
    case DType::f16:
      return {0x3c00, 0, 0x8000, 0x7c00, 0xfc00, 0x7e00, 0xfe01, 1, 0x83ff, 0x0400, 0xc100, 0x7bff};
    case DType::i64:
      return {0, 1, ~uint64_t{0}, uint64_t{1} << 63, ~(uint64_t{1} << 63), 7};
    case DType::i32:
      return {0, 1, 0xffffffff, 0x80000000, 0x7fffffff, 7};
    case DType::u8:
      return {0, 1, 255, 128, 7};
    case DType::boolean:
      return {0, 1};
  }
  return {0};
}

inline Tensor special_tensor(const TensorType& type, size_t shift) {
  const std::vector<uint64_t> values = special_bits(type.dtype);
  Tensor tensor(type);
  const size_t size = size_of(type.dtype);
  for (int64_t i = 0; i < tensor.elements(); ++i) {
    const uint64_t bits = values[(static_cast<size_t>(i) + shift) % values.size()];
    std::memcpy(static_cast<char*>(tensor.data()) + static_cast<size_t>(i) * size, &bits, size);
  }
  return tensor;
}

// Fractions of which no sum is exact, so that its order shows.
inline Tensor ordinary_tensor(const TensorType& type, size_t seed) {
  Tensor tensor(type);
  for (int64_t i = 0; i < tensor.elements(); ++i) {
    const uint64_t mixed = (static_cast<uint64_t>(i) + seed * 1000 + 1) * 0x9e3779b97f4a7c15;
    const double unit = static_cast<double>(mixed >> 11) * 0x1p-53;  // in [0, 1)
    const double value = is_float(type.dtype) ? 4 * unit - 2 : type.dtype == boolean ? unit < 0.5 : 100 * unit;
    set_element(type.dtype, tensor.data(), i, value);
  }
  return tensor;
}

// Outputs, and what updates make of their targets.
inline ir::Graph with_updates_as_outputs(ir::Graph graph) {
  const std::vector<ir::Update> updates(graph.updates().begin(), graph.updates().end());
  for (const ir::Update& u : updates) {
    Value next = graph.handle(u.value);
    if (u.guard != ir::kNoValue) next = select(graph.handle(u.guard), next, graph.handle(u.target));
    graph.add_output("update of " + graph.value(u.target).name, next.id());
  }
  return graph;
}

// Bit for bit, but for which NaN a NaN is: of two of them an instruction returns the one that the compiler put first.
inline bool equal_tensors(const Tensor& a, const Tensor& b) {
  if (a == b) return true;
  if (a.type() != b.type() || !is_float(a.dtype())) return false;
  const size_t size = size_of(a.dtype());
  for (int64_t i = 0; i < a.elements(); ++i) {
    const bool both = std::isnan(a.at(i)) && std::isnan(b.at(i));
    const auto at = static_cast<size_t>(i) * size;
    const auto* x = static_cast<const char*>(a.data()) + at;
    if (!both && !std::equal(x, x + size, static_cast<const char*>(b.data()) + at)) return false;
  }
  return true;
}

inline std::string first_difference(const TensorMap& want, const TensorMap& got) {
  if (want.size() != got.size()) return "another number of outputs";
  for (const auto& [name, tensor] : want) {
    if (equal_tensors(tensor, got.at(name))) continue;
    std::string text = "'" + name + "':";
    for (int64_t i = 0; i < tensor.elements(); ++i) {
      text += " " + std::to_string(tensor.at(i)) + "/" + std::to_string(got.at(name).at(i));
    }
    return text;
  }
  return "";
}

// "" when equal. In all rounds each pair of special values meets in each pair of neighbouring externals; one more round
// is of ordinary values.
inline constexpr size_t kSpecialValues = 12, kAllRounds = kSpecialValues * kSpecialValues;
inline std::string difference_of(const ir::Graph& before, const ir::Graph& after, size_t rounds = kAllRounds) {
  const ir::Graph a = with_updates_as_outputs(before), b = with_updates_as_outputs(after);
  for (size_t i = 0; i <= rounds; ++i) {
    const size_t round = i * (kAllRounds / rounds);
    TensorMap feeds;
    size_t at = 0;
    for (const ir::ValueInfo& v : a.values()) {
      if (v.role == ir::Role::tmp || v.role == ir::Role::constant) continue;
      const size_t shift = at % 2 == 0 ? round : round / kSpecialValues;
      feeds[v.name] = i == rounds ? ordinary_tensor(v.type, at) : special_tensor(v.type, shift + at);
      ++at;
    }
    const std::string difference = first_difference(expand_and_interpret(a, feeds), expand_and_interpret(b, feeds));
    if (!difference.empty()) return "round " + std::to_string(round) + ", " + difference;
  }
  return "";
}

}  // namespace aicf::test
