// Initial values: parse and print, and Philox draws without libm.
#include "ir/init.h"

#include <array>
#include <bit>
#include <cmath>

#include "aicf/error.h"
#include "base/hash.h"
#include "base/philox.h"
#include "ir/attrs.h"
#include "ir/literal.h"

namespace aicf::ir {
namespace {

struct Row {
  InitKind kind;
  std::string_view name;
  int args;  // -1: any number
};

constexpr Row kRows[] = {
    {InitKind::zeros, "zeros", 0},    {InitKind::ones, "ones", 0},       {InitKind::value, "value", 1},
    {InitKind::values, "values", -1}, {InitKind::uniform, "uniform", 2}, {InitKind::normal, "normal", 2},
    {InitKind::seed, "seed", 0},
};

// ln x for 0 < x <= 1, within a few ulp: x = m·2^e with m in [√½, √2), ln m = 2 artanh((m - 1) / (m + 1)) by its
// series. The last term left out is below 1e-19. Not std::log: libm versions differ in the last bit, initial values may
// not.
double portable_log(double x) {
  int exponent = 0;
  double m = std::frexp(x, &exponent);
  if (m < 0.70710678118654752) {
    m *= 2;
    --exponent;
  }
  const double z = (m - 1) / (m + 1);
  const double z2 = z * z;
  double series = 0;
  for (int k = 23; k >= 1; k -= 2) series = series * z2 + 1.0 / k;
  return exponent * 0.69314718055994531 + 2 * z * series;
}

// Draws two doubles an index; `attempt` starts the next draw of the same index.
class Draws {
 public:
  Draws(uint64_t seed, const std::string& name) : key_(base::philox_key(seed)), name_(base::hash_text(name)) {}

  std::array<double, 2> uniform(uint64_t index, uint32_t attempt = 0) const {
    // 2^48 indices and 2^15 attempts (nobody sees so many) share the two words that the name leaves; the top bit of the
    // second stays clear, which sets these draws apart from those of a step (base::PhiloxStream).
    const base::PhiloxCounter w =
        base::philox4x32({static_cast<uint32_t>(index), static_cast<uint32_t>(index >> 32) | (attempt << 16),
                          static_cast<uint32_t>(name_), static_cast<uint32_t>(name_ >> 32)},
                         key_);
    return {base::unit_double(w[0], w[1]), base::unit_double(w[2], w[3])};
  }

  // Marsaglia's polar method (SIAM Review 6, 1964): a logarithm and a square root, no sine. An attempt fails with
  // probability 1 - π/4.
  std::array<double, 2> normal(uint64_t index) const {
    for (uint32_t attempt = 0;; ++attempt) {
      const auto [a, b] = uniform(index, attempt);
      const double u = 2 * a - 1, v = 2 * b - 1;
      const double s = u * u + v * v;
      if (s >= 1 || s == 0) continue;
      const double scale = std::sqrt(-2 * portable_log(s) / s);
      return {u * scale, v * scale};
    }
  }

 private:
  base::PhiloxKey key_;
  uint64_t name_;
};

template <class T>
void fill_random(const InitSpec& spec, const Draws& draws, Tensor& tensor, T&& store) {
  const double a = spec.args[0], b = spec.args[1];
  const int64_t n = tensor.elements();
  for (int64_t i = 0; i < n; i += 2) {
    const auto index = static_cast<uint64_t>(i / 2);
    const bool uniform = spec.kind == InitKind::uniform;
    const std::array<double, 2> d = uniform ? draws.uniform(index) : draws.normal(index);
    const double scale = uniform ? b - a : b;
    store(i, a + scale * d[0]);
    if (i + 1 < n) store(i + 1, a + scale * d[1]);
  }
}

void fill(const std::string& name, const InitSpec& spec, uint64_t seed, Tensor& tensor) {
  const DType dtype = tensor.dtype();
  const int64_t n = tensor.elements();
  switch (spec.kind) {
    case InitKind::zeros:
      return;
    case InitKind::ones:
    case InitKind::value:
      for (int64_t i = 0; i < n; ++i) {
        set_element(dtype, tensor.data(), i, spec.kind == InitKind::ones ? 1 : spec.args[0]);
      }
      return;
    case InitKind::values:
      if (static_cast<int64_t>(spec.args.size()) != n) {
        throw Error("initial values of " + name + ": expected " + std::to_string(n) + " elements, got " +
                    std::to_string(spec.args.size()));
      }
      for (int64_t i = 0; i < n; ++i) set_element(dtype, tensor.data(), i, spec.args[static_cast<size_t>(i)]);
      return;
    case InitKind::seed:
      if (tensor.type() != TensorType{i64, {}}) {
        throw Error("initial value of " + name + ": expected the type i64[] for the seed, got " +
                    to_string(tensor.type()));
      }
      *tensor.as<int64_t>() = std::bit_cast<int64_t>(seed);
      return;
    case InitKind::uniform:
    case InitKind::normal:
      break;
  }
  if (!is_float(dtype)) {
    throw Error("initial value of " + name + ": expected a float type for a random draw, got " +
                to_string(tensor.type()));
  }
  const Draws draws(seed, name);
  if (dtype == DType::f32) {
    float* out = tensor.as<float>();
    fill_random(spec, draws, tensor, [out](int64_t i, double v) { out[i] = static_cast<float>(v); });
  } else {
    void* out = tensor.data();
    fill_random(spec, draws, tensor, [out, dtype](int64_t i, double v) { set_element(dtype, out, i, v); });
  }
}

[[noreturn]] void malformed(std::string_view text) {
  throw Error("init \"" + std::string(text) + "\": expected zeros, ones, value(v), values(v,…), uniform(low,high), " +
              "normal(mean,deviation) or seed");
}

}  // namespace

std::string format_init(const InitSpec& spec) {
  for (const Row& row : kRows) {
    if (row.kind != spec.kind) continue;
    std::string text(row.name);
    if (row.args == 0) return text;
    for (size_t i = 0; i < spec.args.size(); ++i) text += (i ? "," : "(") + to_string(AttrValue(spec.args[i]));
    return text + ")";
  }
  throw InternalError("an init kind without a row");
}

InitSpec parse_init(std::string_view text) {
  if (text.empty()) return {};
  const size_t open = text.find('(');
  for (const Row& row : kRows) {
    if (text.substr(0, open) != row.name) continue;
    InitSpec spec{row.kind, {}};
    if (open != std::string_view::npos) {
      if (text.back() != ')') malformed(text);
      std::string_view rest = text.substr(open + 1, text.size() - open - 2);
      while (true) {
        const size_t comma = rest.find(',');
        double value = 0;
        if (!parse_float(rest.substr(0, comma), value)) malformed(text);
        spec.args.push_back(value);
        if (comma == std::string_view::npos) break;
        rest.remove_prefix(comma + 1);
      }
    }
    const bool count_ok = row.args < 0 ? !spec.args.empty() : static_cast<int>(spec.args.size()) == row.args;
    if (!count_ok) malformed(text);
    return spec;
  }
  malformed(text);
}

Tensor initial_value(const std::string& name, const TensorType& type, const std::string& init, uint64_t seed) {
  Tensor tensor(type);
  fill(name, parse_init(init), seed, tensor);
  return tensor;
}

}  // namespace aicf::ir
